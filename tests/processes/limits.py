"""What tasks with limits have written down: how many ran at once, in which order, how often they started."""

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.project.limited import write


@dataclass
class Line:
    moment: float
    pid: int
    what: str
    key: str
    text: str


class Journal:
    """The file that tasks write, and that a test writes into when it kills a worker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def killed(self, pid: int) -> None:
        """Note that nothing of a process runs from now on; to be called when the signal was sent."""
        write(str(self.path), f"kill - {pid}")

    def lines(self) -> list[Line]:
        """Return what was written, in that order, without what a killed process wrote after its kill."""
        lines: list[Line] = []
        dead: set[int] = set()
        for line in self.path.read_text().splitlines():
            moment, pid, what, key, *text = line.split(" ")
            found = Line(float(moment), int(pid), what, key, " ".join(text).strip())
            if what == "kill":
                dead.add(int(found.text))
            if found.pid not in dead or found.pid == os.getpid():
                lines.append(found)
        return lines

    def most(self) -> dict[str, int]:
        """Return how many jobs of each key ran at once, at the most."""
        most: dict[str, int] = defaultdict(int)
        running: dict[str, list[int]] = defaultdict(list)
        for line in self.lines():
            if line.what == "kill":
                for key in running:
                    running[key] = [pid for pid in running[key] if pid != int(line.text)]
            elif line.what == "start":
                running[line.key].append(line.pid)
            elif line.pid in running[line.key]:
                running[line.key].remove(line.pid)
            most[line.key] = max(most[line.key], len(running[line.key]))
        return dict(most)

    def order(self, key: str) -> list[int]:
        """Return the numbers of the jobs of an ordered key as they started, retries included."""
        return [int(line.text) for line in self.lines() if line.key == key and line.what == "start"]

    def starts(self, key: str) -> list[float]:
        return [line.moment for line in self.lines() if line.key == key and line.what == "start"]
