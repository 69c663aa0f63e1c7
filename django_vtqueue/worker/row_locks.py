"""The locks of rows that other transactions hold, on PostgreSQL: what waits for one is put off, and holds up no more.

A row of a job that is held is found locked by its renewal, which passes over it (``Leases.locked``): until the lock is
gone nothing else is written to it. Any other lock (of a limit, of a parent, of a key) is found by a wait in vain. Then
for a while the turns go on apart: what may wait for different locks is written in transactions of their own.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from math import inf
from traceback import clear_frames

from ..core.job import HeldJob
from ..engines import Engine
from ..execution.outcomes import Outcome
from .leases import Leases

# What has waited in vain is tried again when ten times as long has passed, so that it takes a tenth of the time.
TIMES = 10

Ties = tuple[Hashable, ...]
UNTIED: Ties = (None, None, None)


class RowLocks:
    """What one worker knows of the locks that it has met."""

    def __init__(self, engine: Engine, leases: Leases) -> None:
        self.engine, self.leases = engine, leases
        self._off: dict[Hashable, float] = {}  # what was put off, and until when (monotonic)
        self._apart_until = 0.0  # monotonic

    @property
    def apart(self) -> bool:
        """Whether a lock was waited for in vain a while ago."""
        return time.monotonic() < self._apart_until

    @property
    def patience(self) -> float:
        """For how many seconds a lock is waited for."""
        return self.engine.patience or 0.0

    @property
    def pause(self) -> float:
        """For how many seconds something is put off."""
        return TIMES * self.patience

    def in_vain(self, error: BaseException) -> bool:
        """Return whether an error says that a lock of some rows was waited for in vain; if so, note it.

        The time that was waited was no gap, and the next turn finds out which rows are locked. While the whole table is
        locked nobody can renew: that is an outage.
        """
        if not self.engine.waited_in_vain(error) or self.engine.table_is_locked():
            return False
        self.leases.gaps.locked_in_vain(self.patience)
        self.leases.renew_at = 0.0
        clear_frames(error.__traceback__)  # see Outage.failed
        self._apart_until = time.monotonic() + self.pause
        return True

    def passes(self, what: Hashable, step: Callable[[], object]) -> bool:
        """Take a step, unless it is put off; put it off if it waits in vain. Return whether it was taken."""
        if self.is_off(what):
            return False
        try:
            step()
            return True
        except Exception as error:
            if not self.in_vain(error):
                raise
        self.put_off(what)
        return False

    def put_off(self, what: Hashable) -> None:
        """Have a step not be taken for a while."""
        now = time.monotonic()
        self._off = {other: until for other, until in self._off.items() if until > now}
        self._off[what] = now + self.pause

    def off_until(self, what: Hashable) -> float:
        """Return until when a step is put off (monotonic); 0: it is not."""
        return self._off.get(what, 0.0)

    def is_off(self, what: Hashable) -> bool:
        """Return whether a step is put off."""
        return bool(self._off) and time.monotonic() < self.off_until(what)

    def next_at(self) -> float:
        """Return when something that was put off is to be tried again (monotonic)."""
        now = time.monotonic()
        return min((until for until in self._off.values() if until > now), default=inf)

    # Jobs

    def ties(self, job: HeldJob) -> Ties:
        """Return what the settlement of a job may wait for, apart from a row that its renewal finds locked.

        Jobs with the same ties wait for the same. If one of those without any has waited in vain, for a unique key say,
        each is on its own for a while.
        """
        alone = self.is_off(UNTIED) or not self.leases.renews(job)
        return job.parent_id, job.concurrency_key, job.key if alone else None

    def hold_up(self, job: HeldJob) -> bool:
        """Return whether nothing can be written to the row of a job now."""
        return job.key in self.leases.locked or (bool(self._off) and self.is_off(self.ties(job)))

    def free(self, outcomes: Sequence[Outcome], most: int) -> list[Outcome]:
        """Return the first outcomes that can be settled now."""
        if not (self._off or self.leases.locked):
            return list(outcomes[:most])
        return [outcome for outcome in outcomes if not self.hold_up(outcome.job)][:most]
