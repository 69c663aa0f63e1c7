"""What Django documents for every backend of its Tasks framework, and what this one promises on top of it."""

import asyncio
import importlib
import json
import logging
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from threading import Event
from types import MappingProxyType
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.db.models import TextField
from django.db.models.functions import Cast
from django.dispatch import Signal
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from django_vtqueue import ClaimedJob, GiveUp, PayloadTooLarge, Queue, Retry, enqueue_many, task
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core import clock
from django_vtqueue.core.clock import to_instant
from django_vtqueue.core.job import Scope
from django_vtqueue.exceptions import UnknownTask
from django_vtqueue.models import DeadLetter, Job, WorkerProcess
from django_vtqueue.queue import doorbell, publishing, workers
from django_vtqueue.tasks.compat import (
    InvalidTask,
    Task,
    TaskContext,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    framework_task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from django_vtqueue.tasks.lookup import find_task, loaded_task
from django_vtqueue.tasks.task import options_of
from django_vtqueue.worker.inline import Line, run_due
from tests import project
from tests.pending import run_pending

from ..columns import as_stored
from ..waiting import PATIENCE, wait_until

FRAMEWORK = Task.__module__.rpartition(".")[0]  # django.tasks or django_tasks
OURS = "django_vtqueue.backend.VTQueueBackend"
IMMEDIATE, DUMMY = f"{FRAMEWORK}.backends.immediate.ImmediateBackend", f"{FRAMEWORK}.backends.dummy.DummyBackend"
TaskResultMismatch = importlib.import_module(f"{FRAMEWORK}.exceptions").TaskResultMismatch

BERLIN = ZoneInfo("Europe/Berlin")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

Call = tuple[tuple[Any, ...], dict[str, Any]]

any_task: Any = task  # for calls that type checkers refuse, as they should


@task
def add(a: int, b: int) -> int:
    return a + b


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return [*args, kwargs]


@task
async def add_async(a: int, b: int) -> int:
    return a + b


@task(max_attempts=1)
def fails(message: str) -> None:
    raise LookupError(message)


@task(max_attempts=3, backoff=0)
def fails_twice() -> str:
    if len(executions) < 3:
        raise LookupError("not yet")
    return "at last"


@task(takes_context=True, max_attempts=3, backoff=0)
def with_context(context: TaskContext, wanted: int) -> dict[str, Any]:
    if context.attempt < wanted:
        raise Retry("once more")
    return {"attempt": context.attempt, "id": context.task_result.id, "args": context.task_result.args}


@task
def gives_up() -> None:
    raise GiveUp("no such report")


class NoSuchReport(GiveUp):
    """A project's own reason."""


@task
def gives_up_in_its_own_words() -> None:
    raise NoSuchReport


@task
def returns_a_set() -> set[int]:
    return {1}


@task
def returns_itself() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@task(transactional=True, backoff=lambda error, result: 1)
def returns_an_object() -> object:
    add.enqueue(1, 2)
    return object()


def handle_with_a_set(job: ClaimedJob) -> set[int]:
    return {1}


@task(max_attempts=1)
def exits() -> None:
    raise SystemExit(3)


@task
def interrupted() -> None:
    raise KeyboardInterrupt


class Shop:
    """Tasks may be static methods: they are functions of the module too."""

    @staticmethod
    @task
    def receipt(order: int) -> str:
        return f"receipt {order}"


def no_task() -> None:
    raise AssertionError("only tasks may be run")


executions: list[TaskResult] = []


@pytest.fixture(autouse=True)
def count_executions() -> Iterator[None]:
    executions.clear()
    with listening(task_started, executions):
        yield


@contextmanager
def listening(signal: Signal, heard: list[Any]) -> Iterator[None]:
    """Note the result of each signal that our backend (its class is the sender) sends in the block."""

    def listen(task_result: TaskResult, **kwargs: Any) -> None:
        heard.append(task_result)

    signal.connect(listen, sender=VTQueueBackend)
    try:
        yield
    finally:
        signal.disconnect(listen, sender=VTQueueBackend)


@contextmanager
def rolled_back() -> Iterator[None]:
    """Take back what the block writes."""
    with suppress(ZeroDivisionError), transaction.atomic():
        yield
        raise ZeroDivisionError


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Return a function that stops the clock at a moment."""

    def stop_at(moment: datetime) -> None:
        monkeypatch.setattr(clock, "now", lambda: to_instant(moment))

    return stop_at


def use(settings: Settings, backend: str = OURS, **params: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": backend, "QUEUES": [], **params}}


def stored(result: TaskResult) -> Job:
    return Job.objects.get(id=result.id)


def damage(of: TaskResult, /, **columns: Any) -> None:
    """Change a row as somebody with a database shell may."""
    assert Job.objects.filter(id=of.id).update(**as_stored(columns)) == 1


# -- validation -----------------------------------------------------------------------------------------------------


def test_queues(settings: Settings) -> None:
    """A queue that is not in QUEUES is refused when the task is defined, by ``using``, and when it is enqueued."""
    elsewhere = add.using(queue_name="elsewhere")
    use(settings, QUEUES=["default", "emails"])
    assert add.using(queue_name="emails").queue_name == "emails"
    for attempt in (
        lambda: task(queue_name="elsewhere")(add.func),
        lambda: add.using(queue_name="elsewhere"),
        lambda: elsewhere.enqueue(1, 2),
    ):
        with pytest.raises(
            InvalidTask, match=r"Queue 'elsewhere' is not valid for backend 'default': .* default, emails"
        ):
            attempt()


@pytest.mark.django_db
def test_any_queue(settings: Settings) -> None:
    """``QUEUES: []`` allows any queue."""
    use(settings, QUEUES=[])
    result = add.using(queue_name="any").enqueue(1, 2)
    assert stored(result).queue_name == "any"


@pytest.mark.parametrize("name", ["", "n" * 256, "a\0b", "\ud800"])
def test_no_name_of_a_queue(settings: Settings, name: str) -> None:
    """Nor can a task be in a queue that no ``Queue`` can be: SQLite would store it, and not find it beside a pause."""
    use(settings, QUEUES=[])
    for attempt in (lambda: task(queue_name=name)(add.func), lambda: add.using(queue_name=name)):
        with pytest.raises(InvalidTask, match=r"A queue's name is a text of 1 to 255 characters, without NUL .* not '"):
            attempt()


@pytest.mark.parametrize("priority", [-101, 101, 1.5, 1e9, "high", float("nan"), float("inf")])
def test_wrong_priority(priority: Any) -> None:
    """A priority is a whole number from -100 to 100."""
    for attempt in (lambda: any_task(priority=priority)(add.func), lambda: add.using(priority=priority)):
        with pytest.raises(InvalidTask, match="priority must be a whole number between -100 and 100"):
            attempt()


@pytest.mark.django_db
@pytest.mark.parametrize("priority", [-100, 0, 7.0, 100])
def test_priority(priority: Any) -> None:
    """The priority of the call is stored, and shown by its result."""
    result = add.using(priority=priority).enqueue(1, 2)
    assert stored(result).priority == priority
    assert add.get_result(result.id).task.priority == priority


def test_functions_that_cannot_be_tasks() -> None:
    """A task is a function at the top of a module: a worker must be able to find it by its name."""

    def local() -> None: ...

    for function in (local, lambda: None, len, Shop):
        with pytest.raises(InvalidTask, match="must be defined at a module level"):
            any_task(function)


def test_context_argument() -> None:
    """A task that takes the context has it as its first argument, named ``context``."""
    with pytest.raises(InvalidTask, match="does not have a first argument of 'context'"):
        any_task(takes_context=True)(add.func)


@pytest.mark.django_db
@pytest.mark.parametrize("value", [object(), {1}, float("nan"), {1: "a key"}, datetime(2030, 1, 1), b"\xff"])
def test_arguments_that_are_not_json(value: Any) -> None:
    """Arguments that are not JSON raise in the caller, also those that Django's own check lets through."""
    for attempt in (
        lambda: echo.enqueue(value),
        lambda: echo.enqueue(key=value),
        lambda: echo.enqueue([{"deep": value}]),
        lambda: enqueue_many(echo, [((1,), {}), ((value,), {})]),
    ):
        with pytest.raises((TypeError, ValueError)):
            attempt()
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_the_arguments_of_many_may_be_in_any_mapping() -> None:
    """Only the values that a task is given are JSON's own types."""
    [result] = enqueue_many(echo, [([1, 2], MappingProxyType({"wanted": 3}))])
    assert (result.args, result.kwargs) == ([1, 2], {"wanted": 3})


@pytest.mark.django_db
def test_arguments_come_back_as_json() -> None:
    """The result has the arguments as the task gets them: tuples are lists, text and numbers are the same."""
    result = echo.enqueue((1, "ü\0\ud800"), wanted=2**70)
    assert (result.args, result.kwargs) == ([[1, "ü\0\ud800"]], {"wanted": 2**70})
    run_pending()
    found = echo.get_result(result.id)
    assert (found.args, found.kwargs) == (result.args, result.kwargs)
    assert found.return_value == [*found.args, found.kwargs]


@pytest.mark.django_db
def test_large_payload(settings: Settings) -> None:
    """A payload above ``max_payload_bytes`` is refused in the caller; the text says what to do."""
    use(settings, OPTIONS={"max_payload_bytes": 1000})
    with pytest.raises(PayloadTooLarge, match=r"max_payload_bytes allows 1,000.*publish a reference"):
        fails.enqueue("ü" * 500)
    assert not Job.objects.exists()


# -- results --------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_result_of_a_success() -> None:
    """A result is READY with nothing to show, and after the run SUCCESSFUL with the return value and its times."""
    result = add.enqueue(3, b=4)
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.backend) == ([], [], "default")
    assert result.task == add
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value

    run_pending()
    assert not result.is_finished  # a result is what it was when it was read
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.SUCCESSFUL, True, 1)
    assert result.return_value == 7
    times = [result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at]
    assert times == sorted(moment for moment in times if moment)
    assert (result.errors, len(result.worker_ids)) == ([], 1)


