"""Declarations of a test's own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_vtqueue import recurring, task
from django_vtqueue.tasks import recurring as registry
from django_vtqueue.tasks.compat import Task

Declare = Callable[..., None]


@task
def report(*args: Any, **kwargs: Any) -> None: ...


@task(unique_key="own")
def unique() -> None: ...


@task(unique_key=lambda: None)
def keyless() -> None: ...


@task(unique_key="start", unique_until="start")
def until_start() -> None: ...


@task(unique_key=lambda: None, on_duplicate="error")
def keyless_error() -> None: ...


@task(expires=3)
def expiring() -> None: ...


@task
def two(a: int, b: int) -> None: ...


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """Return a function that declares schedules of a task, ``report`` if it names none, until the test ends."""
    monkeypatch.setattr(registry, "_functions", {})

    def declare(*cron: str, on: Task | Callable[..., Any] = report, **arguments: Any) -> None:
        recurring(*cron, **arguments)(on)

    yield declare
    for each in (report, unique, keyless, keyless_error, until_start, expiring, two):
        vars(each.func).pop(registry.ATTRIBUTE, None)


@pytest.fixture
def redeclare(declare: Declare) -> Declare:
    """Return a function that declares something in the place of all that was declared: another version of the code."""

    def redeclare(*cron: str, **arguments: Any) -> None:
        registry._functions.clear()
        vars(report.func).pop(registry.ATTRIBUTE, None)
        declare(*cron, **arguments)

    return redeclare
