"""Waiting for what another thread or process does: for a condition, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")

PATIENCE = 100  # seconds: generous, for a busy machine; nothing waits for it in vain
LOOKS = 0.005, 0.05  # seconds between the first two looks, and later: a look may open a database
PROMPT = 10  # seconds: what takes no time, on a busy machine; half of the time for which a connection waits for a lock


def wait_until(condition: Callable[[], T | None], timeout: float = PATIENCE, every: float = LOOKS[1]) -> T:
    """Return the first true value of ``condition()``; fail if there is none within ``timeout`` seconds.

    ``every``: how many seconds apart two looks are at the most; the first ones are closer.
    """
    deadline, pause = time.monotonic() + timeout, min(LOOKS[0], every)
    while not (value := condition()):
        if time.monotonic() >= deadline:
            pytest.fail(f"waited {timeout:g} s in vain for {condition}")
        time.sleep(pause)
        pause = min(1.3 * pause, every)
    return value
