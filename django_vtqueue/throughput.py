"""What became of the jobs of each queue in the last minutes, and how long they took: for monitoring of your own.

Workers count what they settle, and write it every 10 seconds. Jobs that others than workers claim (``Queue.claim``,
``Queue.run``, ``run_pending``) are not counted.
"""

from dataclasses import dataclass
from typing import NamedTuple

from .core.clock import SECOND
from .core.histograms import Percentiles
from .engines import database_for
from .inspection import throughput as counts

__all__ = ["Durations", "Flow", "arrivals", "read"]


class Durations(NamedTuple):
    """Half of all took no longer than ``p50``, and so on: seconds, within 9.1 %; None without any."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Flow:
    """What became of the attempts at the jobs of one queue: a number for each minute, oldest first, the last is now's.

    ``failed``: attempts after which there is another; ``dead``: jobs that became dead letters. ``run``: how long the
    attempts took; ``wait``: how long the jobs had been due when they began; both over all the minutes.
    """

    succeeded: list[int]
    failed: list[int]
    dead: list[int]
    run: Durations
    wait: Durations

    def ended(self, minutes: int = 1) -> int:
        """Return how many attempts ended in the last whole ``minutes``, the present one not among them."""
        return sum(sum(numbers[-minutes - 1 : -1]) for numbers in (self.succeeded, self.failed, self.dead))


def read(using: str | None = None, *, minutes: int = 180) -> dict[str, Flow]:
    """Return the flow of each queue that had any in the last ``minutes``, the present one included, by its name.

    ``using``: a database alias (default: the one of your settings). Rows are kept for two days.
    """
    found = counts.read(database_for(using), minutes=minutes)
    return {
        name: Flow(flow.succeeded, flow.failed, flow.dead, _in_seconds(flow.run), _in_seconds(flow.wait))
        for name, flow in found.items()
    }


def arrivals(using: str | None = None, *, seconds: int = 60) -> dict[str, int]:
    """Return how many jobs were enqueued into each queue in the last ``seconds``: of the last 10,000 at most.

    ``using``: see read. Jobs that have ended and are not kept (``result_ttl`` 0) are not among them.
    """
    return counts.arrivals(database_for(using), seconds=seconds)[0]


def _in_seconds(found: Percentiles) -> Durations:
    return Durations(*(None if value is None else value / SECOND for value in found))
