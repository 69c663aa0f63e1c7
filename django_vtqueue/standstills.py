"""After a standstill of the machine or a clock's step every lease looks expired, also those of living holders."""

from . import clock
from .clock import SECOND


class Standstills:
    """Notices that this process was stopped for so long that the leases of others, stopped with it, may have run out.

    They are given a third of their lease to renew before what is theirs is taken (``resumed_at`` of a claim). A lease
    is renewed each third of its time, so a standstill of less than half of it cannot have ended one.
    """

    def __init__(self) -> None:
        self.resumed_at = 0  # the instant at which the last one ended; a start counts as one
        self._boot = self._wall = 0.0

    def look(self, now: int, bearable: float) -> float:
        """Return the seconds since the last look, by the clock that went further; more than ``bearable`` is one.

        ``now`` must be the instant of the claim that relies on it: the clock may be stepped between two readings.
        """
        boot, wall = clock.since_boot(), now / SECOND
        passed = max(boot - self._boot, abs(wall - self._wall))
        if passed > bearable:
            self.resumed_at = now
        self._boot, self._wall = boot, wall
        return passed

    def worked(self, seconds: float) -> None:
        """Take ``seconds`` of work (by the monotonic clock) out of account: they were no standstill."""
        self._boot += seconds
        self._wall += seconds
