"""The processes of the shop: workers, and a site."""

import re
import subprocess
import sys
import time
from pathlib import Path

from .settings import FOLDER

PATIENCE = 60.0  # seconds
ADDRESS = re.compile(r"development server at (http://[\d.:]+)/")


class Processes:
    """What was started, to be ended together."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> None:
        """Run a management command to its end."""
        subprocess.run([sys.executable, "-m", "django", *command], check=True, capture_output=True)

    def start_worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a worker, and wait until it is ready."""
        worker, _ = self.start(" ready: ", "vtworker", "--no-reload", *arguments)
        return worker

    def start_site(self) -> str:
        """Start a server; return its address."""
        _, log = self.start("Quit the server", "runserver", "127.0.0.1:0", "--noreload", "--insecure")
        found = ADDRESS.search(log.read_text())
        assert found
        return found[1]

    def start(self, sign: str, *command: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a management command, and wait for what it writes when it is ready."""
        log = Path(FOLDER(f"log-{len(self.running)}"))
        with log.open("wb") as file:
            arguments = [sys.executable, "-u", "-m", "django", *command]
            self.running.append(subprocess.Popen(arguments, stdout=file, stderr=file))
        deadline = time.monotonic() + PATIENCE
        while sign not in log.read_text():
            if time.monotonic() > deadline or self.running[-1].poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.02)
        return self.running[-1], log

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