@pytest.mark.django_db
def test_result_of_a_failure() -> None:
    """A task whose attempts are used up is FAILED, its errors name the exception and have the traceback."""
    result = fails.enqueue("no such shelf")
    run_pending()
    for found in (fails.get_result(result.id), task_backends["default"].get_result(result.id)):
        assert (found.status, found.is_finished, found.attempts) == (TaskResultStatus.FAILED, True, 1)
        with pytest.raises(ValueError, match="Task failed"):
            _ = found.return_value
        [error] = found.errors
        assert error.exception_class is LookupError
        assert error.traceback.startswith("Traceback")
        assert error.traceback.endswith("LookupError: no such shelf\n")
        assert found.finished_at is not None


@pytest.mark.django_db
def test_result_between_two_attempts() -> None:
    """Waiting for a retry is READY with the errors so far; every execution counts as an attempt, with its worker."""
    result = fails_twice.enqueue()
    seen = [
        (item.status, item.attempts, len(item.errors), len(item.worker_ids), item.is_finished)
        for item in run_pending(until=timedelta(hours=1))
    ]
    assert seen == [
        (TaskResultStatus.READY, 1, 1, 1, False),
        (TaskResultStatus.READY, 2, 2, 2, False),
        (TaskResultStatus.SUCCESSFUL, 3, 2, 3, True),
    ]
    found = fails_twice.get_result(result.id)
    assert (found.return_value, found.attempts, len(found.errors)) == ("at last", 3, 2)
    times = [found.enqueued_at, found.started_at, found.last_attempted_at, found.finished_at]
    assert times == sorted(moment for moment in times if moment)


@pytest.mark.django_db
def test_context() -> None:
    """A task that takes the context sees its attempt's number and its own result."""
    result = with_context.enqueue(2)
    run_pending(until=timedelta(hours=1))
    result.refresh()
    assert result.return_value == {"attempt": 2, "id": result.id, "args": [2]}


