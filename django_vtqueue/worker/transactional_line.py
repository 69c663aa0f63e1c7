"""Transactional jobs of a worker: their tasks hold the write lock, so one at a time has its turn.

The others wait here. They are held, but have not begun: they occupy no slot, use no attempt, and no time limit runs.
"""

import time
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

from ..backend import VTQueueBackend
from ..core.clock import NEVER
from ..core.job import HeldJob
from ..execution.time_limits import transaction_seconds

MOST_WAITING = 400  # jobs that wait here; the rest is left for other workers
MARGIN = 0.5  # seconds for the rollback of a transaction whose time is up


class TransactionalLine:
    """The transactional job that has its turn, and those that wait for theirs."""

    def __init__(self, backend: VTQueueBackend) -> None:
        self.backend = backend
        self._waiting: list[tuple[int, int, HeldJob]] = []  # a heap: by priority, then in the order of the claim
        self._numbers = count()
        self._running = ""  # its id
        # By task; one that is not loaded here says it itself, by TransactionWaits.
        self._transactional: dict[str, bool] = {}
        self._over_at = NEVER  # monotonic: when its transaction is over at the latest, whatever its code does

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether no more shall be claimed."""
        return len(self._waiting) >= MOST_WAITING

    def is_transactional(self, task_path: str) -> bool:
        """Return whether the jobs of a task have to wait for their turn."""
        if (known := self._transactional.get(task_path)) is None:
            known = bool(self.backend.task_options(task_path).get("transactional"))
            self._transactional[task_path] = known
        return known

    def add(self, jobs: Iterable[HeldJob]) -> None:
        """Have jobs wait for their turn, by priority and then in this order."""
        for job in jobs:
            heappush(self._waiting, (-job.priority, next(self._numbers), job))

    def may_take_next(self) -> bool:
        """Return whether a job waits, and the turn is free."""
        return time.monotonic() >= self.free_at()

    def next(self) -> HeldJob:
        """Return the job whose turn it is now."""
        *_, job = heappop(self._waiting)
        self._running, self._over_at = job.id, NEVER
        return job

    def note_transactional(self, job: HeldJob) -> None:
        """Note that a job is transactional, and so are all of its task."""
        self._transactional[job.task_path] = True

    def note_begun(self, job: HeldJob) -> None:
        """Note that the transaction of a job has begun."""
        if job.id == self._running:
            self._over_at = time.monotonic() + transaction_seconds(job, self.backend) + MARGIN

    def note_finished(self, job: HeldJob) -> None:
        """Note that a job has ended."""
        if job.id == self._running:
            self._running = ""

    def free_at(self) -> float:
        """Return when the turn is free at the latest (monotonic), if a job waits for it."""
        return NEVER if not self._waiting else self._over_at if self._running else 0.0

    def recall(self) -> list[HeldJob]:
        """Take back all that wait."""
        jobs, self._waiting = [job for *_, job in sorted(self._waiting)], []
        return jobs
