"""What a process of a test does first, so that it is on another host: it enters namespaces; see namespaces(7)."""

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET = 0x20000, 0x4000000, 0x8000000, 0x40000000
NETWORKS = Path("/run/netns")  # of ip-netns(8)
# $1: the name of the host; $2: the shared folder.
MOUNTS = """
mount --make-rprivate / &&
mount -t tmpfs none /dev/shm && echo "boot of $1" > /dev/shm/boot_id &&
mount --bind /dev/shm/boot_id /proc/sys/kernel/random/boot_id && mount --bind "$2" "$2"
"""


def on_host(enter: Sequence[str], *arguments: str) -> list[str]:
    """Return a command of this Python. ``enter``: a function here, and its arguments; ``arguments``: of Python."""
    begin = f"from {__name__} import {enter[0]} as enter\nenter(*{enter[1:]!r})\n"
    if arguments[0] == "-c":
        return [sys.executable, "-c", begin + arguments[1], *arguments[2:]]
    assert arguments[:2] == ("-m", "django")
    begin += "import sys\nfrom django.core.management import execute_from_command_line as execute\nexecute(sys.argv)"
    return [sys.executable, "-c", begin, *arguments[2:]]


def enter_disk(name: str, folder: str) -> None:
    """Have mounts, a network, a name and a boot id of its own: only the files in a folder are those of other hosts."""
    _call("unshare", CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC)
    socket.sethostname(name)
    subprocess.run(["sh", "-c", MOUNTS, "sh", name, folder], check=True)


def enter_network(name: str, network: str) -> None:
    """Have a name of its own, in a network namespace that there is."""
    file = os.open(NETWORKS / network, os.O_RDONLY)
    _call("setns", file, CLONE_NEWNET)
    os.close(file)
    _call("unshare", CLONE_NEWUTS)
    socket.sethostname(name)


def _call(function: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments):
        raise OSError(ctypes.get_errno(), function)
