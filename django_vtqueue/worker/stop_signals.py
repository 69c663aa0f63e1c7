"""The signals that stop a worker: they are counted, and end a process that gets no answer from what it waits for.

Nothing here needs Django: it is used before Django is set up.
"""

import logging
import signal
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from ..runtime.aside import logging_aside
from ..runtime.forks import handling_signals
from .process import exit_at_once

logger = logging.getLogger("django_vtqueue")

# From a second signal, or the end of --shutdown-timeout, to the end of a process that waits for an answer: a server may
# stand still, though its connections stay open. It is half of the default lease, as what was finished is to be stored.
ANSWERED_WITHIN = 30.0  # seconds
BEGUN_WITHIN = 8.0  # seconds: one that has not begun holds nothing, and containers are killed after 10
UNANSWERED = "this worker ends now: the database, or something else, gives no answer. Its leases end by themselves"


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a worker; SIGHUP only if it is not ignored (nohup ignores it)."""
    closed = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else []
    return [signal.SIGTERM, signal.SIGINT, *closed]


class StopSignals:
    """SIGTERM, SIGINT and SIGHUP: once means gracefully, twice means at once (see ``Shutdown.done``).

    ``timeout``: the seconds after which once means at once, too. Then the process ends, whatever it waits for. (One
    that holds no job does so sooner: see silence.py.)
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
        seconds = None if timeout is None else timeout + ANSWERED_WITHIN
        seconds = seconds if self._listener else BEGUN_WITHIN
        if self.owns_process and seconds is not None:
            with suppress(RuntimeError):  # the system gives no thread
                start_new_thread(_end_unanswered, (self._lasts, seconds))  # waits for no Python code
        if self._listener:
            self._listener()


def _end_unanswered(lasts: LockType, seconds: float) -> None:
    """End this process if the worker still lasts after so many seconds."""
    if lasts.acquire(timeout=seconds):
        lasts.release()
    else:
        end_unanswered()


@logging_aside()
def end_unanswered() -> NoReturn:
    """End this process with code 1, which gets no answer, and say so."""
    logger.warning(UNANSWERED)
    exit_at_once(1)
