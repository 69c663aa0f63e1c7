"""When a worker leaves: it was told to, has nothing left to do (``--drain``), or is to be replaced."""

import logging
import time

from ..core.clock import NEVER
from . import systemd
from .heartbeat import resident
from .options import WorkerOptions
from .shared_state import Departure
from .turn import Turns

logger = logging.getLogger("django_vtqueue")


class Leaving:
    """Says when a worker leaves. ``stop_by`` (monotonic): then it does, whatever still runs."""

    def __init__(self, turns: Turns, options: WorkerOptions) -> None:
        self.turns, self.work, self.options = turns, turns.work, options
        self.stop_by = NEVER
        self.stops = 0  # how often it was told to stop
        self._outgrown = False  # it takes more memory than it may

    def told_to_stop(self) -> None:
        """Claim nothing more, and have the running jobs end within the time that they are given; twice: at once."""
        self.stops += 1
        running = [job for job in self.work.in_flight if job.begun]
        self.turns.stop()
        if self.stops == 1:
            self.work.log.stopping(running, self.options.shutdown_timeout)
        if self.options.owns_process:
            systemd.notify(systemd.STOPPING)
        if self.options.shutdown_timeout is not None:
            self.stop_by = min(self.stop_by, time.monotonic() + self.options.shutdown_timeout)

    def watch_memory(self) -> None:
        """Have a child leave, and be replaced, if it takes more than ``--max-memory``."""
        limit = self.options.max_memory if self.options.supervised else None
        if limit and resident() >= limit * 2**20:
            logger.warning("this worker takes more than %d MB, and is replaced (--max-memory)", limit)
            self._outgrown = True
            self.turns.stop()

    def done(self) -> bool:
        """Return whether there is nothing left to do, or no time left to do it."""
        if self.stops > 1 or time.monotonic() >= self.stop_by:
            return True
        if self.work.unfinished():
            return False
        if self.departure() is not Departure.NONE:
            return True
        return self.options.drain and not self.options.supervised and self.turns.drained(self.options.drain_retries)

    def departure(self) -> Departure:
        """Return whether this worker leaves, once its jobs have ended, and whether its supervisor is to replace it."""
        if self._outgrown or (self.options.max_jobs and self.work.jobs_started >= self.options.max_jobs):
            return Departure.REPLACED
        leaves = self.turns.stopping or (self.turns.quiet and self.options.drain)
        return Departure.FOR_GOOD if leaves else Departure.NONE
