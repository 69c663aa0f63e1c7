"""Projects that have another package, too: what their workers and commands say."""

import os
import sys
from subprocess import DEVNULL, PIPE, STDOUT, run

from ..projects import ROOT, Project

LONGEST = 100  # seconds of a command


class Client(Project):
    """A project as tests.projects has it, whose warnings are no errors: they are those of another package."""

    def run(self, *arguments: str, **variables: str) -> str:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "VTQUEUE_"))}
        env = {**given, "PYTHONPATH": f"{self.folder}:{ROOT}", "DJANGO_SETTINGS_MODULE": "settings", **variables}
        done = run(
            [sys.executable, *arguments],
            env=env,
            cwd=self.folder,
            stdout=PIPE,
            stderr=STDOUT,
            stdin=DEVNULL,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        return f"exit {done.returncode}\n{done.stdout}"
