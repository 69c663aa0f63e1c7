"""What a call of a task may be: its form, its arguments, and what is said of one that is refused."""

import re
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from inspect import Signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from django_vtqueue import Queue, TaskContext, enqueue_many, task
from django_vtqueue.core.job import HeldJob
from django_vtqueue.core.masks import MASKED
from django_vtqueue.exceptions import DamagedPayload
from django_vtqueue.models import Job
from django_vtqueue.tasks.compat import Task, task_backends
from django_vtqueue.tasks.results import call_of
from django_vtqueue.testing import run_pending

from ..core.texts import stored

FRAMEWORK = Task.__module__.rpartition(".")[0]  # django.tasks or django_tasks
DUMMY = f"{FRAMEWORK}.backends.dummy.DummyBackend"


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return [*args, kwargs]


# -- many calls -----------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("backend", ["default", "dummy"])
@pytest.mark.parametrize("call", ["ab", ("Alan", {}), (7, {}), ((7,), "b"), ((7,),), ((), {}, {}), {}, None, b"ab"])
def test_calls_that_are_none(settings: Settings, backend: str, call: Any) -> None:
    """A call of many is a pair of arguments and keywords; else its index, and what one is, on any backend."""
    settings.TASKS = {**settings.TASKS, "dummy": {"BACKEND": DUMMY}}
    form = rf"calls\[1\] is {re.escape(repr(call))}, but must be \(args, kwargs\), .*: \(\(7,\), {{}}\)"
    with pytest.raises(TypeError, match=form):
        enqueue_many(echo.using(backend=backend), [((1,), {}), call])
    assert not Job.objects.exists()
    if backend == "dummy":
        assert task_backends["dummy"].results == []


@pytest.mark.parametrize(
    "task", [print, None, "shop.tasks.send", echo.func], ids=["builtin", "none", "path", "function"]
)
def test_many_calls_of_what_is_no_task(task: Any) -> None:
    """The error says what was found, and what is allowed."""
    form = rf"enqueue_many takes a task \(made by @task\), and its arguments, not {re.escape(repr(task)[:20])}"
    with pytest.raises(TypeError, match=form):
        enqueue_many(task, [((1,), {})])


# -- the signature --------------------------------------------------------------------------------------------------


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@task
def plain(a: int, b: int = 2) -> None: ...


@task
def positional(a: int, b: int = 2, /) -> None: ...


@task
def positional_and_any(a: int, /, **more: int) -> None: ...


@task
def keyword(a: int, *, b: int, c: int = 3) -> None: ...


@task
def anything(a: int, *rest: int, b: int = 2, **more: int) -> None: ...


@task
def nothing() -> None: ...


@task(takes_context=True)
def with_context(context: TaskContext, a: int) -> None: ...


@task(takes_context=True)
def with_context_and_any(context: TaskContext, *rest: int, **more: int) -> None: ...


@task
@wrapped
def decorated(a: int) -> None: ...


def for_tenant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Take a keyword of its own, as a decorator does that switches the tenant or the language."""

    @wraps(function)
    def wrapper(*args: Any, tenant: int | None = None, **kwargs: Any) -> Any:
        return [tenant, function(*args, **kwargs)]

    return wrapper


@task
@wrapped
@for_tenant
def of_tenant(a: int) -> int:
    return a


@task(unique_key="{tenant}:{a}")
@for_tenant
def once_a_tenant(a: int) -> int:
    return a


TASKS = [plain, positional, positional_and_any, keyword, anything, nothing, decorated, of_tenant]
NAMES = ["a", "b", "c", "context", "tenant", "self", "task", ""]


@pytest.mark.django_db
def test_a_keyword_of_a_wrapper() -> None:
    """A decorator may take a keyword of its own: it fits the task, is stored, and forms keys; others do not fit."""
    for called in (of_tenant, once_a_tenant):
        called.enqueue(1, tenant=2)
        called.enqueue(3)
        assert [result.return_value for result in run_pending()] == [[2, 1], [None, 3]]
        with pytest.raises(TypeError, match=r"\(a: int, \*, tenant=None.*unexpected keyword argument 'tenants'"):
            called.enqueue(1, tenants=2)


@pytest.mark.django_db
@given(st.sampled_from(TASKS), st.integers(0, 4), st.lists(st.sampled_from(NAMES), unique=True))
def test_calls_that_fit(called: Task, count: int, names: list[str]) -> None:
    """A call is refused exactly if Python would refuse it."""
    args, kwargs = [*range(count)], dict.fromkeys(names, 1)
    try:
        called.func(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError, match="does not fit"):
            enqueue_many(called, [(args, kwargs)])  # for Django's own enqueue takes no "self"
    else:
        [result] = enqueue_many(called, [(args, kwargs)])
        assert (result.args, result.kwargs) == (args, kwargs)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: plain.enqueue(), "plain(a: int, b: int = 2) -> None: missing a required argument: 'a'."),
        (lambda: plain.enqueue(1, 2, 3), "plain(a: int, b: int = 2) -> None: too many positional arguments."),
        (lambda: plain.enqueue(1, a=1), "plain(a: int, b: int = 2) -> None: multiple values for argument 'a'."),
        (lambda: plain.enqueue(1, c=1), "plain(a: int, b: int = 2) -> None: got an unexpected keyword argument 'c'."),
        (lambda: plain.enqueue(aa=1), "plain(a: int, b: int = 2) -> None: got an unexpected keyword argument 'aa'."),
        (lambda: with_context.enqueue(), "with_context(a: int) -> None: missing a required argument: 'a'."),
        (lambda: with_context.enqueue(1, 2), "with_context(a: int) -> None: too many positional arguments."),
        (lambda: decorated.enqueue(), "decorated(a: int) -> None: missing a required argument: 'a'."),
        (lambda: plain.enqueue(1, **{"token": "s"}), "got an unexpected keyword argument 'token'."),  # type: ignore
    ],
)
def test_a_call_that_does_not_fit(call: Callable[[], Any], text: str) -> None:
    """It is refused in the caller, with the signature as callers see it, and what is wrong; nothing is stored."""
    with pytest.raises(TypeError, match=re.escape(text)) as caught:
        call()
    assert str(caught.value).startswith(f"The call does not fit {__name__}.")
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_a_call_of_many_that_does_not_fit() -> None:
    """Its index is named, and none of the others is stored."""
    with pytest.raises(TypeError, match=rf"calls\[2\] does not fit {__name__}\.plain\(a: int, .*: missing .* 'a'"):
        enqueue_many(plain, [((1,), {}), ((), {"a": 1}), ((), {})])
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_the_context_is_no_argument_of_a_call() -> None:
    """A task that takes the context is called without it, by position and by name."""
    with_context.enqueue(1)
    with_context.enqueue(a=1)
    with_context_and_any.enqueue(1, 2, a=1)
    assert Job.objects.count() == 3


@task
def signs(text: str, token: str = "s3cret") -> None: ...


@pytest.mark.django_db
def test_secret_defaults_in_the_signature() -> None:
    """The signature that is shown has no default that ``mask`` hides."""
    with pytest.raises(TypeError, match=f"token: str = '?{MASKED}") as caught:
        signs.enqueue()
    assert "s3cret" not in str(caught.value)


@pytest.mark.django_db
def test_a_signature_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a task is called so, its signature is bound once."""
    enqueue_many(anything, [((1,), {"first": 1})])

    def bind(*args: Any, **kwargs: Any) -> None:
        pytest.fail("bound again")

    monkeypatch.setattr(Signature, "bind", bind)
    enqueue_many(anything, [((number,), {"first": number}) for number in range(100)])


