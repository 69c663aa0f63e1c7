"""Waiting for what another thread or process does: for a condition, never for a time."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

PATIENCE = 100  # seconds: generous, for a busy machine; nothing waits for it in vain
LOOKS = 0.005, 0.05  # seconds between the first two looks, and later: a look may open a database
PROMPT = 10  # seconds: what takes no time, on a busy machine; half of the time for which a connection waits for a lock


class Shared(threading.local):
    """What the looks of a wait share: the connection that one of them has opened last. Each thread has its own."""

    waits = False
    files: object = None
    connection: Any = None

    @contextmanager
    def by_looks(self) -> Iterator[None]:
        """Share connections in this block, which may be within another wait."""
        outer = self.waits, self.files, self.connection
        self.waits, self.files, self.connection = True, None, None
        try:
            yield
        finally:
            self.close()
            self.waits, self.files, self.connection = outer

    @contextmanager
    def opened(self, files: Callable[[], object], connect: Callable[[], T]) -> Iterator[T]:
        """Yield a connection: in a wait that of the look before, unless that failed or the files are others now."""
        if self.connection is not None and files() != self.files:
            self.close()
        try:
            if self.connection is None:
                self.connection = connect()
                self.files = files()
            yield self.connection
        except BaseException:
            self.close()
            raise
        if not self.waits:
            self.close()

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


shared = Shared()


def wait_until(condition: Callable[[], T | None], timeout: float = PATIENCE, every: float = LOOKS[1]) -> T:
    """Return the first true value of ``condition()``; fail if there is none within ``timeout`` seconds.

    ``every``: how many seconds apart two looks are at the most; the first ones are closer.
    """
    deadline, pause = time.monotonic() + timeout, min(LOOKS[0], every)
    with shared.by_looks():
        while not (value := condition()):
            if time.monotonic() >= deadline:
                pytest.fail(f"waited {timeout:g} s in vain for {condition}")
            time.sleep(pause)
            pause = min(1.3 * pause, every)
        return value