@pytest.mark.django_db
def test_a_subclass_ends_an_attempt_as_its_base_does() -> None:
    """The history says of NoSuchReport(GiveUp) that the task gave up, and does not call that a failure."""
    result = gives_up_in_its_own_words.enqueue()
    run_pending()
    letter = DeadLetter.objects.get(pk=result.id)
    assert [entry["outcome"] for entry in letter.history] == ["gave up"]
    assert letter.exception_class.endswith(".NoSuchReport")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("called", "kind"), [(gives_up, GiveUp), (returns_a_set, TypeError), (exits, SystemExit)], ids=lambda item: ""
)
def test_failures_of_other_kinds(called: Task, kind: type[BaseException]) -> None:
    """Giving up, a result that is not JSON and ``SystemExit`` are failures, and end no worker."""
    result = called.enqueue()
    after = add.enqueue(1, 2)
    run_pending()
    result.refresh()
    after.refresh()
    assert [error.exception_class for error in result.errors] == [kind]
    assert after.return_value == 3


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("called", [returns_a_set, returns_itself, returns_an_object], ids=lambda item: item.name)
def test_a_result_that_is_not_json_is_not_retried(called: Task) -> None:
    """However many attempts are left, and whatever the backoff says, it is a dead letter that says so."""
    result = called.enqueue()
    run_pending(until=timedelta(days=1))
    letter = DeadLetter.objects.get()
    assert (str(letter.pk), letter.attempts, letter.max_attempts, len(executions)) == (result.id, 1, 10, 1)
    assert re.fullmatch(
        r"Unsupported type: .*\. result is not JSON: pass .*\. The call has returned, so it is not tried again\.",
        letter.message,
    )
    assert [entry["outcome"] for entry in letter.history] == ["failed"]
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == (TaskResultStatus.FAILED, TypeError)
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_what_a_handler_returns_is_not_retried(settings: Settings) -> None:
    """The same holds for what the handler of raw jobs returns."""
    use(settings, OPTIONS={"queue_options": {"raw": {"handler": f"{__name__}.handle_with_a_set"}}})
    Queue("raw").publish("x")
    [outcome] = run_due([Line(VTQueueBackend("default", settings.TASKS["default"]), [Scope(("raw",), raw=True)])])
    assert outcome.settlement.state == "FAILED"
    assert DeadLetter.objects.get().attempts == 1


@pytest.mark.django_db
def test_interrupt_gives_the_job_back() -> None:
    """Ctrl-C while a task runs ends the run, not the job: it is due again, and no attempt was used."""
    result = interrupted.enqueue()
    with pytest.raises(KeyboardInterrupt):
        run_pending()
    job = stored(result)
    assert (job.state, job.attempts) == ("READY", 0)


@pytest.mark.django_db
def test_enqueue_in_async_code() -> None:
    """What may not be called there says what is: ``aenqueue``, or a queue's ``apublish``."""

    async def enqueue() -> None:
        add.enqueue(1, 2)

    async def publish() -> None:
        Queue("raw").publish(1)

    with pytest.raises(SynchronousOnlyOperation, match=r"In async code: await add\.aenqueue\("):
        asyncio.run(enqueue())
    with pytest.raises(SynchronousOnlyOperation, match=r"In async code: await queue\.apublish\("):
        asyncio.run(publish())


@pytest.mark.django_db
def test_async_interface() -> None:
    """``aenqueue``, ``aget_result`` and ``arefresh`` are the same as their twins; tasks may be coroutines."""

    async def enqueue() -> TaskResult:
        return await add_async.aenqueue(20, 22)

    async def look(result: TaskResult) -> TaskResult:
        await result.arefresh()
        return await add_async.aget_result(result.id)

    result = async_to_sync(enqueue)()
    run_pending()
    found = async_to_sync(look)(result)
    assert result.return_value == found.return_value == 42


@pytest.mark.django_db
def test_static_methods() -> None:
    """A static method that is a task is found by its path in the class."""
    result = Shop.receipt.enqueue(7)
    assert stored(result).task_path == "tests.tasks.test_django.Shop.receipt"
    run_pending()
    result.refresh()
    assert result.return_value == "receipt 7"


def test_a_static_method_of_a_module_that_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker imports the module of its class; what is in no module is said to be missing."""
    (tmp_path / "late.py").write_text(
        "from django_vtqueue import task\nclass Shop:\n    @staticmethod\n    @task\n    def close(): ...\n"
    )
    monkeypatch.setattr(project, "__path__", [*project.__path__, str(tmp_path)])
    assert find_task("tests.project.late.Shop.close").name == "close"
    with pytest.raises(UnknownTask, match=r"there is no module 'tests\.project\.late\.Mall'"):
        find_task("tests.project.late.Mall.close")
    monkeypatch.delitem(sys.modules, "tests.project.late")


@pytest.mark.django_db
def test_unknown_ids() -> None:
    """Every id that is not one of a task raises ``TaskResultDoesNotExist``, however malformed it is."""
    raw = Queue("default").publish({})
    ids: list[Any] = [str(uuid4()), str(raw), "", "x", "7", "\0", "ü" * 5000, None, 7, b"7", object()]
    for unknown in ids:
        for look in (add.get_result, task_backends["default"].get_result, async_to_sync(add.aget_result)):
            with pytest.raises(TaskResultDoesNotExist):
                look(unknown)


@pytest.mark.django_db
def test_result_of_another_task() -> None:
    """A task refuses the result of another one; the backend gives it."""
    result = add.enqueue(1, 2)
    for look in (echo.get_result, async_to_sync(echo.aget_result)):
        with pytest.raises(TaskResultMismatch):
            look(result.id)
    assert task_backends["default"].get_result(result.id).task == add


@pytest.mark.django_db
def test_refresh_of_a_result_that_is_gone() -> None:
    """Refreshing a result that was pruned or purged says that it does not exist."""
    result = add.enqueue(1, 2)
    Queue("default").purge()
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


# -- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_signals() -> None:
    """``task_enqueued`` once a call, ``task_started`` once an attempt, ``task_finished`` once, at the job's end."""
    enqueued: list[TaskResult] = []
    finished: list[TaskResult] = []
    with listening(task_enqueued, enqueued), listening(task_finished, finished):
        result = fails_twice.enqueue()
        assert [item.id for item in enqueued] == [result.id]
        run_pending(until=timedelta(hours=1))

    assert len(enqueued) == 1
    assert [item.id for item in executions] == [result.id] * 3
    assert [(item.id, item.status, item.return_value) for item in finished] == [
        (result.id, TaskResultStatus.SUCCESSFUL, "at last")
    ]


