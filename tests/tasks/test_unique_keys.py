"""``@task(unique_key=…, expires=…)``: the key of a call, and what an enqueue of a duplicate returns."""

import copy
import logging
import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.core.signals import Signal
from pytest_django import Settings

from django_vtqueue import DuplicateJob, JobContext, TaskResult, enqueue_many, task
from django_vtqueue.core import history
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks.compat import TaskResultStatus, framework_task, task_enqueued, task_finished
from django_vtqueue.tasks.results import Result
from django_vtqueue.tasks.task import options_of
from tests.fake_clock import FakeClock
from tests.pending import run_pending

pytestmark = pytest.mark.django_db

any_task: Any = task
any_framework_task: Any = framework_task


def function(report_id: int, kind: Any = "pdf", *rest: int, force: bool = False, **more: Any) -> None: ...


def with_context(context: JobContext, report_id: int) -> None: ...


@task(unique_key="report:{report_id}")
def report(report_id: int, kind: str = "pdf") -> str:
    return f"{report_id} {kind}"


@task(unique_key="report:{report_id}", on_duplicate="replace", unique_until="start", expires=60)
def debounced(report_id: int, kind: str = "pdf") -> str:
    return f"{report_id} {kind}"


@task(unique_key="report:{report_id}", on_duplicate="error", queue_name="strict")
def strict(report_id: int) -> None: ...


@task(unique_key=lambda report_id, kind="pdf": None if kind == "draft" else f"{kind}:{report_id}")
def chosen(report_id: int, kind: str = "pdf") -> None: ...


@task(expires=timedelta(seconds=30))
def short_lived() -> None: ...


def keys() -> set[str | None]:
    return set(Job.objects.values_list("unique_key", flat=True))


# -- the key of a call ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "args", "kwargs", "key"),
    [
        ("nightly", (7,), {}, "nightly"),
        ("report:{report_id}", (7,), {}, "report:7"),
        ("{kind}:{report_id:03d}", (7,), {}, "pdf:007"),
        ("{kind}:{report_id}", (), {"kind": "html", "report_id": 7}, "html:7"),
        ("{report_id} {rest} {force} {more}", (7, "pdf", 8, 9), {"force": True, "x": 1}, "7 (8, 9) True {'x': 1}"),
        ("{kind[name]!r:>6}", (7, {"name": "pdf"}), {}, " 'pdf'"),
        ("{report_id:{kind}}", (7, "04d"), {}, "0007"),
        ("{{{report_id}}}", (7,), {}, "{7}"),
    ],
)
def test_formats(text: str, args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> None:
    """A format is filled from the call, with the defaults of what it leaves out."""
    any_task(unique_key=text)(function)
    assert options_of(function)["unique_key"](*args, **kwargs) == key


@pytest.mark.parametrize("decorator", [any_task, any_framework_task], ids=["ours", "django's"])
@pytest.mark.parametrize(
    ("text", "name"), [("{reprot_id}", "reprot_id"), ("{report_id} {}", ""), ("{0}", "0"), ("{kind:{x}}", "x")]
)
def test_a_format_with_another_name(decorator: Any, text: str, name: str) -> None:
    """It fails where the task is defined, and says what is there."""
    allowed = r"\{report_id\}, \{kind\}, \{rest\}, \{force\}, \{more\}"
    with pytest.raises(ValueError, match=rf"@task on function: .* has \{{{name}\}}; allowed are {allowed}"):
        decorator(unique_key=text)(function)


def test_the_context_is_no_argument() -> None:
    """What the worker passes is not known when the task is enqueued."""
    for decorator in (any_task, any_framework_task):
        with pytest.raises(ValueError, match=r"has \{context\}; allowed are \{report_id\}\."):
            decorator(unique_key="{context}", takes_context=True)(with_context)
        decorator(unique_key="{report_id}", takes_context=True)(with_context)
        assert options_of(with_context)["unique_key"](7) == "7"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"unique_key": "{report_id"}, "is no format"),
        ({"unique_key": 7}, "unique_key is 7, but must be a format such as"),
        ({"unique_key": ""}, "unique_key is '', but must be a format such as"),
        ({"concurrency": 1, "concurrency_key": ""}, "concurrency_key is '', but must be a format such as"),
        ({"rate": "1/s", "rate_key": ""}, "rate_key is '', but must be a format such as"),
        ({"order_key": ""}, "order_key is '', but must be a format such as"),
        ({"unique_until": "end"}, "unique_until is 'end', but must be 'done' or 'start'"),
        ({"on_duplicate": "ignore"}, "on_duplicate is 'ignore', but must be 'keep' or 'replace' or 'error'"),
        ({"expires": 0}, "expires is 0, but must be a number of seconds above 0"),
        ({"expires": "soon"}, "expires is 'soon'"),
    ],
)
def test_values_that_are_not_allowed(options: dict[str, Any], problem: str) -> None:
    """They are found where the task is defined, too."""
    with pytest.raises(ValueError, match=problem):
        any_task(**options)(function)


