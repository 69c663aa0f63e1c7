"""The jobs that wait for a thread, and how many threads go at them.

Threads that compute take the interpreter from each other, and from the control loop: brief jobs are finished sooner by
one thread than by four (by a tenth, measured). So where many jobs wait, one thread goes at them alone while another one
looks on, and calls the others as soon as jobs are not as brief as that.
"""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import Condition

from ..jobs import HeldJob

MANY = 50  # jobs, from which one thread goes at them alone
LOOK = 0.01  # seconds for which it does so before it is judged, again and again
BRIEF = 50  # jobs that it must have begun meanwhile
AGAIN = 1.0  # seconds for which all go at it, after it had not


class Stock:
    """Jobs for a number of threads, which call ``take`` again and again."""

    def __init__(self, threads: int) -> None:
        self._jobs: deque[HeldJob] = deque()
        self._changed = Condition()
        self._threads = self._most = threads  # how many there are, and how many may go at it
        self._going = threads  # how many do, or have not come yet
        self._begun = 0  # jobs
        self._looked_on = False
        self._judge_at, self._enough = 0.0, 0  # until when (monotonic) how many are to be begun
        self._alone_at = 0.0  # monotonic: when one may go at it alone
        self._closed = False

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, jobs: Sequence[HeldJob]) -> None:
        """Add jobs, and wake the threads that are to go at them, or to look on."""
        with self._changed:
            if not self._jobs:
                self._begin_to_look()
            self._jobs.extend(jobs)
            alone = len(self._jobs) >= MANY and time.monotonic() >= self._alone_at
            self._most = 1 if alone else self._threads
            self._changed.notify(min(len(self._jobs), self._most + 1))

    def take(self) -> HeldJob | None:
        """Wait for a job, and return it; None if there will be none any more."""
        while True:
            if self._going <= self._most:
                try:
                    job = self._jobs.popleft()
                    self._begun += 1
                    return job
                except IndexError:
                    pass
            with self._changed:
                if self._jobs and self._going <= self._most:
                    continue
                if self._closed and not self._jobs:
                    return None
                self._going -= 1
                if self._jobs and not self._looked_on:
                    self._look_on()
                else:
                    self._changed.wait()
                self._going += 1

    def _begin_to_look(self) -> None:
        self._judge_at, self._enough = time.monotonic() + LOOK, self._begun + BRIEF

    def _look_on(self) -> None:
        """Have all threads go at it if the one that does so alone does not finish brief jobs."""
        self._looked_on = True
        self._begin_to_look()
        while self._jobs and self._most == 1 and (left := self._judge_at - time.monotonic()) > 0:
            self._changed.wait(left)
        self._looked_on = False
        if self._jobs and self._most == 1 and self._begun < self._enough:
            self._most, self._alone_at = self._threads, time.monotonic() + AGAIN
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
            self._closed, self._alone_at, self._most = True, float("inf"), self._threads
            self._changed.notify_all()
