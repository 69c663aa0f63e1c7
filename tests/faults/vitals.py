"""How much the workers and the database of a mix use, from one look to the next."""

import os
import resource
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median

from ..processes.running import children
from .scale import MINUTES

MIB = 2**20
LOOK = 1.0  # seconds between two looks
LONGEST_WAL = 32  # MiB
GROWTH = 5  # MiB of a worker's memory, from the second fifth of the time to the last, a quarter of it in each fifth
MORE_FILES = 2  # the same of its open files; connections that renew beside locks come and go


class Vitals:
    """Samples of the memory and the open files of some processes, and of the WAL of a database file, if it is one.

    A process has files open for each of its children: those samples count that were taken with as many as usual.

    The database file does not count: SQLite closes its descriptors with the last connection of a process, for by
    closing one the process would lose the locks of all (https://sqlite.org/howtocorrupt.html, 2.2). A connection that
    stays open has the WAL open, too.
    """

    def __init__(self, database: Path, pids: list[int]) -> None:
        self._database, self._wal = str(database), Path(f"{database}-wal")
        self.memory: dict[int, list[float]] = {pid: [] for pid in pids}  # MiB
        self.files: dict[int, list[int]] = {pid: [] for pid in pids}
        self.children: dict[int, list[int]] = {pid: [] for pid in pids}  # how many it had
        self.wal: list[float] = []  # MiB
        self._look_at = 0.0

    def look(self) -> None:
        """Take a sample, if it is time."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK
        for pid in self.memory:
            with suppress(FileNotFoundError):  # it has ended: whether it may have is looked at in the end
                used, files = resident(pid), open_files(pid)
                self.memory[pid].append(used)
                # A thread has an event loop, with two sockets, from its first async task on: however late that comes.
                loops = sum(file == "anon_inode:[eventpoll]" for file in files)
                self.files[pid].append(sum(file != self._database for file in files) - 3 * loops)
                self.children[pid].append(len(children(pid)))
        with suppress(FileNotFoundError):
            self.wal.append(self._wal.stat().st_size / MIB)

    def check(self) -> None:
        """The WAL stays small; in a long run the memory and the open files of the workers do not go on growing.

        Threads reach their largest memory one after the other, and may open what they keep late. So a step up is none,
        nor is a growth that comes to its end: they grow in each fifth of the time.
        """
        assert max(self.wal, default=0.0) < LONGEST_WAL
        for pid in self.memory if MINUTES else ():
            for samples, growth in ((self.memory[pid], GROWTH), (self._usual_files(pid), MORE_FILES)):
                steps = [later - earlier for earlier, later in pairwise(fifths(samples)[1:])]
                assert min(steps) <= growth / 4

    def _usual_files(self, pid: int) -> list[int]:
        """Return how many files a process had open while it had as many children as most of the time."""
        [(usual, _)] = Counter(self.children[pid]).most_common(1)
        return [files for files, number in zip(self.files[pid], self.children[pid], strict=True) if number == usual]

    def __str__(self) -> str:
        samples = [f"{self.memory[pid][::10]} MiB, {self.files[pid][::10]} files" for pid in self.memory]
        most = max(self.wal, default=0.0)
        return f"the WAL had at most {most:.1f} MiB; each tenth look at the workers: {'; '.join(samples)}"


def open_files(pid: int) -> list[str]:
    """Return what the descriptors of a process stand for; one that is closed meanwhile is left out."""
    files = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            files.append(os.readlink(descriptor))
    return files


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    return round(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / MIB, 1)


def fifths(samples: Sequence[float]) -> list[float]:
    """Return the median of each fifth of the samples; the first is the warm-up."""
    size = len(samples) // 5
    return [round(median(samples[number * size : (number + 1) * size]), 1) for number in range(5)]
