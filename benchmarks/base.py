"""Beside a fixed old commit, in which the package had few features yet: a drift is seen that no single change shows.

It needs a clone with its history. Both versions do the same by turns, in pairs; where a ratio is not 1, the middle half
of the pairs says how much of that is the machine. Which version is measured is said first.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from .figures import arguments, heading, percentile, show
from .processes import ROOT
from .tools import FOLDER

COMMIT = "5a0bcb65"
NOT_THERE = """
The commit {commit}, with which this is compared, is not in {root}: {said}
It needs a clone of the repository with its history: git fetch --unshallow
"""


class Version:
    """One version of the package, with a database of its own; ``package``: the folder in which the package is."""

    def __init__(self, name: str, package: Path) -> None:
        self.folder = FOLDER / name
        self.folder.mkdir()
        self.database = self.folder / "db.sqlite3"
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (package, ROOT))),
            "VTQUEUE_BENCH_FOLDER": str(self.folder),
            "VTQUEUE_BENCH_APP": "benchmarks.plain",
            "PYTHONDONTWRITEBYTECODE": "",  # else only one of the two would be compiled before it starts
        }
        used = self.run("-c", "import django_vtqueue; print(django_vtqueue.__file__)").strip()
        if Path(used).parent.parent != package:
            raise RuntimeError(f"{used} is measured instead of the package in {package}")
        self.run("-m", "django", "migrate", "--verbosity", "0")
        shutil.copyfile(self.database, self.folder / "migrated.sqlite3")

    def command(self, *given: str) -> list[str]:
        return [sys.executable, "-P", *given]  # -P: the package in this folder is not meant

    def run(self, *given: str) -> str:
        """Run a process of this version to its end; return what it has printed."""
        return subprocess.run(
            self.command(*given), env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def renew(self) -> None:
        """Put an empty database in the place of the last one."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.database}{suffix}").unlink(missing_ok=True)
        shutil.copyfile(self.folder / "migrated.sqlite3", self.database)

    def enqueue(self, count: int) -> float:
        """Return the median of the microseconds that one enqueue takes, with its commit."""
        self.renew()
        return float(self.run("-m", "benchmarks.plain", "enqueue", str(count))) * 1e6

    def drain(self, jobs: int) -> tuple[float, float]:
        """Return the CPU time and the time, in seconds, of a worker with one thread that drains so many jobs."""
        self.renew()
        if jobs:
            self.run("-m", "benchmarks.plain", "fill", str(jobs))
        began = time.perf_counter()
        command = self.command("-m", "django", "vtworker", "--drain", "--threads", "1")
        with (self.folder / "log").open("w") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError((self.folder / "log").read_text())
        return usage.ru_utime + usage.ru_stime, time.perf_counter() - began


def main() -> None:
    given = arguments(__doc__, jobs=(40_000, 10_000), enqueues=(5_000, 2_000), pairs=(10, 3))
    old = FOLDER / "old"
    try:
        extract(COMMIT, old)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        print(NOT_THERE.format(commit=COMMIT, root=ROOT, said=said.decode().strip()))
        return
    heading(f"13. Beside the fixed commit {COMMIT} (raw: that commit)")
    here, base = Version("here", ROOT), Version("base", old)
    compare("enqueue, autocommit, p50", "µs", given.pairs, lambda each: each.enqueue(given.enqueues), here, base)
    starts = {version: median(version.drain(0)[0] for _ in range(min(given.pairs, 5))) for version in (here, base)}

    def cpu_of_job(version: Version) -> float:
        return (version.drain(given.jobs)[0] - starts[version]) / given.jobs * 1e6

    compare("CPU time of a job in a drain, less a start", "µs", given.pairs, cpu_of_job, here, base)
    compare("start and drain of nothing", "s", given.pairs, lambda each: each.drain(0)[1], here, base)
    compare("CPU time of that", "s", given.pairs, lambda each: each.drain(0)[0], here, base)


def extract(commit: str, folder: Path) -> None:
    """Put the package as it was at a commit into a folder."""
    archive = subprocess.run(["git", "archive", commit, "django_vtqueue"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def compare(
    what: str, unit: str, pairs: int, measure: Callable[[Version], float], here: Version, base: Version
) -> None:
    """Measure both by turns, each of them first in every other pair."""
    results: dict[Version, list[float]] = {here: [], base: []}
    for number in range(pairs):
        for version in (here, base) if number % 2 else (base, here):
            results[version].append(measure(version))
    show(what, median(results[here]), unit, median(results[base]))
    ratios = [ours / theirs for ours, theirs in zip(results[here], results[base], strict=True)]
    show("  median of the ratios of the pairs", median(ratios), "")
    show("  the middle half of them, from", percentile(ratios, 25), "")
    show("  the middle half of them, to", percentile(ratios, 75), "")


if __name__ == "__main__":
    main()
