"""After a long lock, a clock's step or a suspended machine every lease looks expired, also those of living holders."""

from .. import clock
from ..clock import SECOND
from .held import Held

CONTENTION = 0.1  # seconds: ordinary rivals keep a worker from the write lock for 40 ms at the most


class Pauses:
    """Notices that this worker was stopped for so long that the leases of others, stopped with it, may have run out.

    They are given a third of their lease to renew before what is theirs is taken (``resumed_at`` of a claim). A lease
    is renewed each third of its time, so a pause of less than half of it cannot have ended one. A lock that kept this
    worker waiting for leases to be taken has kept their holders from renewing them, and may have begun long before.
    """

    def __init__(self, shortest_lease: float) -> None:
        self._shortest = shortest_lease
        self._boot = self._wall = 0.0
        self._resumed_at = 0

    def noticed(self, held: Held, now: int, failing_for: float) -> int:
        """Return the instant at which the last pause ended; called in each turn. A start counts as the end of one.

        ``failing_for``: the seconds for which no turn has succeeded.
        """
        boot, wall = clock.since_boot(), now / SECOND
        longest = min(held.shortest_lease(self._shortest), self._shortest) / 2
        if boot - self._boot > longest or abs(wall - self._wall) > longest or failing_for > CONTENTION:
            self._resumed_at = now
        self._boot, self._wall = boot, wall
        return self._resumed_at