@pytest.mark.django_db
def test_signal_of_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """``task_finished`` of a failure is sent while the exception is handled: Django's log line has its traceback."""
    finished: list[TaskResult] = []
    with listening(task_finished, finished), caplog.at_level(logging.ERROR, logger=FRAMEWORK):
        fails.enqueue("no such shelf")
        run_pending()
    assert [item.status for item in finished] == [TaskResultStatus.FAILED]
    [record] = [record for record in caplog.records if record.name == FRAMEWORK]
    assert record.exc_info
    assert "no such shelf" in (record.exc_text or "")


@pytest.mark.django_db
def test_signal_of_a_running_task() -> None:
    """``task_started`` shows a RUNNING result, with the attempt and the worker that it is about."""
    seen: list[Any] = []

    def listen(task_result: TaskResult, **kwargs: Any) -> None:
        seen.append((task_result.status, task_result.attempts, len(task_result.worker_ids), task_result.started_at))

    task_started.connect(listen)
    try:
        add.enqueue(1, 2)
        run_pending()
    finally:
        task_started.disconnect(listen)
    [(status, attempts, workers, started)] = seen
    assert (status, attempts, workers) == (TaskResultStatus.RUNNING, 1, 1)
    assert started is not None


@pytest.mark.django_db
def test_receivers_that_raise() -> None:
    """A receiver that raises (a mail that cannot be sent) harms neither the task nor the others."""

    def broken(**kwargs: Any) -> None:
        raise OSError("no mail server")

    finished: list[TaskResult] = []
    task_started.connect(broken)
    task_finished.connect(broken)
    try:
        with listening(task_finished, finished):
            for number in (1, 2):
                add.enqueue(number, 0)
            run_pending()
    finally:
        task_started.disconnect(broken)
        task_finished.disconnect(broken)
    assert [item.return_value for item in finished] == [1, 2]


# -- run_after ------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_scheduled_task() -> None:
    """A task with ``run_after`` runs at that time and not before; until then its result says when."""
    moment = timezone.now() + timedelta(hours=1)
    result = add.using(run_after=moment).enqueue(1, 2)
    assert result.task.run_after == moment
    assert add.get_result(result.id).task.run_after == moment
    assert run_pending() == []
    [ran] = run_pending(until=timedelta(hours=2))
    assert ran.return_value == 3


@pytest.mark.parametrize("moment", [60, 1.5, True, "2040-01-01", date(2040, 1, 1)])
def test_run_after_of_other_types(moment: Any) -> None:
    """A number, or anything else that is no moment and no duration, is refused at once, with what is meant."""
    text = f"run_after is {moment!r}, but must be a datetime or a timedelta: timedelta(seconds=60) from now."
    with pytest.raises(TypeError, match=re.escape(text)):
        add.using(run_after=moment)


@pytest.mark.django_db
def test_run_after_in_the_past() -> None:
    """A moment that has passed is now."""
    result = add.using(run_after=LONG_AGO).enqueue(1, 2)
    assert stored(result).visible_at == stored(result).enqueued_at
    assert len(run_pending()) == 1


def test_naive_run_after_with_time_zones() -> None:
    """With USE_TZ a naive ``run_after`` is refused: whose time would it be?"""
    with pytest.raises(InvalidTask, match="run_after must be an aware datetime"):
        add.using(run_after=datetime(2040, 1, 1))
    with pytest.raises(ValueError, match=r"naive datetime while USE_TZ is on; use timezone.make_aware"):
        Queue("q").publish({}, publish_at=datetime(2040, 1, 1))


# The night of 28 October 2040: at 3:00 summer time (UTC+2) it is 2:00 winter time (UTC+1); 2:30 comes twice.
# The night of 25 March 2040: 2:30 never comes; it counts as an hour and a half after 1:00 (UTC+1).
MOMENTS = [
    (datetime(2040, 10, 28, 1, 30), datetime(2040, 10, 27, 23, 30)),
    (datetime(2040, 10, 28, 2, 30, fold=0), datetime(2040, 10, 28, 0, 30)),
    (datetime(2040, 10, 28, 2, 30, fold=1), datetime(2040, 10, 28, 1, 30)),
    (datetime(2040, 10, 28, 3, 30), datetime(2040, 10, 28, 2, 30)),
    (datetime(2040, 3, 25, 2, 30), datetime(2040, 3, 25, 1, 30)),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("given", "utc"), MOMENTS)
@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize("aware", [True, False])
def test_run_after_when_the_clocks_change(
    settings: Settings, given: datetime, utc: datetime, use_tz: bool, aware: bool
) -> None:
    """The stored instant is right on the night when the clocks go back, for both folds, and when they go forward."""
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = "Europe/Berlin"
    moment = given.replace(tzinfo=BERLIN) if aware else given
    if use_tz and not aware:
        moment = timezone.make_aware(given)

    called = add.using(run_after=moment)
    for result in (called.enqueue(1, 2), enqueue_many(called, [((1, 2), {})])[0]):
        with connection.cursor() as cursor:
            cursor.execute("SELECT visible_at FROM vtqueue_job WHERE id = %s", [result.id.replace("-", "")])
            assert cursor.fetchone()[0] == to_instant(utc.replace(tzinfo=UTC))
        shown = add.get_result(result.id).task.run_after
        assert shown is not None
        assert timezone.is_aware(shown) is use_tz
        assert to_instant(shown) == to_instant(utc.replace(tzinfo=UTC))


