"""SIGTERM, SIGINT and SIGHUP: once means gracefully, twice means at once (see ``Leaving.done``)."""

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager

from ..core.forks import handling_signals


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a worker; SIGHUP only if it is not ignored (nohup ignores it)."""
    closed = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else []
    return [signal.SIGTERM, signal.SIGINT, *closed]


class StopSignals:
    """The signals that were received, and the listener that is told of them."""

    def __init__(self, owns_process: bool) -> None:
        self.owns_process = owns_process
        self.count = 0
        self._listener: Callable[[], None] | None = None

    def then(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` for each signal, also for those that have come already."""
        self._listener = listener
        for _ in range(self.count):
            listener()

    def listening(self) -> AbstractContextManager[None]:
        """Listen to the signals that stop during the block."""
        return handling_signals(stop_signals(), self._received)

    def _received(self, number: int, frame: object) -> None:
        if number == signal.SIGHUP and self.count:
            return  # a terminal that is closed may send it several times
        self.count += 1
        if self.count > 1 and not self.owns_process:
            raise KeyboardInterrupt  # the caller goes on to live: its threads cannot be left behind
        if self._listener:
            self._listener()
