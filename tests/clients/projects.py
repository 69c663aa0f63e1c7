"""Projects that have another package, too: what their workers and commands say."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen, run
from typing import Any

from ..projects import ROOT, Project

LONGEST = 100  # seconds of a command


class Client(Project):
    """A project as tests.projects has it, whose warnings are no errors: they are those of another package."""

    @property
    def environment(self) -> dict[str, str]:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "VTQUEUE_"))}
        path = f"{self.folder}:{ROOT}"
        return {**given, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "DJANGO_SETTINGS_MODULE": "settings"}

    def run(self, *arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = run(command, **self._given, stdout=PIPE, text=True, timeout=LONGEST, check=False)
        return f"exit {done.returncode}\n{done.stdout}"

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Path]:
        """Run this Python meanwhile; yield the file of its output."""
        log = self.folder / "log"
        with log.open("wb") as output, Popen([sys.executable, *arguments], **self._given, stdout=output) as process:
            try:
                yield log
            finally:
                process.kill()

    @property
    def _given(self) -> dict[str, Any]:
        return {"env": self.environment, "cwd": self.folder, "stderr": STDOUT, "stdin": DEVNULL}
