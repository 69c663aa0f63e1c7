"""The end of a worker: when it leaves, and how what still runs is released, so that nothing of it is left behind.

It leaves when it was told to, has nothing left to do (``--drain``), or is to be replaced.
"""

import faulthandler
import logging
import time
from collections.abc import Callable, Collection
from typing import NoReturn

from ..core.clock import NEVER, SECOND
from ..core.job import ClaimKey, HeldJob
from ..core.settlement import Settlement, released_unfinished
from ..execution.outcomes import Outcome
from ..queue.doorbell import remove
from ..queue.settling import settle
from .deaths import timed_out
from .options import WorkerOptions
from .outage import retry_before
from .process import STOPPING, end_within, exit_at_once, notify_systemd, resident
from .shared_state import Departure
from .turn import Turns

logger = logging.getLogger("django_vtqueue")

LAST_ANNOUNCEMENTS = 5.0  # seconds for the receivers of signals when everything has ended
HIDDEN_FOR = SECOND  # a job whose code may still be running, after its release
GONE_WITHIN = 0.7 * HIDDEN_FOR / SECOND  # seconds after the release of jobs whose code still runs
SIGNED_OFF_WITHIN = GONE_WITHIN / 2  # seconds for which the worker's row may be locked
LAST_WORDS = GONE_WITHIN / 4  # seconds for the log after that
LAST_COUNTS = 1.0  # seconds for the statistics, should the database be locked


class Shutdown:
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
            notify_systemd(STOPPING)
        if self.options.shutdown_timeout is not None:
            self.stop_by = min(self.stop_by, time.monotonic() + self.options.shutdown_timeout)

    def watch_memory(self) -> None:
        """Have a child leave, and be replaced, if it takes more than ``--max-memory``, and has started a job."""
        limit = self.options.max_memory if self.options.supervised else None
        recalled = self.work.pool.undispatched()  # if it leaves now
        if limit and self.work.has_started(recalled + 1) and resident() >= limit * 2**20:
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
        if self._outgrown or (self.options.max_jobs and self.work.has_started(self.options.max_jobs)):
            return Departure.REPLACED
        leaves = self.turns.stopping or (self.turns.quiet and self.options.drain)
        return Departure.FOR_GOOD if leaves else Departure.NONE


def end_jobs(turns: Turns, read_mail: Callable[[float], object], *, owns_process: bool) -> bool:
    """Release what still runs and end the threads; return whether code of such jobs may still run.

    Code may still run where it cannot be ended and the worker has the process for itself: the process must end before
    those jobs are visible again. In the process of a caller they go on, and are not released. ``read_mail``: see
    Worker; what has finished at the last moment is settled.
    """
    work, running = turns.work, False
    if work.in_flight and owns_process:
        end_within(turns.leases.shortest_lease(0) / 2)  # they were renewed a third of a lease ago at the most
        idle = {outcome.job.key for outcome in work.outcomes}
        for job in work.in_flight:
            if job.key not in idle:
                work.pool.begin(job)  # a thread may just have taken it
        work.recorder.flush()  # now: once they are released there is little time
        running = settle_at_last(turns, read_mail, release=True)
        if not running:
            faulthandler.cancel_dump_traceback_later()
    elif work.outcomes:
        settle_at_last(turns, read_mail, release=False)
    if not running:
        work.pool.stop(LAST_ANNOUNCEMENTS if owns_process or not work.in_flight else 0)
    work.log.close()
    work.recorder.flush(0 if running else LAST_COUNTS)
    return running


def settle_at_last(turns: Turns, read_mail: Callable[[float], object], *, release: bool) -> bool:
    """Settle what has finished; ``release`` the rest, and return whether code of that may still run.

    Then this process ends before it is visible, and the worker's row and doorbell are gone. A database that is locked
    is waited for, but not for longer than the leases last: then they end by themselves.
    """
    work = turns.work
    outcomes: list[Outcome] = []
    unfinished: list[Settlement] = []
    lost: set[ClaimKey] = set()
    deadline = time.monotonic() + turns.leases.shortest_lease(0) / 3

    def step() -> None:
        # As of now: it may have taken long to get the lock.
        read_mail(0)
        outcomes[:] = work.outcomes
        unfinished[:] = endings(turns, {outcome.job.key for outcome in outcomes}) if release else []
        lost.clear()
        lost.update(settle(turns.engine, [*(outcome.settlement for outcome in outcomes), *unfinished]))
        if unfinished:
            end_within(GONE_WITHIN)  # before the commit: nothing may keep this process after it

    if not retry_before(deadline, turns.engine, step, turns.outage):
        return True  # the doorbell, left behind, proves that the process has ended
    if unfinished and turns.heartbeat.sign_off(SIGNED_OFF_WITHIN):
        remove(turns.heartbeat.worker.doorbell)  # before anything is written, which may block
    if given_back := [ending for ending in unfinished if ending.job.key not in lost]:
        work.log.released(given_back)
        work.recorder.count_endings(given_back)
    work.after_commit(outcomes, lost)
    return bool(unfinished)


def exit_after_release() -> NoReturn:
    """End this process, in which code of released jobs still runs, before those are visible again."""
    exit_at_once(0, LAST_WORDS)


def endings(turns: Turns, finished: Collection[ClaimKey]) -> list[Settlement]:
    """Return the settlements of the jobs in flight that have not finished: they are released.

    Their code may still run, so they are hidden for a second; the process must have ended before that. A job that was
    told to end and did not has timed out.
    """
    in_flight, now = turns.work.in_flight, turns.engine.now()

    def ending(job: HeldJob) -> Settlement:
        if in_flight.asked_to_end(job.key):
            return timed_out(turns.work.backend, job, now)
        return released_unfinished(job, now, now + HIDDEN_FOR)

    return [ending(job) for job in in_flight if job.key not in finished]
