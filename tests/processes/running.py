"""Processes of a test: started, read, and always ended by their own ids."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..preloaded import start
from ..waiting import PATIENCE, wait_until

DURATION = r"\d+(?:\.\d)? (?:ms|s|min|h|d)"  # the same, for people
TIME = r"\d+(?:\.\d)?m?s"  # how long something took, in a line of a worker's log
MANAGE = str(Path(__file__).parent.parent.resolve() / "manage.py")
READY = re.compile(r"^vtworker \S+:(\d+) ready: ", re.MULTILINE)

Start = Callable[..., "Running"]


class Running:
    """A process and what it has written so far to its output and errors, in one file."""

    def __init__(
        self,
        command: list[str],
        env: dict[str, str],
        log: Path,
        stdin: int = subprocess.DEVNULL,
        cwd: Path | None = None,
        fresh: bool = False,
    ) -> None:
        """``fresh``: it begins as a new interpreter; see preloaded.start."""
        self._log, self.env = log, env
        with log.open("wb") as output:
            self.process = start(command, env, output=output.fileno(), stdin=stdin, cwd=cwd, fresh=fresh)
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        """What it has written; as long as it runs, in whole lines: a print may come in pieces."""
        over, written = self.ended(), self._log.read_bytes()
        return (written if over else written[: written.rfind(b"\n") + 1]).decode()

    def lines(self, beginning: str) -> list[str]:
        """Return the lines that begin so."""
        return [line for line in self.log.splitlines() if line.startswith(beginning)]

    def wait_for(self, text: str) -> None:
        """Wait until it has written ``text``; show what it has written instead if it ends before."""
        wait_until(lambda: text in self.log or self.ended())
        assert text in self.log

    def wait_ready(self, times: int = 1) -> int:
        """Wait until a worker has started for the ``times``-th time; return the pid it names."""
        wait_until(lambda: len(READY.findall(self.log)) >= times or self.ended())
        assert len(READY.findall(self.log)) >= times, self.log
        return int(READY.findall(self.log)[-1])

    def ended(self) -> bool:
        return self.process.poll() is not None

    def signal(self, *numbers: int) -> None:
        for number in numbers:
            self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(PATIENCE)

    def stop(self) -> None:
        """Stop it, and wait until none of its threads runs."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: all(state(thread) in "TZX" for thread in Path(f"/proc/{self.pid}/task").iterdir()))

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def terminate(self) -> int:
        """Ask it to stop, and wait; return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self.process.kill()
        self.wait()

    def clean_up(self) -> None:
        """End it, and the workers that it started, whatever state they are in."""
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(PATIENCE)
        for pid in {int(pid) for pid in READY.findall(self.log)} - {self.pid}:
            if is_ours(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def is_ours(pid: int) -> bool:
    """Return whether a process is a living worker of this test project (its id may have gone to another one)."""
    with suppress(OSError):
        return state(Path(f"/proc/{pid}")) != "Z" and b"vtworker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def state(folder: Path) -> str:
    """Return the letter for what a process or a thread does, by its folder in ``/proc``: ``T`` if it is stopped."""
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


def children(pid: int) -> list[int]:
    """Return the processes whose parent is this one, whichever of its threads has started them."""
    with suppress(OSError):
        threads = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for thread in threads for child in thread.read_text().split()]
    return []


def python(*arguments: str) -> list[str]:
    """Return a command line that runs the Python of this test."""
    return [sys.executable, *arguments]
