"""The threads that run jobs, and the one that announces their outcomes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Condition
from typing import TypeVar

from django.db import connections

from ..backend import VTQueueBackend
from ..core.async_code import end_code
from ..core.forks import ForksEnd
from ..core.job import ClaimKey, HeldJob
from ..core.settlement import Settlement
from ..core.timeouts import raise_in
from ..exceptions import Indescribable, TaskTimeout
from ..execution.connections import close_leftovers
from ..execution.execute import Execution, build_backends, execute
from ..execution.outcomes import Outcome, announce, burial
from ..execution.time_limits import Notify, ignore
from .log import WorkerLog

logger = logging.getLogger("django_vtqueue")

T = TypeVar("T")
News = Callable[[], None]


class ThreadRefused(Exception):
    """The system starts no further thread; the text says how many there are, and what to do."""


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
        self._running: dict[ClaimKey, int] = {}  # which thread
        self._asked_to_end: set[ClaimKey] = set()
        self._lock = threading.Lock()
        self._waiting = WaitingJobs(size)
        self._news: SimpleQueue[News | None] = SimpleQueue()  # a slow receiver of a signal must keep no job waiting
        names = [f"vtworker-{number}" for number in range(1, size + 1)]
        self._threads = [self._thread(name, self._waiting.take, self._execute) for name in names]
        self._announcer = self._thread("vtworker-announcer", self._news.get, lambda tell: tell())

    def start(self) -> None:
        """Start the threads; raise ThreadRefused if the system does not start all of them."""
        for started, thread in enumerate((self._announcer, *self._threads)):
            try:
                thread.start()
            except RuntimeError as error:
                raise ThreadRefused(
                    f"The system has started {max(started - 1, 0)} of {self.slots} threads, and refuses the next one "
                    f"({error}). Give fewer --threads (or OPTIONS['threads']) or --processes, or raise its limit: of "
                    "processes and threads (ulimit -u, pids.max of a container), or of memory."
                ) from None

    def run(self, jobs: Sequence[HeldJob]) -> None:
        """Have jobs run; their outcomes go to ``finished``."""
        self._waiting.put(jobs)

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
            if thread := self._running.get(job.key):
                self._asked_to_end.add(job.key)
                end_code(thread)

    def waiting(self) -> int:
        """Return how many jobs no thread has taken yet."""
        return len(self._waiting)

    def recall(self) -> list[HeldJob]:
        """Take back the jobs that no thread has taken yet."""
        return self._waiting.recall()

    def announce(self, outcomes: Sequence[Outcome]) -> None:
        """Have stored outcomes announced: by the log line and the signal."""
        self._news.put(lambda: self._announce(outcomes))

    def announce_burial(self, settlement: Settlement) -> None:
        """Announce the dead letter of a job that did not end by itself: its lease ended, or it was cancelled, say."""
        self._news.put(lambda: self._announce([burial(settlement, self.backend)]))

    def stop(self, seconds: float) -> None:
        """Let the threads finish what they were given, and end; wait for them for ``seconds`` at the most."""
        deadline = time.monotonic() + seconds
        self._waiting.close()
        for thread in filter(threading.Thread.is_alive, self._threads):  # not those that have never been started
            thread.join(max(deadline - time.monotonic(), 0))
        self._news.put(None)
        if self._announcer.is_alive():
            self._announcer.join(max(deadline - time.monotonic(), 0))
        if seconds and self._announcer.is_alive() and (left := self._news.qsize()):
            logger.warning(
                "the receivers of task_finished were too slow: the results of %d turns were not announced", left
            )

    def _execute(self, job: HeldJob) -> None:
        self.begin(job)
        outcome, key = None, job.key
        try:
            with self._lock:
                self._running[key] = threading.get_ident()
            outcome = execute(job, self.backend, tell=self.tell)
            self._ended(key)
        except TaskTimeout as error:  # raised after the end of the task; it is raised only once
            self._ended(key)
            outcome = outcome or Execution(job, self.backend).outcome_of(error)
        except BaseException:
            self._ended(key)
            outcome = Execution(job, self.backend).outcome_of(
                Indescribable("The worker failed around this attempt; the task did not.")
            )
        self.finished(outcome)

    def _ended(self, key: ClaimKey) -> None:
        with self._lock:
            self._running.pop(key, None)
            if key in self._asked_to_end:
                self._asked_to_end.remove(key)
                raise_in(threading.get_ident(), None)

    def _announce(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self.log.outcome(outcome)
            if announce(outcome, self.backend):
                close_leftovers(inline=False)

    def _thread(self, name: str, take: Callable[[], T | None], do: Callable[[T], None]) -> threading.Thread:
        return threading.Thread(target=self._work, args=(take, do), name=name, daemon=True)

    def _work(self, take: Callable[[], T | None], do: Callable[[T], None]) -> None:
        try:
            build_backends()
            while item := take():
                try:
                    with ForksEnd():  # one of a receiver, say; a task has a block of its own
                        do(item)
                except BaseException:  # a mistake of ours: jobs end as outcomes
                    logger.exception("a worker thread met an error and goes on")
                del item  # it may be large, and the next one may be long in coming
        finally:
            connections.close_all()


# -- the jobs that wait for a thread -----------------------------------------------------------------------------------
#
# Threads that compute take the interpreter from each other, and from the control loop: one thread finishes brief jobs
# sooner than four threads (by a tenth, measured). So while many brief jobs wait, one thread takes them all and a second
# thread watches; it calls the others as soon as a job is not brief.

MANY = 50  # jobs, from which one thread goes at them alone
JUDGED_AFTER = 0.01  # seconds for which it does so before it is judged, again and again
BRIEF = 50  # jobs that it must have begun meanwhile
AGAIN = 1.0  # seconds for which all threads run jobs after that


class WaitingJobs:
    """Jobs for a number of threads, which call ``take`` again and again."""

    def __init__(self, threads: int) -> None:
        self._jobs: deque[HeldJob] = deque()
        self._changed = Condition()
        self._threads = self._wanted = threads  # how many there are, and how many are to run jobs
        self._active = threads  # how many run jobs, or have not come yet
        self._begun = 0  # jobs
        self._watched = False
        self._judge_at, self._enough = 0.0, 0  # until when (monotonic) so many are to be begun
        self._alone_at = 0.0  # monotonic: from when on one thread may run them alone
        self._closed = False

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, jobs: Sequence[HeldJob]) -> None:
        """Add jobs, and wake the threads that are to run them, or to watch."""
        with self._changed:
            if not self._jobs:
                self._begin_to_judge()
            self._jobs.extend(jobs)
            alone = len(self._jobs) >= MANY and time.monotonic() >= self._alone_at
            self._wanted = 1 if alone else self._threads
            self._changed.notify(min(len(self._jobs), self._wanted + 1))

    def take(self) -> HeldJob | None:
        """Wait for a job, and return it; None if there will be none any more."""
        while True:
            if self._active <= self._wanted:
                try:
                    job = self._jobs.popleft()
                    self._begun += 1
                    return job
                except IndexError:
                    pass
            with self._changed:
                if self._jobs and self._active <= self._wanted:
                    continue
                if self._closed and not self._jobs:
                    return None
                self._active -= 1
                if self._jobs and not self._watched:
                    self._watch()
                else:
                    self._changed.wait()
                self._active += 1

    def _begin_to_judge(self) -> None:
        self._judge_at, self._enough = time.monotonic() + JUDGED_AFTER, self._begun + BRIEF

    def _watch(self) -> None:
        """Have all threads run jobs if the one that runs them alone does not finish brief jobs."""
        self._watched = True
        self._begin_to_judge()
        while self._jobs and self._wanted == 1 and (left := self._judge_at - time.monotonic()) > 0:
            self._changed.wait(left)
        self._watched = False
        if self._jobs and self._wanted == 1 and self._begun < self._enough:
            self._wanted, self._alone_at = self._threads, time.monotonic() + AGAIN
            self._changed.notify_all()

    def recall(self) -> list[HeldJob]:
        """Take back the jobs that no thread has taken."""
        jobs = []
        with suppress(IndexError):
            while True:  # one by one: threads go on taking them
                jobs.append(self._jobs.popleft())
        return jobs

    def close(self) -> None:
        """Let the threads take what is left, and no more."""
        with self._changed:
            self._closed, self._alone_at, self._wanted = True, float("inf"), self._threads
            self._changed.notify_all()
