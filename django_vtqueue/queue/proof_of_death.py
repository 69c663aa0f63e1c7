"""Proof that a process on this machine has died: its doorbell lies there, and no process has it open.

Hosts that share a disk have no bells (doorbell.py), so nothing is proven there. A supervisor has a bell say this, and
why it has killed a worker, where a forked process would hide it.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .doorbell import exists, names_in, place_of


def is_bell(path: str, alias: str, folder: Path) -> bool:
    """Return whether the path in a worker's row is that of a bell of this database."""
    return Path(path).parent == place_of(alias, folder) and exists(path)


def proves_death(path: str, alias: str, folder: Path) -> bool:
    """Return whether a bell's owner is certainly dead: its socket lies there and no process has it open.

    A full one (alive, perhaps stopped) and a missing one (another container, a cleaned folder) prove nothing.
    """
    return is_bell(path, alias, folder) and refuses(path)


def refusing(folder: Path) -> Iterator[str]:
    """Yield the paths of the bells in a folder whose owners are certainly dead."""
    for name in names_in(folder):
        if refuses(path := f"{folder}/{name}") and exists(path):  # what is no socket refuses, too
            yield path


def refuses(path: str) -> bool:
    """Return whether nothing listens at a path."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringer:
            ringer.connect(path)
    except ConnectionRefusedError:
        return True
    except (OSError, AttributeError, ValueError):  # ValueError: a NUL in a damaged path
        return False
    return False


def declare_dead(path: Path) -> None:
    """Have a bell prove that its owner has ended, although a process that the owner has forked may hold the bell."""
    if exists(path):
        other = path.with_name(f"{path.name}x")
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
            bell.bind(str(other))
            other.chmod(stat.S_IMODE(path.stat().st_mode))
            other.replace(path)


def mark_over_time(path: Path) -> None:
    """Note at the bell of a worker that it will be killed, because a job of it is over its time limit."""
    with suppress(OSError):
        path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_ISVTX)


def was_over_time(path: str) -> bool:
    """Return whether a dead worker was killed because a job of it was over its time limit."""
    return exists(path) and bool(os.lstat(path).st_mode & stat.S_ISVTX)
