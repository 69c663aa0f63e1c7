"""What a call of a task may be: its form, its arguments, and what is said of one that is refused."""

import re
from typing import Any

import pytest
from pytest_django import Settings

from django_vtqueue import enqueue_many, task
from django_vtqueue.compat import Task, task_backends
from django_vtqueue.models import Job

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