@pytest.mark.django_db
@pytest.mark.parametrize("use_tz", [True, False])
def test_timedelta_when_the_clocks_change(
    settings: Settings, stopped_clock: Callable[[datetime], None], use_tz: bool
) -> None:
    """``run_after`` takes a ``timedelta``, as Django documents: so much time passes, whatever the clocks do."""
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = "Europe/Berlin"
    now = datetime(2040, 10, 27, 18, 0, tzinfo=BERLIN)
    stopped_clock(now)
    later: Any = timedelta(hours=24)
    job = stored(add.using(run_after=later).enqueue(1, 2))
    assert to_instant(job.visible_at) - to_instant(now) == 24 * 3600 * 1_000_000
    assert (job.visible_at.hour, timezone.is_aware(job.visible_at)) == ((16, True) if use_tz else (17, False))


@pytest.mark.django_db
def test_times_without_time_zones(settings: Settings) -> None:
    """With USE_TZ off every moment of a result is naive local time, as Django's own are."""
    settings.USE_TZ = False
    result = add.enqueue(1, 2)
    run_pending()
    for found in (result, add.get_result(result.id)):
        assert found.enqueued_at is not None
        assert timezone.is_naive(found.enqueued_at)
        assert abs(datetime.now() - found.enqueued_at) < timedelta(minutes=1)
    found.refresh()
    assert all(timezone.is_naive(moment) for moment in (found.started_at, found.finished_at) if moment)


# -- rows that have outlived their code, or were damaged ------------------------------------------------------------


@pytest.mark.django_db
def test_task_that_is_gone() -> None:
    """A task that was renamed or deleted is shown by its path; running it fails, and the next job runs."""
    result, after = add.enqueue(1, 2), add.enqueue(3, 4)
    damage(result, task_path="tests.tasks.test_django.deleted")
    found = task_backends["default"].get_result(result.id)
    assert (found.task.module_path, found.task.name) == ("tests.tasks.test_django.deleted", "deleted")
    assert (found.args, found.status) == ([1, 2], TaskResultStatus.READY)
    with pytest.raises(TaskResultMismatch):
        add.get_result(result.id)
    with pytest.raises(UnknownTask, match=r"There is no task 'tests\.tasks\.test_django\.deleted' here"):
        found.task.call()

    run_pending()
    after.refresh()
    assert after.return_value == 7
    found.refresh()
    assert [error.exception_class for error in found.errors] == [UnknownTask]
    assert (
        "'tests.tasks.test_django.deleted' is not a task: tests.tasks.test_django has no task of that name"
        in found.errors[0].traceback
    )


@pytest.mark.django_db
def test_unknown_task_waits() -> None:
    """An unknown task is tried again no sooner than 30 seconds later: the new code may be on its way."""
    result = add.enqueue(1, 2)
    damage(result, task_path="tests.project.tasks.not_yet_deployed")
    run_pending()
    job = stored(result)
    assert job.state == "SCHEDULED"
    assert job.started_at is not None
    assert job.visible_at - job.started_at >= timedelta(seconds=30)


@pytest.mark.django_db
def test_a_call_for_another_version_of_a_task_waits() -> None:
    """It is tried again after 30 seconds, then after twice as long: a worker with the other version may take it."""
    result = add.enqueue(1, 2)
    damage(result, payload={"args": [1], "kwargs": {}})
    run_pending()
    job = stored(result)
    assert job.started_at is not None
    assert (job.state, job.visible_at - job.started_at >= timedelta(seconds=30)) == ("SCHEDULED", True)
    run_pending(until=timedelta(seconds=60))
    assert stored(result).attempts == 2
    result.refresh()
    assert "enqueued by another version of the code" in result.errors[0].traceback


@pytest.mark.django_db
def test_a_call_for_another_version_of_a_task_is_not_tried_for_long() -> None:
    """Such a call is a dead letter when a deploy would be over, though the task may have ten attempts."""
    result = add.enqueue(1, 2)
    damage(result, payload={"args": [1], "kwargs": {}})
    run_pending(until=timedelta(minutes=10))
    letter = DeadLetter.objects.get(id=result.id)
    assert (letter.attempts, letter.exception_class) == (5, "builtins.TypeError")


@pytest.mark.django_db
def test_a_type_error_of_the_task_itself_is_tried_again_as_any_other() -> None:
    """Only what the call does not fit is another version."""
    result = add.enqueue(1, "x")
    run_pending()
    job = stored(result)
    assert job.started_at is not None
    assert job.visible_at - job.started_at < timedelta(seconds=30)


@pytest.mark.django_db
def test_unknown_task_ends_as_a_dead_letter() -> None:
    """With its last attempt an unknown task becomes a dead letter, with everything in it."""
    result = fails.enqueue("x")
    damage(result, task_path="tests.tasks.test_django.deleted")
    run_pending()
    letter = DeadLetter.objects.get(id=result.id)
    assert letter.exception_class == "django_vtqueue.exceptions.UnknownTask"
    assert letter.payload == {"args": ["x"], "kwargs": {}}
    assert task_backends["default"].get_result(result.id).status == TaskResultStatus.FAILED


@pytest.mark.django_db
def test_results_survive_changed_settings(settings: Settings) -> None:
    """History stays readable when a queue or USE_TZ has changed since: results are rebuilt without validation."""
    use(settings, QUEUES=["emails"])
    result = add.using(queue_name="emails", run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 2)
    use(settings, QUEUES=["default"])
    assert add.get_result(result.id).task.queue_name == "emails"
    settings.USE_TZ = False
    assert add.get_result(result.id).args == [1, 2]
    result.refresh()


GARBAGE = ["garbage", "", "\0", "[1", "null", "7", '"text"', "NaN", "{}", "[]", "[" * 100_000, "[null]", "ü" * 1000]