# -- arguments ------------------------------------------------------------------------------------------------------

DUE = datetime(2030, 1, 1)
ORDER = {"lines": [{"due": None}, {"due": None}, {"due": None}, {"due": DUE}]}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("call", "found", "path"),
    [
        (lambda: plain.enqueue(ORDER), "datetime.datetime", "a.lines[3].due of {}.plain"),
        (lambda: plain.enqueue(1, b=ORDER), "datetime.datetime", "b.lines[3].due of {}.plain"),
        (lambda: with_context.enqueue(DUE), "datetime.datetime", "a of {}.with_context"),
        (lambda: anything.enqueue(1, 2, DUE), "datetime.datetime", "rest[1] of {}.anything"),
        (lambda: anything.enqueue(1, due=DUE), "datetime.datetime", "more.due of {}.anything"),
        (lambda: plain.using(priority=1).enqueue([1, {"a b": DUE}]), "datetime.datetime", "a[1]['a b'] of {}.plain"),
        (
            lambda: enqueue_many(plain, [((1,), {}), ((2,), {"b": ORDER})]),
            "datetime.datetime",
            "b.lines[3].due of {}.plain in calls[1]",
        ),
    ],
)
def test_an_argument_that_is_not_json(call: Callable[[], Any], found: str, path: str) -> None:
    """The error begins as Django's own does, and names what was found, the path to it, the task, and what to pass."""
    text = f"Unsupported type: {found}. {path.format(__name__)} is not JSON: pass its .isoformat()."
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        call()
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_an_argument_without_end() -> None:
    """One that contains itself is named by its path, too."""
    circle: dict[str, Any] = {}
    circle["again"] = [circle]
    text = f"Unsupported type: dict that is nested too deeply or contains itself. b of {__name__}.plain is not JSON"
    with pytest.raises(TypeError, match=re.escape(text)):
        plain.enqueue(1, b=circle)  # type: ignore[arg-type]


@pytest.mark.django_db
def test_a_payload_that_is_not_json() -> None:
    """A raw payload, and a result, are named by their paths, too."""
    queue = Queue("q")
    with pytest.raises(
        TypeError, match=r"datetime\.datetime\. payload\.lines\[3\]\.due is not JSON: pass its \.isoformat"
    ):
        queue.publish(ORDER)
    queue.publish(1)
    job = queue.claim()
    assert job
    with pytest.raises(TypeError, match=r"^Unsupported type: set\. result is not JSON: pass list\(\) of it\.$"):
        job.ack({1})


@task(takes_context=True)
def with_any_options(context: TaskContext, **options: Any) -> Any:
    return options


def test_the_context_is_not_passed_by_the_caller(db: None) -> None:
    """Its name is refused in the caller, also where any other name is taken."""
    with pytest.raises(TypeError, match="'context' is passed by the worker"):
        with_any_options.enqueue(context=3)
    with_any_options.enqueue(other=3)


# -- the call of a row ----------------------------------------------------------------------------------------------


@given(stored)
def test_the_call_of_a_row(text: str) -> None:
    """A payload is the arguments of a call, or damaged."""
    try:
        args, kwargs = call_of(HeldJob("0" * 32, "q", "app.t", 0, 0, 1, 1, 1, "w", 1, 0, 0, text, "[]", 0))
    except DamagedPayload:
        return
    assert isinstance(args, list)
    assert isinstance(kwargs, dict)
