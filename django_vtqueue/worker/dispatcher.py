"""Gives claimed jobs to the threads of a worker: to all of them, or to one as long as the jobs are brief.

Threads that compute take the interpreter from each other, and from the control loop: one thread finishes brief jobs
sooner than four threads (by a tenth, measured). So while there are many brief jobs, one thread takes them all, and a
second one watches; it calls the rest as soon as a job is not brief.
"""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import Condition

from ..core.job import HeldJob

MANY = 50  # jobs, from which one thread goes at them alone
JUDGED_AFTER = 0.01  # seconds for which it does so before it is judged, again and again
BRIEF = 50  # jobs that it must have begun meanwhile
AGAIN = 1.0  # seconds for which all threads run jobs after that


class Dispatcher:
    """Claimed jobs that no thread has begun; a number of threads call ``take`` again and again."""

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

    def idle(self, ended: int) -> bool:
        """Return whether no thread has a job, and none is there; ``ended``: how many threads there are no more."""
        with self._changed:
            return not self._jobs and self._active <= ended

    def close(self) -> None:
        """Let the threads take what is left, and no more."""
        with self._changed:
            self._closed, self._alone_at, self._wanted = True, float("inf"), self._threads
            self._changed.notify_all()
