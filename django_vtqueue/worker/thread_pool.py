"""The threads that run jobs, and the one that announces their outcomes."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial

from django.db import connections

from ..backend import VTQueueBackend
from ..core.job import HeldJob
from ..core.settlement import Settlement
from ..exceptions import Indescribable, TaskTimeout
from ..execution.after_failure import outcome_after
from ..execution.attempt import Attempt
from ..execution.connections import close_leftovers
from ..execution.execute import execute
from ..execution.outcomes import Outcome, announce, burial, has_receivers
from ..execution.time_limits import Notify, ignore
from ..queue.back_pressure import publishes_as_a_job
from ..runtime.aside import Call, Caller, log_writer, logging_aside
from ..runtime.async_code import end_code
from ..runtime.forks import ForksEnd
from ..runtime.timeouts import take_back
from ..tasks.compat import task_backends
from .dispatcher import Dispatcher
from .log import WorkerLog
from .process import CannotRun

logger = logging.getLogger("django_vtqueue")

MOST_CALLS = 1000  # of receivers that wait; if there are more, nothing more is claimed
ROOM = 1.0  # seconds for which a job, or an announcement, waits for room in the log


class Pool:
    """``size`` threads that run jobs, and one that announces.

    ``finished`` is given each outcome, ``tell`` what changes the time that a job may take: see execute.
    """

    def __init__(
        self,
        size: int,
        backend: VTQueueBackend,
        log: WorkerLog,
        finished: Callable[[Outcome], None],
        tell: Notify = ignore,
    ) -> None:
        self.slots, self.backend, self.log, self.finished, self.tell = size, backend, log, finished, tell
        self._running: dict[str, int] = {}  # which thread, by the job's id
        self._asked_to_end: set[str] = set()
        self._lock = threading.Lock()
        self._dispatcher = Dispatcher(size)
        names = [f"vtworker-{number}" for number in range(1, size + 1)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        self._announcer, self._context = Caller("vtworker-announcer"), Context()

    def start(self) -> None:
        """Start the threads; raise CannotRun if the system does not start all of them."""
        self._announcer.put(partial(self._context.run, build_backends))
        for started, start in enumerate((self._announcer.start, *(thread.start for thread in self._threads))):
            try:
                start()
            except RuntimeError as error:
                raise CannotRun(
                    f"The system has started {max(started - 1, 0)} of {self.slots} threads, and refuses the next one "
                    f"({error}). Give fewer --threads (or OPTIONS['threads']) or --processes, or raise its limit: of "
                    "processes and threads (ulimit -u, pids.max of a container), or of memory."
                ) from None

    def run(self, jobs: Sequence[HeldJob]) -> None:
        """Have jobs run; their outcomes go to ``finished``."""
        self._dispatcher.put(jobs)

    def begin(self, job: HeldJob) -> None:
        """Note that the code of a job starts, if that is not noted yet; from any thread."""
        if not job.begun:
            now = self.backend.now()
            with self._lock:
                if not job.begun:
                    job.begin(now)

    def end(self, job: HeldJob) -> None:
        """End a job whose time is up: TaskTimeout is raised in it."""
        with self._lock:
            if thread := self._running.get(job.id):
                self._asked_to_end.add(job.id)
                end_code(thread)

    def undispatched(self) -> int:
        """Return how many jobs no thread has taken yet."""
        return len(self._dispatcher)

    def idle(self) -> bool:
        """Return whether no thread has a job, and none waits for one."""
        return self._dispatcher.idle(sum(not thread.is_alive() for thread in self._threads))

    def recall(self) -> list[HeldJob]:
        """Take back the jobs that no thread has taken yet."""
        return self._dispatcher.recall()

    def announce(self, outcomes: Sequence[Outcome]) -> None:
        """Have stored outcomes announced: by the log line and the signal."""
        told = [outcome for outcome in outcomes if has_receivers(outcome)]
        if len(told) < len(outcomes):
            others = [outcome for outcome in outcomes if not has_receivers(outcome)] if told else outcomes
            self._announcer.put(partial(self._log, others))
        for outcome in told:
            self._announcer.put(partial(self._announce, outcome))

    def announce_burial(self, settlement: Settlement) -> None:
        """Announce the dead letter of a job that did not end by itself: its lease ended, or it was cancelled, say."""
        self._announcer.put(lambda: self.announce([burial(settlement, self.backend)]))

    def call(self, tell: Call) -> None:
        """Have receivers of a signal called by the announcing thread, as what a running job would call."""
        self._announcer.put(partial(self._call, publishes_as_a_job(tell)))

    def announces_late(self) -> bool:
        """Return whether so many receivers wait to be called that no more jobs are to be claimed."""
        return self._announcer.waiting() > MOST_CALLS

    def stop(self, seconds: float) -> None:
        """Let the threads finish what they were given, and end; wait for them for at most ``seconds``."""
        deadline = time.monotonic() + seconds
        self._dispatcher.close()
        for thread in filter(threading.Thread.is_alive, self._threads):  # not those that have never been started
            thread.join(max(deadline - time.monotonic(), 0))
        told = self._announcer.finish(max(deadline - time.monotonic(), 0))
        if seconds and not told:
            left = self._announcer.waiting() - 1  # what tells that all are made waits, too
            logger.warning("the receivers of signals were too slow: %d announcements were not made", left)
        self._announcer.put(connections.close_all)
        self._announcer.end()

    def _execute(self, job: HeldJob) -> None:
        self.begin(job)
        outcome, job_id = None, job.id
        try:
            with self._lock:
                self._running[job_id] = threading.get_ident()
            outcome = execute(job, self.backend, tell=self.tell)
            self._ended(job_id)
        except TaskTimeout as error:  # raised after the end of the task; it is raised only once
            self._ended(job_id)
            outcome = outcome or outcome_after(Attempt(job, self.backend), error)
        except BaseException:
            self._ended(job_id)
            failed = Indescribable("The worker failed around this attempt; the task did not.")
            outcome = outcome_after(Attempt(job, self.backend), failed)
        self.finished(outcome)

    def _ended(self, job_id: str) -> None:
        with self._lock:
            self._running.pop(job_id, None)
            if job_id in self._asked_to_end:
                self._asked_to_end.remove(job_id)
                take_back()

    def _log(self, outcomes: Sequence[Outcome]) -> None:
        log_writer.await_room(len(outcomes), ROOM)
        for outcome in outcomes:
            self.log.outcome(outcome)

    def _announce(self, outcome: Outcome) -> None:
        self._log([outcome])
        self._call(partial(announce, outcome, self.backend))

    def _call(self, tell: Call) -> None:
        close_leftovers(inline=False)  # since the last call the server may have been restarted
        try:
            self._context.copy().run(tell)
        finally:
            close_leftovers(inline=False)

    @logging_aside(ROOM)
    def _work(self) -> None:
        try:
            context = Context()  # not the thread's: into that others have put what all jobs would share
            context.run(build_backends)  # once: in its own copy each job would build them anew
            while job := self._dispatcher.take():
                try:
                    with ForksEnd():  # one of a receiver, say; a task has a block of its own
                        context.copy().run(self._execute, job)
                except BaseException:  # a mistake of ours: jobs end as outcomes
                    logger.exception("a worker thread met an error and goes on")
                del job  # it may be large, and the next one may be long in coming
        finally:
            connections.close_all()


def build_backends() -> None:
    """Build the backend of each entry of ``TASKS``; the checks tell of one that cannot be built."""
    for alias in task_backends:
        with suppress(Exception):
            task_backends[alias]
