"""The gaps: times in which no holder could renew its leases. Each process that claims measures its own.

What a claim does about them is the rule in ``grace.py``.
"""

import json
import time
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from . import clock
from .clock import SECOND
from .grace import GRACE, GracePeriod

WAITED = 0.005  # seconds of waiting for the write lock after which another connection may have had it for long
NOTICEABLE = 0.05  # seconds: a shorter gap makes no difference to any lease
STEP = 1.0  # seconds by which the clock goes back before leases are counted anew
APART = 0.1  # seconds between two write locks of this process; a holder that wants the lock gets it in between
MOST_GAPS = 20  # gaps that are remembered; the list has the longest gap first


class Gap(NamedTuple):
    """A time in which holders could not renew: when it ended, by the boot clock, and its length, both in seconds."""

    ended: float
    length: float


@dataclass(frozen=True, slots=True)
class Clocks:
    """The readings of all clocks at one moment, in seconds."""

    wall: float
    boot: float
    monotonic: float

    @classmethod
    def read(cls, now: int) -> "Clocks":
        """Read the clocks at the instant ``now`` of the wall clock."""
        return cls(now / SECOND, clock.since_boot(), time.monotonic())


class GapWatch:
    """Notices the gaps, and the moments at which the write lock was free; says what time a claim leaves to holders.

    ``resting``: the caller's code runs between two claims, for any time. So a pause is no gap; a suspended machine and
    a step of the clock are. Without ``resting`` the claimer looks at the clocks often, and each pause is a gap. The
    time before its first look is one too.
    """

    def __init__(self, *, resting: bool = False) -> None:
        self.stepped_back = False  # the wall clock has gone back since this was last set to False
        self._resting = resting
        self._last: Clocks | None = None
        self._worked = 0.0  # seconds of work since the last look: they are no gap
        self._gaps: list[Gap] = []
        self._free_at = -inf  # boot clock: when this process last had the write lock
        self._free_before = self._free_mark = -inf  # two earlier moments of that kind, at least APART apart

    def notice_gap(self, now: int) -> float:
        """Note a gap since the last look; return its length in seconds, by the clock that has gone further.

        ``now`` must be the instant that the claim itself uses: the clock may step between two readings of it.
        """
        last, clocks = self._last, Clocks.read(now)
        self._last, worked, self._worked = clocks, self._worked, 0.0
        if last is None:
            passed = 0.0 if self._resting else inf
        else:
            wall, boot = clocks.wall - last.wall, clocks.boot - last.boot
            worked = clocks.monotonic - last.monotonic if self._resting else worked
            passed = max(boot - worked, abs(wall - worked))
            self.stepped_back = self.stepped_back or wall - boot < -STEP
        if passed > NOTICEABLE:
            self._note(clocks.boot, passed)
        return passed

    def note_work(self, seconds: float) -> None:
        """Note ``seconds`` of work, by the monotonic clock: they were no gap."""
        self._worked += seconds

    def note_lock(self, waited: float) -> None:
        """Note that the write lock is ours now, after so many seconds of waiting."""
        self.note_wait(waited)
        boot = clock.since_boot()
        if boot - self._free_mark >= APART:
            self._free_before, self._free_mark = self._free_mark, boot
        self._free_at = boot

    def note_wait(self, seconds: float) -> None:
        """Note a wait for the write lock that ends now: another connection may have had the lock."""
        if seconds > WAITED:
            boot = clock.since_boot()
            self._note(boot, boot - self._free_at)

    def grace_period(self, own: str = "") -> GracePeriod:
        """Return the grace period of a claim at this moment; ``own``: see GracePeriod."""
        boot = clock.since_boot()
        gaps = [(in_microseconds(boot - gap.ended), in_microseconds(gap.length)) for gap in self._gaps]
        return GracePeriod(GRACE, in_microseconds(boot - self._free_before), json.dumps(gaps), own)

    def _note(self, ended: float, length: float) -> None:
        longer = [gap for gap in self._gaps if gap.length > length]
        self._gaps = [*longer[: MOST_GAPS - 1], Gap(ended, length)]


def in_microseconds(seconds: float) -> int:
    return round(min(seconds, clock.LONGEST) * SECOND)
