"""Renewals beside the control loop: a worker's leases do not end while a lock keeps its loop waiting.

On PostgreSQL a transaction of the project may lock the row of one job, or a limit, for any time, and the loop has to
wait for it. Its other jobs have nothing to do with that.
"""

import logging
import random
import time
from contextlib import suppress
from threading import Event, Thread

from django.db import OperationalError

from ..backend import VTQueueBackend
from ..core.clock import SECOND
from ..core.grace import RENEWED_AFTER
from ..engines import Engine, new_engine
from .leases import Leases

logger = logging.getLogger("django_vtqueue")

LOOK, RARE_LOOK = 0.1, 1.0  # seconds between two looks at what is due, at least and at the most
IN_LINE = 1 / 6  # of the shortest lease: so long it waits for locked rows, before it renews the others again
HANGS = 3600.0  # seconds; no lock that anybody wants lasts for so long
AGAIN = 1 / 12  # of that lease, if rows were locked: so long it is not in the line


class RenewalThread:
    """A thread that renews the leases of a worker whose loop has not done so; it connects only then."""

    def __init__(self, backend: VTQueueBackend, worker_id: str, leases: Leases) -> None:
        self.backend, self.worker_id, self.leases = backend, worker_id, leases
        self._stopped = Event()
        self._not_before = 0.0  # monotonic
        self._said = False

    def start(self) -> None:
        """Begin to look after the leases."""
        Thread(target=self._run, name="vtworker-renewals", daemon=True).start()

    def stop(self) -> None:
        """End the thread soon; it is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        engine = new_engine(self.backend.database, traced=False)
        with engine.without_lock_waits():
            while not self._stopped.wait(min(max(self.leases.renew_by - time.monotonic(), LOOK), RARE_LOOK)):
                if self.due():
                    self._renew(engine)

    def due(self) -> bool:
        """Return whether the loop is late: not by so much that it hangs, for then others shall have its jobs."""
        now = time.monotonic()
        return now >= self._not_before and 0 <= now - self.leases.renew_by < HANGS

    def _renew(self, engine: Engine) -> None:
        try:
            self._not_before = time.monotonic() + renew_held_by(engine, self.backend, self.worker_id, in_line=IN_LINE)
        except Exception as error:
            if engine.trouble(error) is None and not self._said:
                self._said = True
                logger.warning("renewals beside the control loop failed; they go on", exc_info=error)
        finally:
            engine.disconnect()


def renew_held_by(engine: Engine, backend: VTQueueBackend, worker_id: str, *, in_line: float = 0.0) -> float:
    """Renew the leases of a worker that does not do so itself; return the seconds until the next time.

    Rows that others have locked are waited for one by one, for ``in_line`` of the shortest lease in all. To stand in
    the line is what helps against transactions that lock a row one after the other, and never leave it free.
    """
    policy = backend.settings.policy
    jobs = [job for job in engine.held_by(worker_id) if policy(job.queue_name).renews(job.copies)]
    if not jobs:
        return 1.0
    shortest = min(job.lease_us for job in jobs) / SECOND
    with engine.transaction():
        _, locked = engine.renew_unlocked(jobs, engine.now())
    until = time.monotonic() + in_line * shortest
    random.shuffle(locked)
    for job in locked:
        if (left := until - time.monotonic()) > 0:
            with suppress(OperationalError):
                engine.renew_in_line(job, engine.now(), left)
    return shortest * (AGAIN if locked else RENEWED_AFTER)
