"""Processes of the project: workers, and what else is started beside them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import struct_rusage
from typing import Any

from .tools import FOLDER, wait_until

ROOT = Path(__file__).resolve().parent.parent


def start(*arguments: str, **options: Any) -> subprocess.Popen[Any]:
    """Start this Python with these arguments in the project; ``options``: of Popen."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=env, **options)


class Worker:
    """A ``vtworker`` process, started and ready; ``options``: OPTIONS of the backend.

    Raise RuntimeError if it ended before it was.
    """

    started = 0

    def __init__(self, *arguments: str, **options: Any) -> None:
        Worker.started += 1
        self._log = FOLDER / f"worker-{Worker.started}.log"
        with self._log.open("w") as log:
            env = {"VTQUEUE_BENCH_OPTIONS": json.dumps(options)}
            self.process = start("-m", "django", "vtworker", *arguments, env=env, stdout=log, stderr=log)
        self.pid = self.process.pid
        wait_until(lambda: " ready: " in self.log or self.process.poll() is not None)
        if self.process.returncode is not None:
            raise self._failed()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait(self) -> struct_rusage:
        """Wait for its end; return what it and its children have used. Raise RuntimeError if it failed."""
        _, status, usage = os.wait4(self.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            raise self._failed()
        return usage

    def _failed(self) -> RuntimeError:
        return RuntimeError(f"vtworker ended with {self.process.returncode}:\n{self.log}")

    def stop(self) -> struct_rusage:
        """Ask it to stop, and wait."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def longest_hold(self) -> float:
        """Return for how many milliseconds it held the write lock at the most, as it said when it ended."""
        return float(self.log.rpartition("longest write lock ")[2].partition("ms")[0])

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
