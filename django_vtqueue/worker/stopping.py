"""SIGTERM and SIGINT: once means gracefully, twice means at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopping:
    """The signals that were received, and who shall hear of them."""

    def __init__(self, owns_process: bool) -> None:
        self.owns_process = owns_process
        self.count = 0
        self._listener: Callable[[], None] | None = None

    def then(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` for each signal, also for those that have come already."""
        self._listener = listener
        for _ in range(self.count):
            listener()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to SIGTERM and SIGINT during the block; in another thread than the main one nothing can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._received) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _received(self, number: int, frame: object) -> None:
        self.count += 1
        if self.count > 1 and not self.owns_process:
            raise KeyboardInterrupt  # the caller goes on to live: its threads cannot be left behind
        if self._listener:
            self._listener()
