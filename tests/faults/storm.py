"""Workers of which one is killed every half second, and replaced."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from django_vtqueue.core import clock

from ..processes.conftest import Start
from ..processes.running import READY, Running

INTERVAL = 0.5  # seconds between two kills
PROGRESS = 50  # jobs
THREADS = ("--threads", "4")
PROCESSES = ("--processes", "2", "--threads", "2")
FLEET = (THREADS, PROCESSES, THREADS, PROCESSES)


class Kill(NamedTuple):
    """A worker was killed, or a child of it, between two moments (microseconds)."""

    worker: int
    before: int
    after: int


class Storm:
    """Four workers, two of which have children, for ``jobs`` jobs."""

    def __init__(self, start_worker: Start, jobs: int, seed: int = 1) -> None:
        self._start_worker = start_worker
        self._random = random.Random(seed)
        self.kills: list[Kill] = []
        self.workers = [self._start(arguments) for arguments in FLEET]
        self.ended: list[Running] = []
        self._kill_at, self._unfinished = time.monotonic(), jobs

    def _start(self, arguments: tuple[str, ...]) -> Running:
        return self._start_worker(*arguments, ready=False)

    def blow(self, unfinished: int, holders: Callable[[], set[int]]) -> None:
        """Kill a random worker that holds jobs, or a child of one, if it is time; replace who has died.

        ``holders``: tells the pids of those that do; if there are none, any worker is killed. Between two kills some
        jobs are finished: workers that start slowly must not all be killed before they work.
        """
        if time.monotonic() < self._kill_at or unfinished > self._unfinished - PROGRESS:
            return
        ready = [worker for worker in self.workers if READY.search(worker.log)]
        if not ready:
            return
        busy = holders()
        chosen = [worker for worker in ready if worker.pid in busy] or ready
        self.kill(
            *self._random.choice([(worker, pid) for worker in chosen for pid in (worker.pid, *children(worker.pid))])
        )
        for number, worker in enumerate(self.workers):
            if worker.ended():
                self.ended.append(worker)
                self.workers[number] = self._start(FLEET[number])
        self._kill_at, self._unfinished = time.monotonic() + INTERVAL, unfinished

    def kill(self, worker: Running, pid: int) -> None:
        """Kill a worker or its child."""
        before = clock.now()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.kills.append(Kill(worker.pid, before, clock.now()))
        if pid == worker.pid:
            worker.wait()

    def met(self, worker_id: str, claimed_at: int, ended_at: int) -> bool:
        """Return whether what a worker had claimed was in flight when it, or a child of it, was killed."""
        pid = int(worker_id.split(":")[1])
        return any(kill.worker == pid and claimed_at <= kill.after and kill.before <= ended_at for kill in self.kills)

    def calm(self) -> None:
        """Stop the workers in good order; none of them, nor of the others and their children, met an error."""
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
        for worker in self.workers:
            assert worker.wait() in (0, -signal.SIGTERM), worker.log  # one that has not begun yet dies of it
        assert [worker.log for worker in self.ended + self.workers if "Traceback" in worker.log] == []


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    with suppress(OSError):
        return [
            int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()
        ]
    return []
