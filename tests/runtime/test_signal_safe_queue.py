"""The queue of messages that signal handlers fill."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from queue import Empty

import pytest

from django_vtqueue.runtime.signal_safe_queue import SignalSafeQueue


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Have a handler that takes a moment for a signal of this process."""
    usual = signal.signal(signal.SIGUSR2, lambda *_: sum(range(20_000)))
    yield
    signal.signal(signal.SIGUSR2, usual)


def test_signals_do_not_prolong_a_wait(interrupted: None) -> None:
    """However often a wait is interrupted, it ends in time: a worker must go on to renew its leases."""
    inbox: SignalSafeQueue[str] = SignalSafeQueue()
    until = time.monotonic() + 1

    def storm() -> None:
        while time.monotonic() < until:
            os.kill(os.getpid(), signal.SIGUSR2)
            time.sleep(0.0031)
        inbox.put("over")

    thread = threading.Thread(target=storm)
    thread.start()
    waits = 0
    while thread.is_alive():
        try:
            assert inbox.get(0.003) == "over"
        except Empty:
            waits += 1
    thread.join()
    assert waits > 20


def test_a_stopped_clock_does_not_prolong_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait ends after its seconds, although a test has stopped Python's own clocks."""
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
        monkeypatch.setattr(time, name, partial(int, getattr(time, name)()))
    with pytest.raises(Empty):
        SignalSafeQueue[int]().get(0.01)


def test_messages_come_in_order() -> None:
    """None is lost, whether it came before the wait, meanwhile, or from a signal handler."""
    inbox: SignalSafeQueue[int] = SignalSafeQueue()
    for number in range(3):
        inbox.put(number)
    assert [inbox.get(0) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(Empty):
        inbox.get(0)
    threading.Timer(0.01, inbox.put, [3]).start()
    assert inbox.get(10) == 3
    usual = signal.signal(signal.SIGUSR2, lambda *_: inbox.put(4))
    try:
        threading.Timer(0.01, os.kill, [os.getpid(), signal.SIGUSR2]).start()
        assert inbox.get(10) == 4
    finally:
        signal.signal(signal.SIGUSR2, usual)
