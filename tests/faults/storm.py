"""Workers of which one is killed every half second, and replaced."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

from django_vtqueue import clock

from ..processes.conftest import Start
from ..processes.running import READY, Running

INTERVAL = 0.5  # seconds between two kills
PROGRESS = 50  # jobs
THREADS = ("--threads", "4")
PROCESSES = ("--processes", "2", "--threads", "2")
FLEET = (THREADS, PROCESSES, THREADS, PROCESSES)


class Storm:
    """Four workers, two with children, for ``jobs`` jobs; each kill is noted with its moment (microseconds)."""

    def __init__(self, start_worker: Start, jobs: int, seed: int = 1) -> None:
        self._start_worker = start_worker
        self._random = random.Random(seed)
        self.kills: dict[int, int] = {}
        self.workers = [self._start(arguments) for arguments in FLEET]
        self._kill_at, self._unfinished = time.monotonic(), jobs

    def _start(self, arguments: tuple[str, ...]) -> Running:
        return self._start_worker(*arguments, ready=False)

    def blow(self, unfinished: int) -> None:
        """Kill a random worker, or a child of one, if it is time; replace who has died.

        Between two kills some jobs are finished: workers that start slowly must not all be killed before they work.
        """
        if time.monotonic() < self._kill_at or unfinished > self._unfinished - PROGRESS:
            return
        ready = [worker.pid for worker in self.workers if READY.search(worker.log)]
        if not ready:
            return
        self.kill(self._random.choice([*ready, *(child for pid in ready for child in children(pid))]))
        for number, worker in enumerate(self.workers):
            if worker.ended():
                self.workers[number] = self._start(FLEET[number])
        self._kill_at, self._unfinished = time.monotonic() + INTERVAL, unfinished

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):  # a child whose worker has just been killed
            os.kill(pid, signal.SIGKILL)
        self.kills[pid] = clock.now()
        for worker in self.workers:
            if worker.pid == pid:
                worker.wait()

    def calm(self) -> None:
        """Stop the workers in good order."""
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
        for worker in self.workers:
            assert worker.wait() in (0, -signal.SIGTERM), worker.log  # one that has not begun yet dies of it


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    with suppress(OSError):
        return [
            int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()
        ]
    return []