@pytest.mark.parametrize(
    ("given", "error", "problem"),
    [
        ("{kind[name]}", ValueError, r"@task on function: the unique key '\{kind\[name\]\}' cannot be formed"),
        ("{kind.name}", ValueError, "cannot be formed of this call: 'str' object has no attribute 'name'"),
        (lambda *args: 7, TypeError, "A unique key is a text, or None for none, not 7"),
        (lambda *args: "", ValueError, "1 to 255 characters, no NUL among them, not 0"),
        (lambda *args: "x" * 256, ValueError, "not 256: 'xxx.*shorter with a hash"),
        (lambda *args: "a\0b", ValueError, "no NUL"),
        (lambda *args: "\ud800", ValueError, "1 to 255 characters"),
    ],
)
def test_a_key_that_cannot_be(given: Any, error: type[Exception], problem: str) -> None:
    """It is the caller's error, and nothing is stored."""
    task = any_task(unique_key=given)(function)
    with pytest.raises(error, match=problem):
        task.enqueue(7)
    assert not Job.objects.exists()


def test_the_longest_key() -> None:
    """255 characters, whichever they are."""
    any_task(unique_key=lambda *args: "ß" * 255)(function).enqueue(7)
    assert keys() == {"ß" * 255}


def test_a_callable() -> None:
    """It is given the arguments of the call; None: this call has no key."""
    ids = {chosen.enqueue(7).id, chosen.enqueue(report_id=7, kind="pdf").id}
    assert len(ids) == 1
    assert chosen.enqueue(7, "draft").id != chosen.enqueue(7, "draft").id
    assert keys() == {"pdf:7", None}


# -- what is returned -------------------------------------------------------------------------------------------------


def test_keep(caplog: pytest.LogCaptureFixture) -> None:
    """The result of the job that is there, with the arguments of that one; a log line says so."""
    caplog.set_level(logging.INFO, "django_vtqueue")
    first, second = report.enqueue(7), report.enqueue(7, kind="html")
    assert (first.duplicate, second.duplicate) == (False, True)
    assert (second.id, second.status, second.kwargs) == (first.id, TaskResultStatus.READY, {})
    [line] = [record.message for record in caplog.records if record.message.startswith("same")]
    assert line == (
        f"same  {report.module_path} …{first.id[-8:]} queue=default has the unique key 'report:7' already; "
        "on_duplicate=keep"
    )
    run_pending()
    third = report.enqueue(7)
    assert (third.duplicate, third.id == first.id) == (False, False)


def test_replace() -> None:
    """The job that is there with the new arguments; those of the last of several in one call."""
    first, second = debounced.enqueue(7), debounced.enqueue(7, kind="html")
    assert (second.id, second.duplicate, second.kwargs) == (first.id, True, {"kind": "html"})
    results = enqueue_many(debounced, [((8, "a"), {}), ((8, "b"), {}), ((9, "c"), {})])
    assert [(result.args, result.duplicate) for result in results] == [
        ([8, "b"], False),
        ([8, "b"], True),
        ([9, "c"], False),
    ]
    assert results[0].id == results[1].id
    assert [result.return_value for result in run_pending()] == ["7 html", "8 b", "9 c"]


def test_error() -> None:
    """DuplicateJob has the id of the result of the job that is there; nothing of the call is stored."""
    first = strict.enqueue(7)
    for enqueue in (lambda: strict.enqueue(7), lambda: enqueue_many(strict, [((8,), {}), ((7,), {})])):
        with pytest.raises(DuplicateJob) as caught:
            enqueue()
        assert caught.value.job_id == UUID(first.id)
        assert pickle.loads(pickle.dumps(caught.value)).job_id == UUID(first.id)
    assert Job.objects.count() == 1


