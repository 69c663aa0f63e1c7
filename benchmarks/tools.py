"""The project that is measured: a fresh database in a temporary folder, real workers, and a look at both from outside.

Importing this sets Django up. Processes that a run starts use its folder, which they find in the environment.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from resource import struct_rusage
from typing import Any

import django

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 600.0  # seconds

if "VTQUEUE_BENCH_FOLDER" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="vtqueue-bench-")  # removed at the end of this process
    os.environ["VTQUEUE_BENCH_FOLDER"] = _folder.name
FOLDER = Path(os.environ["VTQUEUE_BENCH_FOLDER"])
DATABASE, MIGRATED = FOLDER / "db.sqlite3", FOLDER / "migrated.sqlite3"

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402

from .app import tasks  # noqa: E402

__all__ = ["DATABASE", "Worker", "fresh", "raw_connection", "rows", "start", "tasks", "wait_until", "wal_size"]


# The database


def remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def fresh(path: Path = DATABASE) -> Path:
    """Put a migrated database without rows in the place of the last one; nobody may have that open."""
    connections.close_all()
    if not MIGRATED.exists():
        call_command("migrate", verbosity=0)
        connections.close_all()
        shutil.move(DATABASE, MIGRATED)
    remove(path)
    shutil.copyfile(MIGRATED, path)
    return path


def raw_connection(path: Path = DATABASE) -> sqlite3.Connection:
    """Return a connection without Django, set up as Django's is."""
    connection = sqlite3.connect(path, timeout=20, isolation_level=None)
    connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
    return connection


def rows(sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Read from the database."""
    with closing(raw_connection()) as connection:
        return connection.execute(sql, values).fetchall()


def wal_size() -> int:
    """Return the size of the WAL in bytes."""
    wal = Path(f"{DATABASE}-wal")
    return wal.stat().st_size if wal.exists() else 0


# Processes


def start(*arguments: str, **options: Any) -> subprocess.Popen[Any]:
    """Start this Python with these arguments in the project; ``options``: of Popen."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=env, **options)


class Worker:
    """A ``vtworker`` process, started and ready; ``options``: OPTIONS of the backend."""

    started = 0

    def __init__(self, *arguments: str, **options: Any) -> None:
        Worker.started += 1
        self._log = FOLDER / f"worker-{Worker.started}.log"
        with self._log.open("w") as log:
            env = {"VTQUEUE_BENCH_OPTIONS": json.dumps(options)}
            self.process = start("-m", "django", "vtworker", *arguments, env=env, stdout=log, stderr=log)
        self.pid = self.process.pid
        wait_until(lambda: " ready: " in self.log or self.process.poll() is not None)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait(self) -> struct_rusage:
        """Wait for its end; return what it and its children have used. Raise RuntimeError if it failed."""
        _, status, usage = os.wait4(self.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            raise RuntimeError(f"vtworker ended with {self.process.returncode}:\n{self.log}")
        return usage

    def stop(self) -> struct_rusage:
        """Ask it to stop, and wait."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def cpu_seconds(self) -> float:
        """Return the CPU time that its threads have used so far."""
        return (
            sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{self.pid}/task").glob("*/schedstat")) / 1e9
        )

    def memory(self, line: str = "VmRSS") -> float:
        """Return its resident memory in MB; ``line``: VmHWM for the most it ever had."""
        return memory(Path(f"/proc/{self.pid}/status").read_text(), line)


def memory(status: str, line: str = "VmRSS") -> float:
    """Return a figure of ``/proc/PID/status`` in MB."""
    return int(status.partition(f"{line}:")[2].split()[0]) / 1024


@contextmanager
def workers(count: int, *arguments: str, **options: Any) -> Iterator[list[Worker]]:
    """Have so many workers run during the block."""
    running = [Worker(*arguments, **options) for _ in range(count)]
    try:
        yield running
    finally:
        for worker in running:
            worker.stop()


def wait_until(condition: Callable[[], Any], every: float = 0.05) -> None:
    """Wait for a condition; raise TimeoutError if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:g} s in vain")
        time.sleep(every)
