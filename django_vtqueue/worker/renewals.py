"""Renewals beside a control loop: no lease ends because a lock keeps the loop waiting.

On PostgreSQL a transaction of the project may lock the row of one job, or a limit, for any time, and the loop has to
wait for it. Its other jobs have nothing to do with that.
"""

import logging
import random
import time
from contextlib import suppress
from threading import Event, Thread

from django.db import OperationalError

from ..core.backoff import trouble_pause
from ..core.clock import SECOND
from ..core.grace import RENEWED_AFTER
from ..core.job import HeldJob
from ..engines import Engine, new_engine
from .leases import Leases

logger = logging.getLogger("django_vtqueue")

LOOK = 0.2  # seconds between two looks at what is due
HANGS = 3600.0  # seconds; no lock that anybody wants lasts for so long


class Renewals:
    """Renews what a loop does not: at once where rows are free, in a thread that stands in the line where not."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._locked: list[HeldJob] = []
        self._line: Thread | None = None

    def renew(self, engine: Engine, jobs: list[HeldJob]) -> None:
        """Renew the leases of jobs; wait for no row."""
        with engine.transaction():
            _, self._locked = engine.renew_unlocked(jobs, engine.now())
        if self._locked and not (self._line and self._line.is_alive()):
            self._line = Thread(target=self._stand_in_line, name="vtworker-line", daemon=True)
            self._line.start()

    def stop(self) -> None:
        """Wait for no other row than the present one."""
        self._locked = []

    def _stand_in_line(self) -> None:
        """Wait for one locked row after the other, for a lease at the most; then renew all that are free by now.

        To stand in the line is what helps against transactions that lock a row one after the other, and never leave it
        free. While it waits it holds no lock itself, so that nobody can wait for it.
        """
        engine = new_engine(self.alias, traced=False)
        with suppress(Exception), engine.without_lock_waits(pooled=False):  # the next renewal begins anew
            while locked := self._locked:
                job = random.choice(locked)
                with suppress(OperationalError):
                    engine.renew_in_line(job, engine.now(), job.lease_us / SECOND)
                with engine.transaction():
                    _, self._locked = engine.renew_unlocked(locked, engine.now())


class RenewalThread:
    """A thread that renews the leases of a worker whose loop is late; it is connected only then."""

    def __init__(self, alias: str, leases: Leases) -> None:
        self.alias, self.leases = alias, leases
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

    def _run(self) -> None:
        engine = new_engine(self.alias, traced=False)
        with engine.without_lock_waits(pooled=False):
            while not self._stopped.wait(LOOK):
                if not self.late():
                    engine.disconnect()
                elif jobs := self.due():
                    self._renew(engine, jobs)

    def late(self) -> bool:
        """Return whether the loop is late: not by so much that it hangs, for then others shall have its jobs."""
        return 0 <= time.monotonic() - self.leases.renew_by < HANGS

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
            self._not_before = time.monotonic() + trouble_pause(self._failures)
            if self._failures == 1:
                said = " ".join(str(error).split())
                logger.warning("the control loop waits, and its leases could not be renewed meanwhile (%s)", said)
