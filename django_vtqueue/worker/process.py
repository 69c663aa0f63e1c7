"""A worker as a process: what it tells systemd, its memory, its streams, and its end.

Nothing here needs Django: it is used before Django is set up.
"""

import faulthandler
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from ..runtime.aside import LAST_LINES, Caller, log_writer

logger = logging.getLogger("django_vtqueue")

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"

ORDERLY_END = 5.0  # seconds for a program that has come to its end: for threads that tasks have left, and for atexit
FLUSHED_WITHIN = 1.0  # seconds, at the very end
ENDED_WITHIN = LAST_LINES + ORDERLY_END + 2 * FLUSHED_WITHIN  # seconds from the end of a worker to that of its process


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


_ending = threading.Lock()


def end_if_log_is_deleted() -> None:
    """Have this process end if the log of its SQLite database is deleted: it has to open the database anew."""
    from ..engines import when_log_is_deleted  # this module is used before Django is set up

    when_log_is_deleted.append(_end_without_log)


def _end_without_log(error: Exception) -> NoReturn:
    """Say so, and end this process with code 1: it closes no connection, and its leases end by themselves."""
    _ending.acquire()  # no other thread says it, too
    end_within(2 * FLUSHED_WITHIN)  # a handler of its log may hang
    logger.critical("%s. This process ends now", error)
    exit_at_once(1)


def exit_at_once(code: int, seconds: float = FLUSHED_WITHIN) -> NoReturn:
    """End this process, whatever still runs in it, once what was logged and printed is written.

    ``seconds``: for that, at the most; a log may hang, and a pipe that nobody reads.
    """

    def flush() -> None:
        log_writer.finish(seconds)
        logging.shutdown()
        sys.stdout.flush()

    flusher = Caller("flush")
    flusher.put(flush)
    flusher.finish(seconds)
    os._exit(code)


@contextmanager
def ending_with_program() -> Iterator[None]:
    """Have this process end soon after its program has, which may go on behind the block, with the block's exit code.

    What ends in time ends as usual: threads, functions of ``atexit``, the log. A thread that a task has left behind, or
    a log that hangs, does not keep the process.
    """
    code = 1
    try:
        yield
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    finally:
        ended = threading.Event()
        with suppress(RuntimeError):  # the system gives no thread
            threading.Thread(target=_exit_behind_program, args=(ended, code), name="end", daemon=True).start()
            # Called before threads are waited for, also those of concurrent.futures, which does it in this way.
            threading._register_atexit(ended.set)  # type: ignore[attr-defined]


def _exit_behind_program(ended: threading.Event, code: int) -> None:
    ended.wait()
    end_within(ENDED_WITHIN)  # Python itself may hang by then, in its last flush, say
    time.sleep(ORDERLY_END)
    exit_at_once(code)
