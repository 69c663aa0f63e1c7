"""Renewals beside a control loop that is late, on PostgreSQL: no lease ends because a row lock keeps the loop waiting.

A transaction of the project may lock the row of one job, or a limit, for any time, and the loop has to
wait for it. Its other jobs have nothing to do with that.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Event, Thread

from django.db import OperationalError

from ..core.backoff import trouble_pause
from ..core.clock import SECOND
from ..core.grace import RENEWED_AFTER
from ..core.job import HeldJob
from ..engines import Engine, Trouble, new_engine
from ..runtime.aside import logging_aside
from .leases import Leases

logger = logging.getLogger("django_vtqueue")

LOOK = 0.2  # seconds between two looks at what is due
HANGS = 3600.0  # seconds; no lock lasts for so long that a worker waits for


class Renewals:
    """Renews what a loop does not: at once where rows are free, in a thread that stands in the line where not."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._locked: list[HeldJob] = []
        self._stopped = Event()
        self._line: Thread | None = None

    def renew(self, engine: Engine, jobs: list[HeldJob]) -> None:
        """Renew the leases of jobs; wait for no row."""
        with engine.transaction():
            _, self._locked = engine.renew_unlocked(jobs, engine.now())
        if self._locked and not self._stopped.is_set() and not (self._line and self._line.is_alive()):
            self._line = Thread(target=self._stand_in_line, name="vtworker-line", daemon=True)
            self._line.start()

    def stop(self) -> None:
        """Wait for no other row than the present one."""
        self._stopped.set()

    def _stand_in_line(self) -> None:
        """Wait for the locked rows by turns, and when one is free renew all that are.

        To stand in the line is what helps against transactions that lock a row one after the other, and never leave it
        free. While it waits it holds no other row, so it can be a part of no deadlock.
        """
        engine = new_engine(self.alias, traced=False)
        turns = count()
        with suppress(Exception), engine.without_lock_waits(pooled=False):  # the next renewal begins anew
            while (locked := self._locked) and not self._stopped.is_set():
                shortest = min(job.lease_us for job in locked) / SECOND
                try:
                    with engine.transaction():
                        engine.wait_in_line(locked[next(turns) % len(locked)], shortest / min(len(locked), 3))
                        if self._stopped.is_set():
                            return
                        _, left = engine.renew_unlocked(locked, engine.now())
                except OperationalError as error:
                    if engine.trouble(error) is not Trouble.BUSY:
                        return
                else:
                    if self._locked is locked:  # else there are others by now
                        self._locked = left


class RenewalThread:
    """A thread that renews the leases of a worker whose loop is late; it is connected only then.

    ``tell_end``: tells the supervisor when the time of the next job is up, which a loop that waits for a lock does not.
    """

    def __init__(self, alias: str, leases: Leases, tell_end: Callable[[], None]) -> None:
        self.alias, self.leases, self.tell_end = alias, leases, tell_end
        self._renewals = Renewals(alias)
        self._stopped = Event()
        self._renewed_at = self._not_before = 0.0  # monotonic
        self._failures = 0

    def start(self) -> None:
        """Begin to look after the leases."""
        Thread(target=self._run, name="vtworker-renewals", daemon=True).start()

    def stop(self) -> None:
        """End the thread soon; it is not waited for."""
        self._stopped.set()
        self._renewals.stop()

    @logging_aside()
    def _run(self) -> None:
        engine = new_engine(self.alias, traced=False)
        with engine.without_lock_waits(pooled=False):
            while not self._stopped.wait(LOOK):
                self.tell_end()
                if not self.late():
                    self._failures = 0
                    engine.disconnect()
                elif jobs := self.due():
                    self._renew(engine, jobs)

    def late(self) -> bool:
        """Return whether the loop is late: not by so much that it hangs, for then others shall have its jobs."""
        late = time.monotonic() - self.leases.renew_by
        return late < HANGS and (late >= 0 or self.leases.locked)

    def due(self) -> list[HeldJob]:
        """Return the jobs whose leases are to be renewed now: all of them, when it is time for the shortest lease."""
        now, jobs = time.monotonic(), self.leases.renewable()
        shortest = min((job.lease_us / SECOND for job in jobs), default=0.0)
        return jobs if now >= max(self._renewed_at + shortest * RENEWED_AFTER, self._not_before) else []

    def _renew(self, engine: Engine, jobs: list[HeldJob]) -> None:
        began = time.monotonic()
        try:
            self._renewals.renew(engine, jobs)
            self._renewed_at, self._failures = began, 0
        except Exception as error:
            engine.disconnect()
            self._failures += 1
            shortest = min(job.lease_us / SECOND for job in jobs)
            self._not_before = time.monotonic() + trouble_pause(self._failures, shortest)
            if self._failures == 1:
                said = " ".join(str(error).split())
                logger.warning("the control loop waits, and its leases could not be renewed meanwhile (%s)", said)
