"""The supervisor of ``--processes N``: it starts N workers as child processes, replaces them, and ends them.

Each child is a whole worker, with its own claims, leases, doorbell and log lines. The supervisor runs no task. It does
what a worker cannot do for itself while a task keeps the interpreter: it renews its leases, and kills it when a job is
over its time limit (``hard_timeout``, ``max_runtime``). What a dead child held goes on as after the death of any
worker: another one settles it.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty
from typing import TypeVar

from ..backend import VTQueueBackend
from ..core import states
from ..core.backoff import trouble_pause
from ..core.clock import NEVER, SECOND, microseconds
from ..core.grace import RENEWED_AFTER
from ..core.ids import new_worker_id
from ..core.settlement import released_unfinished
from ..engines import new_engine
from ..exceptions import LogDeleted
from ..models import Job, WorkerProcess
from ..queue.doorbell import exists, folder_of, path_of, remove, ring_worker
from ..queue.origin import ORIGIN_CHANGED, record_origin
from ..queue.proof_of_death import declare_dead, mark_over_time
from ..queue.settling import settle
from ..runtime.signal_safe_queue import SignalSafeQueue
from .child_process import IDLE_LEAVING, ChildProcess
from .log import WorkerLog
from .options import WorkerOptions, scopes_of
from .outage import Outage, retry_before
from .process import STOPPING, WATCHDOG, CannotRun, end_within, notify_systemd, open_devnull
from .shared_state import Departure

logger = logging.getLogger("django_vtqueue")

T = TypeVar("T")

LOOK_AT_CHILDREN = 0.1  # seconds between two looks at the children
OVERTIME = 0.2  # seconds beyond a job's time limit after which its worker is killed: it may just be settling the job
ROUNDS_TRIED = 5  # of as many starts as processes, in which no child begins a job: a drain takes it that none can
LIVED = 5.0  # seconds: a child that ends sooner has probably not been able to start
LEAVING = 2.0  # seconds for a child to give its jobs back and end, once it is to leave at once
RELEASING = 5.0  # seconds for the release of what killed children held, should the database be locked


class Supervisor:
    """Runs ``options.processes`` workers until it is told to stop, or until they have nothing left to do."""

    left_running = False  # see Worker: the code of children has ended with them

    def __init__(self, backend: VTQueueBackend, options: WorkerOptions, log: WorkerLog) -> None:
        self.backend, self.options, self.log = backend, options, log
        self.id = new_worker_id()
        self.engine = new_engine(backend.database, traced=False)
        self.scopes = scopes_of(backend, options.queues)
        self._origin_recorded = self._logged = False  # it is written down where the jobs run; it met an error
        self._stop_calls: SignalSafeQueue[None] = SignalSafeQueue()
        self._asked = self._stops = 0  # how often it was told to stop, and has passed that on
        self._children: list[ChildProcess] = []
        self._wanted = options.processes
        self._unshared = options.max_jobs  # jobs that may be begun, and that no child has as its share
        self._start_at = 0.0  # monotonic: not before
        self._failures = 0  # starts in a row that were refused, and ends of children that had not lived for long
        self._in_vain = 0  # starts in a row that were refused, and deaths of children that had not begun a job
        self._kill_at = self._kill_idle_at = NEVER  # monotonic: when children that do not leave are killed
        self._dead: list[str] = []  # workers that may have left jobs
        self._killed: list[str] = []  # workers whose jobs are to be released, and their rows removed
        self._watchdog_at = 0.0  # monotonic

    def stop(self) -> None:
        """Ask for a graceful stop; from any thread, and from a signal handler. Twice: at once."""
        self._asked += 1
        seconds = 0 if self._asked > 1 else self.options.shutdown_timeout
        if seconds is not None:  # whatever hangs: the output, say
            end_within(seconds + LEAVING + RELEASING + 1)
        self._stop_calls.put(None)

    def run(self) -> None:
        """Keep the children running until all of them are to end, and have ended.

        Raise CannotRun at the end of a drain that leaves due jobs, since no child can start.
        """
        open_devnull()
        in_vain = 0
        with self.engine.without_lock_waits():
            while True:
                for child in list(self._children):
                    self.look_after(child)
                self.start_missing()
                self.log.count(sum(child.newly_ended() for child in self._children))
                if not self._children and (self._stops or not self._wanted or self._unshared == 0):
                    break
                if self.options.drain and not self._stops:
                    drained = self.drained()
                    in_vain = self._in_vain if drained is False and self.gives_up() else 0
                    if drained or in_vain:
                        self.pass_stop_on()
                self.wait()
            self.clean_up()
        if in_vain:
            raise CannotRun(
                f"{in_vain} child processes in a row could not be started, or ended before they began a job; "
                "their messages stand above. Jobs are due, and were not run."
            )

    def wait(self) -> None:
        """Wait a moment, or until it is told to stop."""
        if time.monotonic() >= self._watchdog_at:
            self._watchdog_at = time.monotonic() + 1
            notify_systemd(WATCHDOG)
            self.in_database(lambda: None)  # which looks at the file
        with suppress(Empty):
            self._stop_calls.get(LOOK_AT_CHILDREN)
            self.pass_stop_on()

    def pass_stop_on(self) -> None:
        """Have all children stop; those that do not leave in the time that they have are killed."""
        self._stops += 1
        for child in self._children:
            child.stop()
            if not child.worker_id:  # it does not listen yet
                child.dismissed = True
                child.kill()
        notify_systemd(STOPPING)
        now, seconds = time.monotonic(), 0 if self._stops > 1 else self.options.shutdown_timeout
        self._kill_idle_at = min(self._kill_idle_at, now + IDLE_LEAVING)
        if seconds is not None:
            self._kill_at = min(self._kill_at, now + seconds + LEAVING)

    # The life of a child

    def start_missing(self) -> None:
        """Start the children that are missing; after a growing pause, if they end as soon as they are started.

        One that is to be replaced still finishes its jobs; there are at most twice as many as wanted.
        """
        if not self._origin_recorded and not self.in_database(self.record_origin):
            return
        there = sum(child.state.departure != Departure.REPLACED for child in self._children)
        for missing in range(min(self._wanted - there, 2 * self._wanted - len(self._children)), 0, -1):
            if self._stops or self._unshared == 0 or time.monotonic() < self._start_at:
                return
            share = None if self._unshared is None else -(-self._unshared // missing)
            limits = [limit for limit in (share, self.options.max_jobs_per_process) if limit]
            options = replace(self.options, processes=1, supervised=True, max_jobs=min(limits, default=None))
            try:
                child = ChildProcess(self.backend, options, self.log)
            except OSError as error:  # no memory for another process, just now
                logger.warning("a process could not be started: %s", error)
                self._in_vain += missing
                self.postpone_start()
                return
            self._children.append(child)
            if self._unshared is not None:
                self._unshared -= child.share

    def record_origin(self) -> bool:
        """Store that the jobs are run here, before there are children: those run none of a copy from elsewhere."""
        with self.engine.transaction():
            left = record_origin(self.engine, self.engine.now())
        if left:
            logger.info(ORIGIN_CHANGED, left)
        self._origin_recorded = True
        return True

    def postpone_start(self) -> None:
        """Put the next start off, after one that has failed."""
        self._failures += 1
        self._start_at = time.monotonic() + trouble_pause(self._failures)

    def look_after(self, child: ChildProcess) -> None:
        """Notice the end of a child; kill it, or renew its leases, if that is due and the child does not do it."""
        now = time.monotonic()
        if child.ended():
            self.reap(child)
        elif now >= (self._kill_at if child.state.held else min(self._kill_at, self._kill_idle_at)):
            child.dismissed = True
            child.kill()
        elif now >= child.state.ends_at + OVERTIME:
            logger.warning("a job of process %d runs for too long; the process is killed", child.process.pid)
            child.over_time = True
            mark_over_time(self.bell_of(child.worker_id))  # before its death can be seen
            child.kill()
        elif now >= max(child.state.renew_by, child.renew_at):
            child.renew_at = now + (self.in_database(lambda: self.renew(child)) or 0.0)

    def renew(self, child: ChildProcess) -> float:
        """Renew the leases of a child that does not do so; return the seconds until the next time."""
        policy = self.backend.settings.policy
        jobs = [job for job in self.engine.held_by(child.worker_id) if policy(job.queue_name).renews(job.copies)]
        if jobs:
            child.renewals.renew(self.engine, jobs)
        return min((job.lease_us / SECOND * RENEWED_AFTER for job in jobs), default=1.0)

    def reap(self, child: ChildProcess) -> None:
        """Forget a child that has ended; if it did not do so by itself, have the others settle what it held."""
        self._children.remove(child)
        child.renewals.stop()
        state, code = child.state, child.process.returncode
        self.log.count(child.newly_ended())
        self.engine.longest_hold = max(self.engine.longest_hold, state.longest_hold)
        self._in_vain = 0 if state.started or state.has_left else self._in_vain + 1
        if self._unshared is not None:
            self._unshared += child.share - state.started
        if state.departure == Departure.FOR_GOOD:
            self._wanted -= 1
        elif child.over_time or (state.has_left and state.started) or time.monotonic() - child.began > LIVED:
            self._failures = 0
        else:
            self.postpone_start()
        if state.has_left:
            if exists(self.bell_of(child.worker_id)):  # it has left while code of released jobs ran
                self._killed.append(child.worker_id)
        elif child.dismissed:
            self._killed.append(child.worker_id)
        else:
            logger.warning("process %d ended with code %s", child.process.pid, code)
            self._dead.append(child.worker_id)
            declare_dead(self.bell_of(child.worker_id))
            for other in self._children:
                ring_worker(str(self.bell_of(other.worker_id)))

    def bell_of(self, worker_id: str) -> Path:
        """Return where the doorbell of a worker lies."""
        return path_of(self.engine.alias, folder_of(self.backend.settings.doorbells), worker_id)

    # The database

    def in_database(self, step: Callable[[], T]) -> T | None:
        """Return what a step in the database returns; None if it fails: the children say what is wrong with that."""
        try:
            self.engine.replaced()  # the step is to find the file that is there now
            return step()
        except LogDeleted:
            raise
        except Exception as error:
            if self.engine.trouble(error) is None and not self._logged:
                self._logged = True
                logger.warning("the supervisor met an error and goes on", exc_info=error)
            self.engine.disconnect()
            return None

    def gives_up(self) -> bool:
        """Return whether no child has started, and it seems that none can."""
        started = any(child.worker_id for child in self._children)
        return not started and self._in_vain >= ROUNDS_TRIED * self.options.processes

    def drained(self) -> bool | None:
        """Return whether all children have started, and neither they nor the dead hold a job, and nothing is due.

        If it seems that no child can start: whether nothing is due. None if the database does not say.
        """
        there = self._children and all(child.worker_id for child in self._children)
        if not (there or self.gives_up()):
            return False
        workers = [*self._dead, *(child.worker_id for child in self._children if child.worker_id)]
        jobs = Job.objects.using(self.engine.alias).filter(state=states.RUNNING, worker_id__in=workers)

        def nothing_left() -> bool:
            until = self.engine.now() + microseconds(self.options.drain_retries)
            first = self.backend.limits.earliest(self.engine, self.scopes)
            return (first is None or first > until) and not jobs.exists()

        def certainly() -> bool:
            with self.engine.transaction():  # between two reads a job may end that has published another one
                return nothing_left()

        return self.in_database(nothing_left) and self.in_database(certainly)

    def clean_up(self) -> None:
        """Release what the killed children held, and remove the rows of those that could not do it."""

        def step() -> None:
            now = self.engine.now()
            held = [job for worker_id in self._killed for job in self.engine.held_by(worker_id)]
            settle(self.engine, [released_unfinished(job, now, None) for job in held])
            rows = WorkerProcess.objects.using(self.engine.alias).filter(pk__in=self._killed)
            rows._raw_delete(self.engine.alias)

        if self._killed and retry_before(time.monotonic() + RELEASING, self.engine, step, Outage(self.engine)):
            for worker_id in self._killed:
                remove(str(self.bell_of(worker_id)))
