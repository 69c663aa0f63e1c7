"""A queue of messages into which signal handlers may put, and whose ``get`` ends in time."""

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Generic, TypeVar

from ..core import clock

T = TypeVar("T")


class SignalSafeQueue(Generic[T]):
    """Takes messages from any thread and from signal handlers; one thread gets them.

    A SimpleQueue alone would do, but its ``get(timeout=…)`` waits for ever in Python 3.11 if a signal interrupts it
    just before its time is up.
    """

    def __init__(self) -> None:
        self._messages: SimpleQueue[T] = SimpleQueue()
        self._arrived = Lock()  # locked as long as nothing has come since the last look
        self.get_nowait: Callable[[], T] = self._messages.get_nowait

    def put(self, message: T) -> None:
        """Add a message; never waits."""
        self._messages.put(message)
        if self._arrived.locked():
            with suppress(RuntimeError):  # another one was faster
                self._arrived.release()

    def get(self, timeout: float) -> T:
        """Return the next message; raise queue.Empty if none comes within so many seconds."""
        until = clock.monotonic() + timeout
        while True:
            with suppress(Empty):
                return self.get_nowait()
            if (left := until - clock.monotonic()) <= 0:
                raise Empty
            self._arrived.acquire(timeout=left)
