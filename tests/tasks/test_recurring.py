"""``@recurring``: what may be declared, what is refused where it stands, and what ``manage.py check`` finds."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks
from pytest_django import Settings

from django_vtqueue import recurring, task
from django_vtqueue.recurrence.declaring import declared
from django_vtqueue.tasks import recurring as registry
from django_vtqueue.tasks.compat import Task, framework_task

any_recurring: Any = recurring  # for calls that type checkers refuse, as they should


@task
def report(kind: str = "pdf") -> str:
    return kind


@task
def other() -> None: ...


def plain() -> None: ...


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have nothing declared before each test, nor after it."""
    monkeypatch.setattr(registry, "_functions", {})
    yield
    for function in (report.func, other.func, plain):
        vars(function).pop(registry.ATTRIBUTE, None)


def errors() -> list[str]:
    return [error.msg for error in run_checks() if error.id == "vtqueue.E020"]


def test_names() -> None:
    """The path of the task; with its expressions, if it has several without a name."""
    path = report.module_path
    recurring("0 3 * * *")(report)
    assert list(declared("default")) == [path]
    recurring(every=timedelta(minutes=5), name="often")(report)
    assert set(declared("default")) == {path, "often"}
    recurring("0  4 * * mon")(report)
    assert set(declared("default")) == {f"{path} 0 3 * * *", f"{path} 0 4 * * MON", "often"}


def test_what_is_declared(settings: Settings) -> None:
    """Is what will be stored, with the default of what was left out."""
    settings.TIME_ZONE = "Asia/Tokyo"
    recurring("0 3 * * *", name="plain")(report)
    recurring(
        every=timedelta(hours=1), missed="all", overlap=False, jitter=timedelta(seconds=9), name="rich", args=("csv",)
    )(report)
    plain, rich = (declared("default")[name] for name in ("plain", "rich"))
    assert (plain.expression, plain.time_zone, plain.missed, plain.overlap) == ("0 3 * * *", "Asia/Tokyo", "one", True)
    assert (plain.payload, plain.jitter_us) == ({"args": [], "kwargs": {}}, 0)
    assert (rich.expression, rich.time_zone, rich.missed, rich.overlap) == ("every 3600", "", "all", False)
    assert (rich.payload, rich.jitter_us) == ({"args": ["csv"], "kwargs": {}}, 9_000_000)


def test_the_task_stays_a_task() -> None:
    """It is what it was: to be called and enqueued; Django's own decorator will do."""
    assert recurring("0 3 * * *")(report) is report
    assert report.call("csv") == "csv"
    django: Task = framework_task(plain)
    assert recurring("0 3 * * *")(django) is django
    assert vars(plain)[registry.ATTRIBUTE]


def test_on_another_backend(settings: Settings) -> None:
    """The module imports, nothing is declared, and no check complains: the declaration is for our workers only."""
    framework = framework_task.__module__.rpartition(".")[0] or framework_task.__module__
    recurring("0 3 * * *")(report)
    settings.TASKS = {"default": {"BACKEND": f"{framework.split('.base')[0]}.backends.dummy.DummyBackend"}}
    assert errors() == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "a cron expression or every"),
        ({"every": 5, "cron": "0 3 * * *"}, "one of them"),
        ({"every": 5, "tz": "UTC"}, "takes no tz"),
        ({"every": 0.5}, "whole seconds"),
        ({"cron": "0 0 3 * * *"}, "has 6 fields, but must have five"),
        ({"cron": "every 5"}, "say every=timedelta"),
        ({"cron": timedelta(5)}, "takes an expression"),
        ({"every": 5, "missed": "some"}, "missed is 'some', but must be 'one' or 'all' or 'skip'"),
        ({"every": 5, "overlap": 1}, "overlap is 1, but must be True or False"),
        ({"every": 5, "jitter": -1}, "jitter is -1, but must be a number of seconds"),
        ({"every": 5, "name": ""}, "name of a schedule is one line of 1 to 200"),
        ({"every": 5, "name": "two\nlines"}, "is one line"),
        ({"every": 5, "name": "x" * 201}, "1 to 200"),
        ({"every": 5, "args": [object()]}, "Unsupported type"),
        ({"every": 5, "args": "abc"}, "args is 'abc', but must be a list"),
        ({"every": 5, "args": b"abc"}, "args is b'abc', but must be a list"),
        ({"every": 5, "args": {"kind": "csv"}}, "args is {'kind': 'csv'}, but must be a list"),
        ({"every": 5, "args": None}, "args is None, but must be a list"),
        ({"every": 5, "kwargs": None}, "kwargs is None, but must be a dictionary"),
        ({"every": 5, "kwargs": ["a"]}, "but must be a dictionary"),
        ({"cron": "0 3 * * *", "tz": ""}, "tz is '', but must be a text or None"),
        ({"cron": "0 3 * * *", "tz": 1}, "tz is 1, but must be a text or None"),
        ({"every": 5, "kwargs": {1: 2}}, "pass strings as keys"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], problem: str) -> None:
    """Where it stands, with what was given and what is allowed."""
    cron = [arguments.pop("cron")] if "cron" in arguments else []
    with pytest.raises((TypeError, ValueError), match=problem):
        any_recurring(*cron, **arguments)


@pytest.mark.parametrize("wrong", [7, print, type("Task", (), {})])
def test_what_it_stands_above(wrong: Any) -> None:
    """Not above what is no function of Python's."""
    with pytest.raises(TypeError, match="@recurring stands above @task, not above"):
        recurring(every=5)(wrong)


def test_check_finds_what_is_no_task() -> None:
    """A function without @task, or one that cannot be found by its path."""
    recurring(every=5)(plain)
    [error] = errors()
    assert "@recurring on tests.tasks.test_recurring.plain): it is not above a task. Write @task below it" in error


@pytest.mark.parametrize(
    ("cron", "arguments", "problem"),
    [
        ("0 0 30 2 *", {}, "'0 0 30 2 *' never comes"),
        ("0 3 * * *", {"tz": "Mars/Olympus"}, "There is no time zone 'Mars/Olympus' on this machine"),
        ("0 3 * * *", {"args": [1, 2]}, "does not fit tests.tasks.test_recurring.report"),
    ],
)
def test_check_finds_what_can_never_be_run(cron: str, arguments: dict[str, Any], problem: str) -> None:
    """With the name of the schedule, and where it is declared."""
    recurring(cron, name="nightly", **arguments)(report)
    [error] = errors()
    assert error.startswith("The schedule 'nightly' (@recurring on tests.tasks.test_recurring.report): ")
    assert problem in error


def test_check_finds_a_name_that_is_there_twice() -> None:
    """Of two tasks, or of one: only one of them could be run."""
    recurring(every=5, name="same")(report)
    recurring(every=6, name="same")(other)
    [error] = errors()
    assert "report has a schedule of that name, too" in error
    recurring(every=7)(report)
    recurring(every=7)(report)
    assert len(errors()) == 2


def test_what_is_right_is_not_mentioned() -> None:
    """Nothing is said of it."""
    recurring("0 3 * * *", tz="Europe/Paris", kwargs={"kind": "csv"})(report)
    recurring(every=5)(other)
    assert errors() == []
