"""A forked child holds nothing of its parent's."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from django_vtqueue import Lease, LeaseLost

from ..waiting import PATIENCE


def in_child(act: Callable[[], bool]) -> bool:
    """Return what ``act`` returns in a forked child, which must end."""
    if (pid := os.fork()) == 0:
        signal.alarm(20)
        code = 2
        try:
            code = 0 if act() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


@pytest.fixture
def held(leases: Any) -> Lease:
    """Return a lease that is held, and renewed by a thread."""
    lease: Lease = leases(renewing=True, on_lost=lambda: os._exit(3))
    lease.acquire()
    return lease


def test_a_child_holds_nothing(held: Lease) -> None:
    """In a child ``held`` is False, and ``check`` raises; ``on_lost`` is not called there."""

    def act() -> bool:
        with pytest.raises(LeaseLost):
            held.check()
        held.release()
        return not held.held and held.token is None and held.remaining() == 0

    assert in_child(act)
    assert held.held


def test_whatever_the_parent_is_doing(held: Lease) -> None:
    """No lock that a thread of the parent has at the fork stops a child."""
    with held._holder._changing, held._holder._deciding:
        assert in_child(lambda: not held.held and held.release() is None)


def test_a_child_is_an_instance_of_its_own(held: Lease, alias: str) -> None:
    """A child cannot acquire what its parent holds; once it is released it can, and gives it back by ending."""

    def act(free: bool) -> bool:
        connections[alias].connection = None  # the parent's: a child has its own
        return held.acquire(blocking=False) is free

    assert in_child(lambda: act(free=False))
    assert held.held
    token = held.token
    held.release()
    connections[alias].close()
    assert in_child(lambda: act(free=True))
    assert held.acquire(timeout=PATIENCE)
    assert token is not None
    assert held.token == token + 2


def test_a_child_does_not_keep_the_doorbell_alive(held: Lease, tmp_path: Any) -> None:
    """A child that lives on does not hide the death of its parent."""
    assert held._holder._bell
    socket = os.stat(f"/proc/self/fd/{held._holder._bell.fileno()}").st_ino

    def act() -> bool:
        there = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return socket not in [os.stat(path).st_ino for path in there if os.path.exists(path)]

    assert in_child(act)