@pytest.mark.django_db
@pytest.mark.parametrize("payload", [*GARBAGE, '{"args": {}, "kwargs": {}}', '{"args": [], "kwargs": []}'])
def test_damaged_payload(payload: str) -> None:
    """A damaged payload is shown as no arguments; the job becomes a dead letter that says why; the next one runs."""
    result, after = add.enqueue(1, 2), add.enqueue(3, 4)
    damage(result, payload=payload)
    found = add.get_result(result.id)
    assert (found.args, found.kwargs) == ([], {})

    run_pending()
    after.refresh()
    assert after.return_value == 7
    found.refresh()
    assert found.status == TaskResultStatus.FAILED
    assert issubclass(found.errors[0].exception_class, ValueError)
    assert DeadLetter.objects.values_list(Cast("payload", TextField()), flat=True).get(id=result.id) == payload


@pytest.mark.django_db
@pytest.mark.parametrize(
    "history",
    [
        *GARBAGE,
        "[{}]",
        '[{"number": "x", "worker": 7, "started": "then", "exception_class": 7, "traceback": null}]',
        '[{"omitted": "many"}]',
        '[{"omitted": -5}, {"omitted": 1e9}]',
    ],
)
def test_damaged_history(history: str) -> None:
    """A damaged history is shown as far as it can be read, is kept, and stops neither a success nor a failure."""
    works, fails_for_good, after = add.enqueue(1, 2), fails.enqueue("x"), add.enqueue(3, 4)
    for result in (works, fails_for_good):
        damage(result, history=history)
        result.refresh()
        assert result.status == TaskResultStatus.READY

    run_pending()
    for result in (works, fails_for_good, after):
        result.refresh()
    assert (works.return_value, after.return_value) == (3, 7)
    assert fails_for_good.status == TaskResultStatus.FAILED
    assert fails_for_good.errors[-1].exception_class is LookupError


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["garbage", "", "[1", "[" * 100_000, None])
def test_damaged_result(text: str | None) -> None:
    """A damaged return value is shown as None; the rest of the result is there."""
    result = add.enqueue(1, 2)
    run_pending()
    damage(result, result=text)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 1)
    value: Any = result.return_value
    assert value is None


@pytest.mark.django_db
@pytest.mark.parametrize("column", ["payload", "history"])
@pytest.mark.parametrize("value", ["CAST(x'7b22ff' AS TEXT)", "7", "0.5"])
def test_bytes_that_are_no_text(column: str, value: str) -> None:
    """A number, or bytes that are no UTF-8, harm only the job that has them."""
    before, result, after = add.enqueue(1, 2), add.enqueue(3, 4), add.enqueue(5, 6)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE vtqueue_job SET {column} = {value} WHERE id = %s", [result.id.replace("-", "")])
    assert add.get_result(result.id).id == result.id
    run_pending()
    for whole, total in ((before, 3), (after, 11)):
        whole.refresh()
        assert whole.return_value == total
    result.refresh()
    assert result.is_finished


@pytest.mark.django_db
@pytest.mark.parametrize("instant", [-(2**63), -(10**17), 2**62, 2**63 - 1])
def test_damaged_instants(instant: int) -> None:
    """An instant that no datetime can hold is shown as the nearest one that exists."""
    result = add.enqueue(1, 2)
    damage(result, enqueued_at=instant, due_at=instant)
    add.get_result(result.id)
    assert len(run_pending()) == (1 if instant < 0 else 0)


# -- which code may run ---------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a module that could be imported, and that says so when it is: see ``imported``."""
    name = f"found_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        dedent(
            """
            import pathlib
            pathlib.Path(__file__).with_name("imported").touch()

            from django_vtqueue import task

            @task
            def run():
                return "ran"
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.mark.django_db
def test_code_outside_the_apps_is_not_imported(module: str, tmp_path: Path) -> None:
    """What stands in a row never decides which code is imported: a module outside the installed apps never is."""
    result = add.enqueue(1, 2)
    damage(result, task_path=f"{module}.run")
    assert task_backends["default"].get_result(result.id).task.module_path == f"{module}.run"
    run_pending()
    assert not (tmp_path / "imported").exists()
    assert module not in sys.modules
    result.refresh()
    assert result.errors[0].exception_class is UnknownTask
    assert (
        "is not in an installed app, so it was not imported; add the app to INSTALLED_APPS"
        in result.errors[0].traceback
    )


@pytest.mark.django_db
def test_task_modules(settings: Settings, module: str, tmp_path: Path) -> None:
    """A module that ``task_modules`` name may be imported for its tasks, though it is in no app."""
    use(settings, OPTIONS={"task_modules": [module]})
    result = echo.enqueue()
    damage(result, task_path=f"{module}.run")
    run_pending()
    assert (tmp_path / "imported").exists()
    result.refresh()
    assert result.return_value == "ran"


@pytest.mark.parametrize("name", ["run", "Of.run"])
def test_two_threads_import_one_module(module: str, tmp_path: Path, name: str) -> None:
    """A task whose module another thread is just importing is not unknown: the second thread waits for the first."""
    (tmp_path / f"{module}.py").write_text(
        dedent(
            """
            from django_vtqueue import task
            from tests.tasks.test_django import half_imported

            half_imported()

            class Of:
                @staticmethod
                @task
                def run(): ...

            run = Of.run
            """
        )
    )
    in_the_middle.clear()
    go_on.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(find_task, f"{module}.run", (module,))
        in_the_middle.wait(PATIENCE)
        second = pool.submit(find_task, f"{module}.{name}", (module,))
        wait_until(lambda: second.running() or second.done())
        go_on.set()
        assert first.result(PATIENCE) is second.result(PATIENCE)


def test_a_task_of_a_module_that_is_not_imported_to_its_end(module: str, tmp_path: Path) -> None:
    """It is none: its code would run with half of what it needs, also once the import has failed.

    The code of the module itself finds it.
    """
    code = "from django_vtqueue import task\nfrom tests.tasks.test_django import look\n"
    code += "@task\ndef run(): ...\nlook(run.module_path)\nraise ValueError('broken')"
    (tmp_path / f"{module}.py").write_text(code)
    seen.clear()
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            find_task(f"{module}.run", (module,))
    assert seen == [(None, "run"), (None, "run")]


seen: list[object] = []


def look(path: str) -> None:
    seen.append((loaded_task(path), find_task(path).func.__name__))


in_the_middle, go_on = Event(), Event()


def half_imported() -> None:
    in_the_middle.set()
    go_on.wait(PATIENCE)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    [
        "os.system",
        "os.path.join",
        "subprocess.run",
        "builtins.eval",
        "tests.tasks.test_django.no_task",
        "tests.tasks.test_django.add.func",
        "tests.tasks.test_django.add.enqueue",
        "tests.tasks.test_django.Shop",
        "tests.tasks.test_django.Shop.nothing",
        "tests.tasks.test_django.importlib.import_module",
        "tests.tasks.test_django",
        "tests.projectile.tasks.add",
        "tests.project.no_such_module.add",
        "tests.project.tasks",
        "antigravity.fly",
        "antigravity",
        "no_dot",
        ".",
        "..add",
        "tests..add",
        "add.",
        "\0",
        "ü" * 5000,
    ],
)
def test_paths_of_what_is_no_task(path: str, tmp_path: Path) -> None:
    """Whatever else a path names, be it a function that exists, is not called; the next job runs."""
    result, after = echo.enqueue(), add.enqueue(3, 4)
    marker = tmp_path / "called"
    damage(result, task_path=path, payload=json.dumps({"args": [f"touch {marker}"], "kwargs": {}}))
    assert task_backends["default"].get_result(result.id).task.module_path
    before = set(sys.modules)
    run_pending()
    assert set(sys.modules) == before
    result.refresh()
    assert [error.exception_class for error in result.errors] == [UnknownTask]
    assert not marker.exists()
    after.refresh()
    assert after.return_value == 7


# -- pickles --------------------------------------------------------------------------------------------------------


@task(priority=5, queue_name="emails", max_attempts=7, backoff=[1, 2], no_retry_for=ValueError)
def with_options() -> None: ...


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@framework_task
def of_django() -> None: ...


@pytest.mark.django_db
def test_pickles() -> None:
    """Tasks and results can be pickled where Django's own can, from 6.1 on, and keep their values and options."""
    result = with_options.using(priority=9).enqueue()
    if django.VERSION < (6, 1):
        for whatever in (of_django, with_options, result):
            with pytest.raises(pickle.PicklingError):
                pickled(whatever)
        return
    assert pickled(with_options) == with_options
    assert options_of(pickled(with_options).func)["max_attempts"] == 7
    for mine in (result, with_options.get_result(result.id)):
        copy = pickled(mine)
        assert (copy.id, copy.task, copy.status) == (result.id, result.task, result.status)
        copy.refresh()
    [ran] = run_pending()
    assert pickled(ran).status == TaskResultStatus.SUCCESSFUL


