"""Everything that may happen to workers, in a random order: kills, restarts, pauses, and a database that is locked."""

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress

from ..processes.conftest import Start
from ..processes.database import Database
from ..processes.running import READY, Running
from .storm import PROCESSES, THREADS, children

LONGEST_LOCK = 3.0  # seconds
LONGEST_STOP = 4.0  # seconds: longer than a lease
BETWEEN = (0.3, 1.5)  # seconds between two faults
RECYCLED = (*PROCESSES, "--max-jobs-per-process", "500")


class Weather:
    """Two workers that live for ever (``lasting``), though not their children, and two that are killed and replaced."""

    def __init__(self, database: Database, start_worker: Start, seed: int = 1) -> None:
        self._database, self._start_worker = database, start_worker
        self._random = random.Random(seed)
        self.lasting = [self._start(THREADS), self._start(RECYCLED)]
        self.others = [self._start(THREADS), self._start(RECYCLED)]
        self.faults: Counter[str] = Counter()
        self.ended: list[Running] = []
        self._at = time.monotonic()
        self._stopped: dict[int, float] = {}  # which process goes on when
        self._lock: threading.Thread | None = None

    def _start(self, arguments: tuple[str, ...]) -> Running:
        return self._start_worker(*arguments, ready=False)

    def change(self) -> None:
        """Do what is to be done now: end a pause, replace who has ended, and, if it is time, cause another fault."""
        now = time.monotonic()
        for pid in [pid for pid, until in self._stopped.items() if until <= now]:
            self._resume(pid)
        for number, worker in enumerate(self.others):
            if worker.ended():
                self.ended.append(worker)
                self.others[number] = self._start((THREADS, RECYCLED)[number])
        if now >= self._at:
            self._random.choice([self.kill, self.kill_child, self.restart, self.stop, self.lock])()
            self._at = now + self._random.uniform(*BETWEEN)

    def kill(self) -> None:
        self._signal(self._ready(self.others), signal.SIGKILL, "kill")

    def kill_child(self) -> None:
        workers = self._ready(self.lasting + self.others)
        self._signal([child for pid in workers for child in children(pid)], signal.SIGKILL, "kill of a child")

    def restart(self) -> None:
        self._signal(self._ready(self.others), signal.SIGTERM, "restart")

    def stop(self) -> None:
        workers = self._ready(self.lasting + self.others)
        pid = self._signal(workers + [child for pid in workers for child in children(pid)], signal.SIGSTOP, "stop")
        if pid:
            self._stopped[pid] = time.monotonic() + self._random.uniform(0.1, LONGEST_STOP)

    def lock(self) -> None:
        """Hold the write lock for a while, as a backup or a foreign program would."""
        if self._lock and self._lock.is_alive():
            return
        self._lock = threading.Thread(target=self._hold, args=(self._random.uniform(0.1, LONGEST_LOCK),))
        self._lock.start()
        self.faults["lock"] += 1

    def clear_up(self) -> None:
        """No more faults: those under way end."""
        for pid in list(self._stopped):
            self._resume(pid)
        if self._lock:
            self._lock.join()

    def calm(self) -> None:
        """Stop the workers in good order."""
        for worker in self.lasting + self.others:
            worker.signal(signal.SIGTERM)
        for worker in self.lasting + self.others:
            worker.wait()
            self.ended.append(worker)

    def _hold(self, seconds: float) -> None:
        with self._database.locked():
            time.sleep(seconds)

    def _ready(self, workers: list[Running]) -> list[int]:
        return [worker.pid for worker in workers if not worker.ended() and READY.search(worker.log)]

    def _signal(self, pids: list[int], number: int, name: str) -> int:
        """Send a signal to one of these processes, if there is any; return which."""
        if not pids:
            return 0
        pid = self._random.choice(pids)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            self.faults[name] += 1
        return pid

    def _resume(self, pid: int) -> None:
        del self._stopped[pid]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
