"""Processes that outlive the one that starts them, and can be found by any other: Linux only (/proc)."""

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

PROC = Path("/proc")
PROGRAM = shutil.which("sleep") or "/bin/sleep"
SECONDS = "3600"  # what nobody ends, ends by itself
NAME, SITE = "SLEEPER_NAME", "SLEEPER_SITE"  # variables by which a process says which one it is, and of which database


class Process(NamedTuple):
    """A process, and the moment of its start: together they name it for ever."""

    pid: int
    born: int


def start(name: str) -> Process:
    """Start the process of a name; it goes on when this one ends."""
    pid = os.posix_spawn(
        PROGRAM,
        ["sleep", SECONDS],
        {**os.environ, NAME: name, SITE: site()},
        setpgroup=0,
        setsigdef=[signal.SIGCHLD],
        file_actions=[(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)],
    )
    return Process(pid, born(pid) or 0)


def born(pid: int) -> int | None:
    """Return when a process was started; None if it has ended."""
    with suppress(OSError):
        state, *values = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(values[18]) if state not in "ZX" else None
    return None


def runs(pid: int | None, started: int | None) -> bool:
    """Return whether this very process still runs."""
    return pid is not None and started is not None and born(pid) == started


def find() -> dict[str, list[Process]]:
    """Return the processes of this site that run, by their names, whoever has started them."""
    found: dict[str, list[Process]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (name := name_of(folder)) and (started := born(int(folder.name))):
            found.setdefault(name, []).append(Process(int(folder.name), started))
    return found


def name_of(folder: Path) -> str | None:
    """Return the name of a process, by what it was started with; None if it is not one of ours."""
    with suppress(OSError):
        variables = dict(line.partition("=")[::2] for line in (folder / "environ").read_text().split("\0"))
        return variables.get(NAME) if variables.get(SITE) == site() else None
    return None


def end(process: Process) -> bool:
    """Kill a process, if it is still the same, and wait for its end; return whether it was."""
    if not runs(*process):
        return False
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    while runs(*process):  # a signal takes a moment
        time.sleep(0.001)
    return True


def site() -> str:
    return str(settings.DATABASES["default"]["NAME"])