# -- other backends -------------------------------------------------------------------------------------------------

EVERY_OPTION = """
    from django_vtqueue import GiveUp, Retry, TaskContext, TaskResult, TaskResultStatus, enqueue_many, task

    called = []

    @task(
        priority=0, queue_name="default", backend="default", takes_context=True, max_attempts=5, backoff=[1, 2],
        no_retry_for=(ValueError, KeyError), visibility_timeout=300,
    )
    def every_option(context, report):
        called.append((context.attempt, report))
        return report

    @task(backoff=lambda exception, result: None)
    def gives_up():
        raise GiveUp("no")

    @task
    def plain(): ...
"""


@pytest.fixture
def every_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Return a function that imports a module which uses all that this package gives to tasks."""
    name = f"every_option_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(dedent(EVERY_OPTION))
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: importlib.import_module(name)
    sys.modules.pop(name, None)


def test_options_under_the_immediate_backend(settings: Settings, every_option: Callable[[], Any]) -> None:
    """A module that uses every option imports and runs under Django's Immediate backend; the options are ignored."""
    use(settings, IMMEDIATE)
    module = every_option()
    result = module.every_option.enqueue(7)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 7)
    assert module.gives_up.enqueue().status == TaskResultStatus.FAILED
    calls: list[Call] = [((8,), {}), ((), {"report": 9})]
    results: list[TaskResult] = enqueue_many(module.every_option, calls)
    assert [result.return_value for result in results] == [8, 9]
    assert module.called == [(1, 7), (1, 8), (1, 9)]


def test_options_under_the_dummy_backend(settings: Settings, every_option: Callable[[], Any]) -> None:
    """The same under the Dummy backend, which keeps what was enqueued; ``enqueue_many`` is a loop there."""
    use(settings, DUMMY)
    module = every_option()
    module.plain.enqueue()
    enqueue_many(module.every_option, [((8,), {}), ((), {"report": 9})])
    backend: Any = task_backends["default"]
    assert [(result.args, result.kwargs) for result in backend.results] == [([], {}), ([8], {}), ([], {"report": 9})]
    assert module.called == []


def test_options_of_the_framework_decorator() -> None:
    """``django.tasks.task`` takes this queue's options too, where Django passes keywords on (all but 6.0)."""
    options: dict[str, Any] = {"max_attempts": 5, "backoff": 3}
    if django.VERSION[:2] == (6, 0):
        with pytest.raises(TypeError, match="max_attempts"):
            framework_task(**options)(no_task)
        return
    try:
        assert options_of(framework_task(**options)(no_task).func) == options
    finally:
        del no_task.vtqueue_options  # type: ignore[attr-defined]


@pytest.mark.django_db
def test_enqueue_many() -> None:
    """``enqueue_many`` stores all calls at once, in order, each with its result and its signal; or none of them."""
    enqueued: list[TaskResult] = []
    with listening(task_enqueued, enqueued):
        results = enqueue_many(add, [((1, 2), {}), ((3,), {"b": 4}), ((), {"a": 5, "b": 6})])
    assert [result.id for result in enqueued] == [result.id for result in results]
    assert [result.return_value for result in run_pending()] == [3, 7, 11]

    with pytest.raises(TypeError):
        enqueue_many(add, [((1, 2), {}), ((object(),), {})])
    assert enqueue_many(add, []) == []
    assert Job.objects.count() == 3


