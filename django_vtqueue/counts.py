"""What is counted of the jobs of one queue in one minute."""

from collections import defaultdict
from dataclasses import dataclass, field

from .clock import SECOND

MINUTE = 60 * SECOND


@dataclass(slots=True)
class Counts:
    """How many attempts succeeded, failed with another to come, and were the last; how long they ran and had waited.

    The times are histograms. What died with its worker is in neither of them: nobody knows how long it ran.
    """

    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    run_times: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    wait_times: dict[int, int] = field(default_factory=lambda: defaultdict(int))


def minute_of(instant: int) -> int:
    """Return the instant at which the minute of an instant began."""
    return instant - instant % MINUTE
