"""Instances of a lease in one process, and a boot clock in the test's hands."""

from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from django_vtqueue import Lease
from django_vtqueue.core import clock
from django_vtqueue.patterns import holder

TTL = 30.0


class BootClock:
    """Seconds since the boot of the machine: they pass only when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> BootClock:
    """Stop the boot clock of this process; the test moves it."""
    fake = BootClock()
    monkeypatch.setattr(clock, "since_boot", fake)
    return fake


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the thread that renews look at the boot clock all the time, for a test that moves it."""
    monkeypatch.setattr(holder, "LOOK_AT_CLOCK", 0.01)


@pytest.fixture
def leases(alias: str, settings: Any) -> Iterator[Any]:
    """Return a function that makes instances, which renew nothing by themselves; those that hold give it back."""
    made: list[Lease] = []

    def lease(name: str = "nightly", ttl: Any = TTL, renewing: bool = False, **options: Any) -> Lease:
        made.append(Lease(name, ttl, **{"using": alias, "renewing": renewing, **options}))
        return made[-1]

    with TemporaryDirectory(prefix="vtq-") as doorbells:
        options = {"database": alias, "doorbells": doorbells}
        settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
        yield lease
        for each in made:
            each.release()
