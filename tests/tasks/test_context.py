"""What a task is given that takes the context."""

from typing import Any

import pytest
from pytest_django import Settings

from django_vtqueue import JobContext, TaskResultStatus
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks.compat import task_finished
from tests.pending import run_pending
from tests.project import tasks

pytestmark = pytest.mark.django_db
CLASS = "django_vtqueue.exceptions.Cancelled"


def last_progress() -> tuple[float | None, str | None]:
    job = Job.objects.latest("pk")
    return job.progress, job.progress_text


def test_progress_of_a_task() -> None:
    """What a task said last of its progress is in its row; it is Django's context still."""
    tasks.go_on.enqueue([[0, ""], [0.25, "a quarter"], [1, "done\0 \ud800"]])
    [result] = run_pending()
    assert result.return_value == [True, False]
    assert last_progress() == (1.0, "done\\0 \\ud800")


def test_long_texts_are_cut() -> None:
    """A text is cut to what the table holds."""
    tasks.go_on.enqueue([[0.5, "x" * 1000]])
    run_pending()
    assert last_progress() == (0.5, "x" * 255)


@pytest.mark.parametrize("fraction", [1.01, -0.1, "1", None, True, float("nan"), 40])
def test_what_is_no_fraction(fraction: Any) -> None:
    """Anything but a number from 0 to 1 is refused, in words that help."""
    context = JobContext(task_result=None, _job=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^progress takes a number from 0 to 1 \(0.4 for 40 %\), not "):
        context.progress(fraction)


def test_cancelled_is_raised() -> None:
    """A task that raises Cancelled ends as cancelled, without a further attempt, and without anybody having asked."""
    bare, worded = tasks.raise_cancelled.enqueue(None), tasks.raise_cancelled.enqueue("no such page")
    finished = []

    def receiver(task_result: Any, **_: Any) -> None:
        finished.append((task_result.id, task_result.status))

    task_finished.connect(receiver)
    try:
        run_pending()
    finally:
        task_finished.disconnect(receiver)
    for result, message in ((bare, "Cancelled."), (worded, "no such page")):
        letter = DeadLetter.objects.get(pk=result.id)
        assert (letter.exception_class, letter.message) == (CLASS, message)
        assert letter.history[-1]["outcome"] == "cancelled"
    assert finished == [(bare.id, TaskResultStatus.FAILED), (worded.id, TaskResultStatus.FAILED)]


def test_a_job_that_cancels_itself() -> None:
    """A job asked to stop while it is run in the caller's thread ends as it would in a worker."""
    result = tasks.cancel_myself.enqueue()
    [ended] = run_pending()
    assert (ended.id, ended.status) == (result.id, TaskResultStatus.FAILED)
    assert [error.exception_class_path for error in ended.errors] == ["builtins.ConnectionError", CLASS]
    assert ended.attempts == 1
    assert DeadLetter.objects.get(pk=result.id).message == "Cancelled by itself."


def test_other_backends(settings: Settings) -> None:
    """Under Django's own backends the context is Django's alone; a task can tell."""
    module = VTQueueBackend.__mro__[1].__module__.removesuffix(".base")
    settings.TASKS = {"default": {"BACKEND": f"{module}.immediate.ImmediateBackend"}}
    assert tasks.go_on.enqueue([]).return_value == [False, None]