# -- transactions and bells -----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("many", [1, 3])
def test_enqueue_inside_a_transaction(many: int) -> None:
    """What is enqueued inside ``atomic`` is there when it commits, and was never there when it rolls back."""
    calls: list[Call] = [((1, 2), {})] * many
    with transaction.atomic():
        results = enqueue_many(add, calls)
    assert Job.objects.count() == many
    assert all(add.get_result(result.id) for result in results)

    with rolled_back():
        lost = enqueue_many(add, calls)
        Queue("default").publish({})
    assert Job.objects.count() == many
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(lost[0].id)

    with transaction.atomic():
        enqueue_many(add, calls)
        with rolled_back():
            enqueue_many(add, calls)
    assert Job.objects.count() == 2 * many


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """Return the list of bells that are rung: database and folder."""
    rings: list[tuple[str, str | None]] = []
    for module in (doorbell, publishing):
        monkeypatch.setattr(module, "ring", lambda alias, folder: rings.append((alias, folder)))
    return rings


@pytest.mark.django_db(transaction=True)
def test_bells_outside_a_transaction(rung: list[Any]) -> None:
    """Outside a transaction each enqueue and each publish rings once, when it is stored."""
    add.enqueue(1, 2)
    assert rung == [("default", None)]
    enqueue_many(add, [((1, 2), {})] * 10)
    Queue("default").publish_many([1, 2, 3])
    assert rung == [("default", None)] * 3


@pytest.mark.django_db
def test_bells_ring_once_a_commit(
    rung: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    """A transaction rings once, after its commit, however much it enqueues and in however many savepoints."""
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        for _ in range(3):
            with transaction.atomic():
                add.enqueue(1, 2)
            add.enqueue(1, 2)
        Queue("default").publish({})
        assert rung == []
    assert rung == [("default", None)]


@pytest.mark.django_db
def test_bells_of_what_was_rolled_back(
    rung: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    """What was rolled back rings no bell, and does not silence the bell of what is enqueued after it."""
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic(), rolled_back():
        add.enqueue(1, 2)
    assert rung == []
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        with rolled_back():
            add.enqueue(1, 2)
        add.enqueue(1, 2)
        with rolled_back():
            add.enqueue(1, 2)
    assert rung == [("default", None)]


@pytest.mark.django_db
def test_bells_of_two_backends(
    settings: Settings, rung: list[Any], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    """Backends whose workers listen in different folders have a bell each, also within one transaction."""
    settings.TASKS = {
        "default": {"BACKEND": OURS},
        "reports": {"BACKEND": OURS, "QUEUES": ["reports"], "OPTIONS": {"doorbells": "/run/reports"}},
    }
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        add.enqueue(1, 2)
        add.using(backend="reports", queue_name="reports").enqueue(1, 2)
    assert rung == [("default", None), ("default", "/run/reports")]


# -- in development -------------------------------------------------------------------------------------------------


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return a function that gives the log lines so far, in a process that has given no hints yet."""
    monkeypatch.setattr(workers, "_look_at", {})
    return lambda: [record.getMessage() for record in caplog.records if record.name == "django_vtqueue"]


def test_a_task_of_a_script(hints: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The log warns, once, of a task that workers cannot import: one of the file that Python was started with."""

    def sweep() -> None: ...

    monkeypatch.setattr(sweep, "__module__", "__main__")
    monkeypatch.setattr(sweep, "__qualname__", "sweep")
    found = task(sweep)
    found.using(priority=0)
    [hint] = hints()
    assert hint.startswith("__main__.sweep is defined in the file that Python was started with: no worker finds it")


def worker(queues: str, heartbeat_at: datetime) -> None:
    WorkerProcess.objects.create(
        worker_id=f"host:{queues}:{heartbeat_at}",
        host="host",
        pid=1,
        slots=4,
        queues=queues,
        started_at=LONG_AGO,
        heartbeat_at=heartbeat_at,
    )


@pytest.mark.django_db
def test_hint_to_start_a_worker(settings: Settings, hints: Callable[[], list[str]]) -> None:
    """With DEBUG the first enqueue that no live worker will take logs once, for each queue, with the command."""
    settings.DEBUG = True
    worker("", LONG_AGO)
    worker("emails,reports", timezone.now())
    for _ in range(3):
        add.enqueue(1, 2)
    add.using(queue_name="emails").enqueue(1, 2)
    assert hints() == ["no live worker serves queue 'default'; start one: python manage.py vtworker"]
    add.using(queue_name="mail").enqueue(1, 2)
    assert len(hints()) == 2
    settings.TASKS = {**settings.TASKS, "broken": {"BACKEND": "nowhere.Backend"}}
    add.using(queue_name="other").enqueue(1, 2)  # it is stored, whatever the hint cannot find out


@pytest.mark.django_db
def test_no_hint_in_production(settings: Settings, hints: Callable[[], list[str]]) -> None:
    """Without DEBUG nothing is logged, and an enqueue is one statement."""
    add.enqueue(1, 2)
    settings.DEBUG = True
    worker("", timezone.now())
    add.enqueue(1, 2)
    assert hints() == []


# -- what is stored -------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_nothing_is_pickled() -> None:
    """All that is stored of a call, its failures and its result is JSON text."""
    values = ["text", 1, 1.5, True, None, [1, [2]], {"key": {"deep": "ü"}}]
    result = enqueue_many(with_context, [((2,), {})])[0]
    fails.enqueue("x" * 100)
    Queue("default").publish(values)
    run_pending(until=timedelta(hours=1))
    result.refresh()
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload, history, result FROM vtqueue_job")
        rows = [list(row) for row in cursor.fetchall()]
        cursor.execute("SELECT payload, history, NULL FROM vtqueue_deadletter")
        rows += [list(row) for row in cursor.fetchall()]
    assert len(rows) == 3
    texts = [text for row in rows for text in row if text is not None]
    assert all(isinstance(text, str) for text in texts)
    assert values in [json.loads(text) for text in texts]
    assert os.linesep not in "".join(row[0] for row in rows)
