"""How much the processes and the files of a soak use, from one look to the next."""

import resource
from contextlib import suppress
from pathlib import Path
from statistics import median

MIB = 2**20


class Vitals:
    """Samples of the memory and the open files of some processes, and of the sizes of a database and its WAL."""

    def __init__(self, database: Path, pids: list[int]) -> None:
        self._wal = Path(f"{database}-wal")
        self.memory: dict[int, list[float]] = {pid: [] for pid in pids}  # MiB
        self.files: dict[int, list[int]] = {pid: [] for pid in pids}
        self.wal: list[float] = []  # MiB

    def look(self) -> None:
        for pid in self.memory:
            self.memory[pid].append(resident(pid))
            self.files[pid].append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
        with suppress(FileNotFoundError):
            self.wal.append(self._wal.stat().st_size / MIB)


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / MIB


def fifths(samples: list[float]) -> list[float]:
    """Return the median of each fifth of the samples; the first is the warm-up."""
    size = len(samples) // 5
    return [round(median(samples[number * size : (number + 1) * size]), 1) for number in range(5)]
