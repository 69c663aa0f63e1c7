"""A worker as a process: what it tells systemd, its memory, its streams, and its end.

Nothing here needs Django: it is used before Django is set up.
"""

import faulthandler
import logging
import os
import resource
import socket
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


class CannotRun(Exception):
    """The system starts no thread or process that a worker needs; the text says what there is, and what to do."""


def notify_systemd(state: str) -> None:
    """Tell systemd, where it asks (``Type=notify``, ``WatchdogSec=``); it never waits, and a failure changes nothing.

    This is sd_notify(3), in the ten lines that it needs.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # the abstract namespace
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(state.encode(), socket.MSG_DONTWAIT, address)


def resident() -> int:
    """Return the bytes of memory that this process takes; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def end_within(seconds: float) -> None:
    """End this process after so many seconds, with code 1, whatever hangs then: its output, a lock, or a task's code.

    A thread of ``faulthandler`` does it, which needs no interpreter (a task may keep that to itself), and which a
    process 1 cannot ignore, as it does a signal. What it writes first must not block.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=open_devnull())


def fill_streams() -> None:
    """Have standard streams that are closed go nowhere: else a session of the server takes the place of one of them.

    A task that writes to standard error would then write into that session. SQLite does so for its own files.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def write_lines_at_once() -> None:
    """Have what tasks print be read at once also where it goes into a file or a pipe: the log of a container, say."""
    with suppress(Exception):  # it is closed, or a stream of the project's own
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


@cache
def open_devnull() -> int:
    """Return a descriptor of /dev/null for writing, opened once; asked for early: later there may be no free one."""
    return os.open(os.devnull, os.O_WRONLY)


def exit_at_once() -> NoReturn:
    """End this process, in which code of released jobs still runs, once what was logged is written."""
    try:
        logging.shutdown()
        sys.stdout.flush()
    finally:
        os._exit(0)
