"""A worker as a process: the signals that stop it, what it tells systemd, its memory, and its end.

Nothing here needs Django: it is used before Django is set up.
"""

import faulthandler
import logging
import os
import resource
import signal
import socket
import sys
import time
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from ..runtime.forks import handling_signals

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"

logger = logging.getLogger("django_vtqueue")

# From a second signal, or the end of --shutdown-timeout, to the end of a process that waits for an answer: a server may
# stand still, though its connections stay open. It is half of the default lease, as what was finished is to be stored.
ANSWERED_WITHIN = 30.0  # seconds
SAID_WITHIN = 1.0  # seconds: the log may hang, too
UNANSWERED = "this worker ends now: the database, or something else, gives no answer. Its leases end by themselves"


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a worker; SIGHUP only if it is not ignored (nohup ignores it)."""
    closed = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else []
    return [signal.SIGTERM, signal.SIGINT, *closed]


class StopSignals:
    """SIGTERM, SIGINT and SIGHUP: once means gracefully, twice means at once (see ``Shutdown.done``).

    ``timeout``: the seconds after which once means at once, too. Then the process ends, whatever it waits for.
    """

    def __init__(self, owns_process: bool, timeout: float | None) -> None:
        self.owns_process, self.timeout = owns_process, timeout
        self.count = 0
        self._listener: Callable[[], None] | None = None
        self._lasts = allocate_lock()  # held during the block

    def then(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` for each signal, also for those that have come already."""
        self._listener = listener
        for _ in range(self.count):
            listener()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the signals that stop during the block."""
        with self._lasts, handling_signals(stop_signals(), self._received):
            yield

    def _received(self, number: int, frame: object) -> None:
        if number == signal.SIGHUP and self.count:
            return  # a terminal that is closed may send it several times
        self.count += 1
        if self.count > 1 and not self.owns_process:
            raise KeyboardInterrupt  # the caller goes on to live: its threads cannot be left behind
        timeout = self.timeout if self.count == 1 else 0.0
        if self.owns_process and timeout is not None:
            with suppress(RuntimeError):  # the system gives no thread
                start_new_thread(_end_unanswered, (self._lasts, timeout + ANSWERED_WITHIN))  # waits for no Python code
        if self._listener:
            self._listener()


def _end_unanswered(lasts: LockType, seconds: float) -> None:
    """End this process with code 1, and say so, if the worker still lasts after so many seconds."""
    if lasts.acquire(timeout=seconds):
        lasts.release()
        return
    with suppress(RuntimeError):
        start_new_thread(logger.warning, (UNANSWERED,))
    time.sleep(SAID_WITHIN)
    os._exit(1)


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
