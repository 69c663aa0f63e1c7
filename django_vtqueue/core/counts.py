"""Counts of the jobs of one queue and task in one minute or hour."""

from collections import defaultdict
from dataclasses import dataclass, field

from .clock import SECOND

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

CountKey = tuple[int, str, str]  # a minute (or an hour), a queue, a task


@dataclass(slots=True)
class Counts:
    """How many attempts succeeded, failed with another to come, and were the last; how long they ran and had waited.

    The times are histograms. What died with its worker is in neither of them: how long it ran is not known.
    ``depth``: how many jobs were due in the queue, at the most; None: that was not measured.
    """

    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    run_times: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    wait_times: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    depth: int | None = None

    def add(self, other: "Counts") -> None:
        """Add what was counted in another time."""
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.dead += other.dead
        for total, times in ((self.run_times, other.run_times), (self.wait_times, other.wait_times)):
            for bucket, number in times.items():
                total[bucket] += number
        if other.depth is not None:
            self.depth = max(self.depth or 0, other.depth)


def hour_of(instant: int) -> int:
    """Return the instant at which the hour of an instant began."""
    return instant - instant % HOUR


def minute_of(instant: int) -> int:
    """Return the instant at which the minute of an instant began."""
    return instant - instant % MINUTE