def test_another_task_with_that_key() -> None:
    """It is an error: the result of another task is not what the caller has asked for."""
    report.enqueue(7)
    with pytest.raises(DuplicateJob, match=r"one of .*\.report, not of .*\.debounced.*Put the name of the task into"):
        debounced.enqueue(7)
    assert Job.objects.count() == 1


def test_async() -> None:
    """``aenqueue`` is the same."""

    async def enqueue() -> list[Any]:
        return [await report.aenqueue(7), await report.aenqueue(7)]

    assert [result.duplicate for result in async_to_sync(enqueue)()] == [False, True]


def test_a_job_that_is_gone_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Done and not kept between the insert and the read: there is a result with its id all the same."""
    first, backend = report.enqueue(7), report.get_backend()
    monkeypatch.setattr(type(backend), "_stored", lambda self, job_id: None)
    result: Any = report.enqueue(7)
    assert (result.id, result.status, result.duplicate, result.args) == (first.id, TaskResultStatus.READY, True, [7])


def test_no_signal_for_a_duplicate(subscribed: list[TaskResult]) -> None:
    """``task_enqueued`` is sent of what was stored."""
    first, _ = report.enqueue(7), report.enqueue(7)
    many = enqueue_many(report, [((8,), {}), ((7,), {}), ((8,), {})])
    assert [result.id for result in subscribed] == [first.id, many[0].id]


@pytest.fixture
def subscribed() -> Any:
    found: list[TaskResult] = []
    yield from listening(task_enqueued, found)


def listening(signal: Signal, found: list[TaskResult]) -> Any:
    def receive(task_result: TaskResult, **kwargs: Any) -> None:
        found.append(task_result)

    signal.connect(receive)
    yield found
    signal.disconnect(receive)


def test_a_result_is_copied_whole() -> None:
    """``duplicate`` survives pickling and copying, and a refresh."""
    results: list[Any] = [report.enqueue(7), report.enqueue(7)]
    for result in (*results, report.get_result(results[0].id)):
        bare = replace(result, task=None)  # Django can pickle a task only from 6.1 on
        for twin in (pickle.loads(pickle.dumps(bare)), copy.copy(bare), copy.deepcopy(bare)):
            assert (twin, twin.duplicate, type(twin)) == (bare, result.duplicate, Result)
    run_pending()
    results[1].refresh()
    assert (results[1].duplicate, results[1].return_value) == (True, "7 pdf")


# -- expiry -----------------------------------------------------------------------------------------------------------


def test_expiry(time: FakeClock) -> None:
    """What has not started in so many seconds becomes a dead letter; its end is announced, and it may be requeued."""
    found: list[TaskResult] = []
    connected = listening(task_finished, found)
    next(connected)
    result = short_lived.enqueue()
    time.advance(30)
    assert run_pending() == []
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[-1].exception_class_path == "django_vtqueue.exceptions.JobExpired"
    assert [finished.id for finished in found] == [result.id]
    letter = DeadLetter.objects.get()
    assert [entry["outcome"] for entry in history.read(letter.history)] == ["expired"]
    assert letter.requeue()
    assert [again.id for again in run_pending()] == [result.id]
    next(connected, None)


def test_expiry_before_the_task_is_due() -> None:
    """It could never start, so it is refused."""
    with pytest.raises(ValueError, match="not after the moment at which the job is due"):
        short_lived.using(run_after=timedelta(seconds=30)).enqueue()
    short_lived.using(run_after=timedelta(seconds=29)).enqueue()


# -- other backends ---------------------------------------------------------------------------------------------------


def test_other_backends_ignore_all_of_it(settings: Settings) -> None:
    """A module with these options runs under any backend: without keys, and without errors."""
    settings.TASKS = {"default": {"BACKEND": f"{task_module()}.backends.dummy.DummyBackend", "QUEUES": []}}
    assert [strict.enqueue(7).id == strict.enqueue(7).id, short_lived.enqueue().is_finished] == [False, False]


def task_module() -> str:
    return str(framework_task.__module__.rpartition(".")[0])
