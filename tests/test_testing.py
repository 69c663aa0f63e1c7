"""``django_vtqueue.testing``: what has been enqueued, run inside the test."""

import sys
import threading
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import IntegrityError, transaction
from django.test import TestCase
from django.utils import timezone
from pytest_django import Settings

from django_vtqueue import TaskResultStatus, control, send_event
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core.job import Scope
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks import lookup
from django_vtqueue.tasks.compat import Task
from django_vtqueue.testing import QueueAssertions, arun_pending, assert_enqueued, run_pending
from django_vtqueue.worker.inline import Line, run_due
from tests import project
from tests.project import broken, durable, limited, tasks, transactional
from tests.project.models import Effect


class InsideATestCase(TestCase):
    def test_what_is_due_runs_here(self) -> None:
        """Inside TestCase's transaction the enqueued tasks run in this thread, and their effects are seen."""
        tasks.effect.enqueue("seen")
        thread = tasks.thread_id.enqueue()
        results = run_pending()
        assert [result.status for result in results] == [TaskResultStatus.SUCCESSFUL] * 2
        assert results[1].id == thread.id
        assert results[1].return_value == threading.get_ident()
        assert Effect.objects.get().name == "seen"

    def test_nothing_is_left_of_it(self) -> None:
        """What the test before this one enqueued and wrote was rolled back with it."""
        assert not Effect.objects.exists()
        assert run_pending() == []

    def test_transactional_tasks_commit_or_roll_back_inside_it(self) -> None:
        """What a transactional task writes is there if it succeeds, and gone if it fails; the test stays usable."""
        transactional.append.enqueue("good")
        transactional.fail.enqueue("bad")
        assert [result.status for result in run_pending(raise_errors=False)] == [
            TaskResultStatus.SUCCESSFUL,
            TaskResultStatus.FAILED,
        ]
        assert Effect.objects.get().name == "good"

    def test_a_failing_effect_in_a_block_of_its_own_leaves_the_test_usable(self) -> None:
        """Where it is asked for, a task that fails does not raise; its error is in the result."""
        tasks.raise_it.enqueue("BaseException")
        [result] = run_pending(raise_errors=False)
        assert result.status == TaskResultStatus.FAILED
        assert result.errors[0].exception_class is BaseException
        assert "bare" in result.errors[0].traceback
        assert DeadLetter.objects.count() == 1


@pytest.mark.django_db
def test_results_are_those_that_get_result_gives() -> None:
    """What run_pending returns is what a web process would read."""
    enqueued = tasks.add.enqueue(1, b=2)
    [result] = run_pending()
    enqueued.refresh()
    assert (result.status, result.return_value) == (enqueued.status, enqueued.return_value) == ("SUCCESSFUL", 3)
    assert (result.args, result.kwargs, result.attempts) == (enqueued.args, enqueued.kwargs, enqueued.attempts)
    assert result.finished_at == enqueued.finished_at


@pytest.mark.django_db
def test_only_the_named_queue_is_run() -> None:
    """queue_name leaves the tasks of other queues waiting."""
    mail = tasks.add.using(queue_name="emails").enqueue(1, 2)
    tasks.add.enqueue(3, 4)
    assert [result.id for result in run_pending("emails")] == [mail.id]
    assert Job.objects.get(state="READY").queue_name == "default"
    assert run_pending("no such queue") == []


@pytest.mark.django_db
def test_a_queue_that_no_backend_has_is_refused(settings: Settings) -> None:
    """A mistyped queue_name is an error that says which there are, as for a task of it; nothing runs."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default", "emails"]}}
    tasks.add.enqueue(1, 2)
    with pytest.raises(ValueError, match="TASKS has no queue 'email'; its queues are default, emails"):
        run_pending("email")
    for name in ("", 7, "x" * 256):
        with pytest.raises(ValueError, match="A queue's name is a text of 1 to 255 characters"):
            run_pending(name)  # type: ignore[arg-type]
    assert run_pending("emails") == []
    assert len(run_pending("default")) == 1


@pytest.mark.django_db
def test_what_a_task_enqueues_runs_too(tmp_path: Path) -> None:
    """Tasks that are enqueued by tasks run in the same call."""
    tasks.enqueue_note.enqueue(str(tmp_path / "noted"), "from inside")
    assert len(run_pending()) == 2
    assert (tmp_path / "noted").read_text() == "from inside\n"


@pytest.mark.django_db
def test_priorities_and_times_order_the_runs(tmp_path: Path) -> None:
    """Higher priorities come first, then earlier jobs, as in a worker."""
    for text, priority in [("a", 0), ("b", 0), ("urgent", 10), ("idle", -10)]:
        tasks.note.using(priority=priority).enqueue(str(tmp_path / "noted"), text)
    run_pending()
    assert (tmp_path / "noted").read_text().split() == ["urgent", "a", "b", "idle"]


@pytest.mark.django_db
def test_a_limited_task_that_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded first; that its job was held for that is no run of it."""
    limited.in_order.enqueue(str(tmp_path / "journal"), 0, 1, 1)
    monkeypatch.delattr(project, "limited")
    monkeypatch.delitem(sys.modules, limited.__name__)
    monkeypatch.setattr(lookup, "found_tasks", {})
    [outcome] = run_due([Line(VTQueueBackend("default", {}), [Scope(None, raw=False)])], limit=1)
    assert (outcome.settlement.state, outcome.settlement.attempts) == ("SUCCESSFUL", 1)


@pytest.mark.django_db
def test_scheduled_tasks_wait_unless_they_are_asked_for(tmp_path: Path) -> None:
    """Without ``until`` a scheduled task stays; with it those up to then run, in the order of their times."""
    now = timezone.now()
    for text, hours in [("late", 3), ("soon", 1), ("later", 2)]:
        tasks.note.using(run_after=now + timedelta(hours=hours)).enqueue(str(tmp_path / "noted"), text)
    assert run_pending() == []
    assert len(run_pending(until=timedelta(hours=2.5))) == 2
    assert (tmp_path / "noted").read_text().split() == ["soon", "later"]
    assert len(run_pending(until=now + timedelta(hours=3))) == 1
    assert (tmp_path / "noted").read_text().split() == ["soon", "later", "late"]


@pytest.mark.django_db
def test_retries_run_in_the_order_of_their_times(tmp_path: Path) -> None:
    """With ``until`` a failing task is tried again, each execution with its result, between what is scheduled."""
    tasks.note.using(run_after=timedelta(minutes=40)).enqueue(str(tmp_path / "noted"), "between")
    tasks.raise_later.enqueue()  # again after some ten minutes, then twenty, then forty …
    results = run_pending(until=timedelta(minutes=75), raise_errors=False)
    ran = [(result.task.func.__name__, result.attempts) for result in results]
    assert ran == [("raise_later", 1), ("raise_later", 2), ("raise_later", 3), ("note", 1), ("raise_later", 4)]
    assert results[0].status == TaskResultStatus.READY
    assert results[0].errors[0].exception_class is ConnectionError
    assert [len(result.errors) for result in results[:3]] == [1, 2, 3]


@pytest.mark.django_db
def test_a_task_that_recovers_is_successful_in_the_end() -> None:
    """Failed attempts come back as READY with their errors, the last one as SUCCESSFUL."""
    tasks.fail_first.enqueue(2)
    results = run_pending(until=timedelta(minutes=1), raise_errors=False)
    assert [result.status for result in results] == ["READY", "READY", "SUCCESSFUL"]
    assert results[-1].return_value == 3
    assert len(results[-1].errors) == 2


@pytest.mark.django_db
@pytest.mark.parametrize("kind", broken.BROKEN)
def test_a_broken_exception_is_a_failure(kind: str) -> None:
    """With ``raise_errors=False`` tasks do not raise, whatever their exceptions do when they are looked at."""
    broken.raise_broken.enqueue(kind)
    broken.araise_broken.enqueue(kind)
    after = tasks.add.enqueue(1, 2)
    assert [result.status for result in run_pending(raise_errors=False)] == ["FAILED", "FAILED", "SUCCESSFUL"]
    assert tasks.add.get_result(after.id).return_value == 3


@pytest.mark.django_db
def test_a_rolled_back_enqueue_does_not_run() -> None:
    """What was enqueued in a block that was rolled back is not there."""
    with transaction.atomic():
        tasks.add.enqueue(1, 2)
        transaction.set_rollback(True)
    assert run_pending() == []


@pytest.mark.django_db(transaction=True)
def test_it_works_without_a_surrounding_transaction() -> None:
    """In a TransactionTestCase each job is committed as it ends."""
    tasks.effect.enqueue("seen")
    [result] = run_pending(raise_errors=False)
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert Effect.objects.count() == 1


@pytest.mark.django_db
def test_a_queue_runs_by_the_policy_of_its_own_backend(settings: Any) -> None:
    """Where several backends share a database, the one that serves the queue runs it, and no other."""
    options = {**settings.TASKS["default"]["OPTIONS"]}
    mine = {**settings.TASKS["default"], "QUEUES": ["default"], "OPTIONS": {**options, "backoff": 2}}
    other = {**settings.TASKS["default"], "QUEUES": ["hr"], "OPTIONS": {**options, "backoff": 500}}
    settings.TASKS = {"default": mine, "hr": other}
    tasks.fail_by_the_queue.using(queue_name="hr", backend="hr").enqueue()
    [result] = run_pending("hr", raise_errors=False)
    assert result.backend == "hr"
    assert Job.objects.get().due_at > timezone.now() + timedelta(seconds=300)


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_test_whose_task_dies_fails() -> None:
    """The task's own error is raised, with a traceback that goes on in the task; its outcome is stored."""
    result = tasks.raise_it.enqueue("BaseException")
    with pytest.raises(BaseException, match="bare") as raised:
        run_pending()
    assert raised.traceback[-1].path == Path(tasks.__file__)
    assert not {entry.path.parent.name for entry in raised.traceback} & {"worker", "asgiref"}
    result.refresh()
    assert result.status == "FAILED"
    with pytest.raises(ValueError, match=r"^Task failed: builtins.BaseException\. .*result\.errors\[-1\].traceback"):
        _ = result.return_value


@pytest.mark.django_db
def test_what_is_meant_does_not_raise() -> None:
    """Retry says when a task shall run again, and what was cancelled shall not run: neither is an error."""
    retried, cancelled = tasks.come_again.enqueue(60), tasks.add.enqueue(1, 2)
    control.cancel([cancelled.id])
    [result] = run_pending()
    assert (result.id, result.status) == (retried.id, "READY")


def test_a_backend_that_cannot_be_built_is_none_of_ours(settings: Settings, db: None) -> None:
    """Another entry of TASKS, whose library is not there, keeps no test from running."""
    settings.TASKS = {"other": {"BACKEND": "no.such.library.Backend"}, **settings.TASKS}
    tasks.add.enqueue(1, 2)
    assert [result.return_value for result in run_pending()] == [3]


class AsyncTests(TestCase):
    async def test_arun_pending(self) -> None:
        """In an async test ``arun_pending`` runs what is due, in the transaction of the test."""
        await tasks.effect.aenqueue("seen")
        [result] = await arun_pending()
        assert result.status == "SUCCESSFUL"
        assert (await Effect.objects.aget()).name == "seen"

    async def test_what_no_future_takes(self) -> None:
        """A false exception is raised, and a StopIteration, which no coroutine can raise, is the cause of what is."""
        await broken.raise_broken.aenqueue("stop")
        with pytest.raises(RuntimeError, match="StopIteration") as raised:
            await arun_pending()
        assert isinstance(raised.value.__cause__, StopIteration)
        await broken.araise_broken.aenqueue("hollow")
        with pytest.raises(broken.Hollow):
            await arun_pending()

    async def test_run_pending_says_what_to_write(self) -> None:
        """The plain one names the other."""
        with pytest.raises(SynchronousOnlyOperation, match=r"await arun_pending\(\)"):
            run_pending()


# -- assertions -----------------------------------------------------------------------------------------------------


def test_a_task_of_another_backend(settings: Settings) -> None:
    """It is said that it is not looked for, as ``wait_for_result`` says it."""
    settings.TASKS = {"default": {"BACKEND": f"{Task.__module__.partition('.base')[0]}.backends.dummy.DummyBackend"}}
    with pytest.raises(TypeError, match="looks for tasks of this queue; backend 'default' is another one"):
        assert_enqueued(tasks.add)


@pytest.mark.django_db
def test_assert_enqueued() -> None:
    """It returns the latest job with this task, these arguments however they were passed, this queue and time."""
    tasks.add.enqueue(1, b=2)
    later = tasks.add.using(queue_name="emails", run_after=timedelta(hours=1)).enqueue(1, 2)
    assert assert_enqueued(tasks.add).id == later.id
    assert assert_enqueued(tasks.add, 1, 2).id == later.id
    assert assert_enqueued(tasks.add, b=2, a=1, queue_name="emails", run_after=timedelta(hours=1)).id == later.id
    assert assert_enqueued(tasks.add, 1, 2, queue_name="default").id != later.id
    run_pending()
    assert assert_enqueued(tasks.add, 1, 2, queue_name="default").return_value == 3


def test_what_is_no_task() -> None:
    """It is refused, for it cannot have been enqueued."""
    with pytest.raises(TypeError, match="assert_enqueued takes a task"):
        assert_enqueued(tasks.add.func, 1, 2)  # type: ignore[arg-type]


@pytest.mark.django_db
def test_a_task_that_a_test_has_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of another function in its place is asked for as it is: only what using() returns is refused."""
    tasks.add.enqueue(1, 2)
    assert_enqueued(tasks.add, 1, 2)

    @wraps(tasks.add.func)
    def other(a: int, b: int) -> int:
        return 7

    monkeypatch.setattr(tasks, "add", replace(tasks.add, func=other, priority=5))
    with pytest.raises(AssertionError, match="was not enqueued"):
        assert_enqueued(tasks.add, 1, 3)


@pytest.mark.django_db
def test_what_was_not_enqueued_is_told_with_what_was() -> None:
    """Other arguments, another queue, time or task: the error shows what there is; no arguments means any."""
    with pytest.raises(AssertionError, match=r"add\(\.\.\.\) was not enqueued\. .*\n    nothing$"):
        assert_enqueued(tasks.add)
    tasks.add.enqueue(1, 2)
    for values in ({"args": (1, 3)}, {"queue_name": "emails"}, {"run_after": timedelta(hours=1)}):
        with pytest.raises(AssertionError, match=r"\n    tests\.project\.tasks\.add\(1, 2\), queue 'default'$"):
            assert_enqueued(tasks.add, *values.pop("args", ()), **values)  # type: ignore[arg-type, misc]
    with pytest.raises(AssertionError, match=r"effect\(\.\.\.\) was not enqueued"):
        assert_enqueued(tasks.effect)
    with pytest.raises(TypeError, match="does not fit"):
        assert_enqueued(tasks.add, 1, 2, 3)
    with pytest.raises(TypeError, match=r"not a task of using\(\): give queue_name="):
        assert_enqueued(tasks.add.using(queue_name="emails"), 1, 2)


class Assertions(QueueAssertions, TestCase):
    def test_assert_enqueued(self) -> None:
        """A TestCase has it in its own style."""
        result = tasks.add.enqueue(1, 2)
        assert self.assertEnqueued(tasks.add, 1, 2).id == result.id
        with pytest.raises(AssertionError):
            self.assertEnqueued(tasks.add, 7, 2)


class BrokenInsideATestCase(TestCase):
    def test_an_error_of_the_database_stays_with_its_task(self) -> None:
        """The dead letter of a task that hits a constraint is stored, and the test's transaction goes on."""
        result = tasks.save_twice.enqueue()
        with pytest.raises(IntegrityError):
            run_pending()
        assert DeadLetter.objects.filter(pk=result.id).exists()
        tasks.save_twice.enqueue()
        assert [each.status for each in run_pending(raise_errors=False)] == [TaskResultStatus.FAILED]


def test_any_value(db: None) -> None:
    """mock.ANY is any value of an argument, and inside of one; all else is as it was given."""
    tasks.effect.enqueue({"to": ["ada", 7], "cc": None})
    for value in (ANY, {"to": ANY, "cc": None}, {"to": ["ada", ANY], "cc": ANY}):
        assert_enqueued(tasks.effect, value)
    for value in ({"to": ANY}, {"to": ["eve", ANY], "cc": None}, [ANY], {"to": {"ada": ANY}, "cc": None}):
        with pytest.raises(AssertionError, match="was not enqueued"):
            assert_enqueued(tasks.effect, value)
    with pytest.raises(TypeError, match="not JSON"):
        assert_enqueued(tasks.effect, object())


def test_true_is_not_one(db: None) -> None:
    """assert_enqueued tells JSON values apart."""
    tasks.add.enqueue(True, 2)
    assert_enqueued(tasks.add, True, 2)
    with pytest.raises(AssertionError, match="was not enqueued"):
        assert_enqueued(tasks.add, 1, 2)


@pytest.mark.django_db
def test_the_flow_that_is_killed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of faults/test_durable.py ends here, too, whenever its event is sent; it makes each step and child once."""
    monkeypatch.setattr(durable, "time", SimpleNamespace(sleep=lambda seconds: None))  # its steps wait to be killed
    flows = [durable.flow.enqueue(number) for number in range(50)]
    early, late = flows[::2], flows[1::2]
    for result in early:
        assert send_event(result.id, "go", 1)
    run_pending(until=durable.DAY)
    assert {result.id for result in flows if durable.flow.get_result(result.id).is_finished} == {
        result.id for result in early
    }
    for result in late:
        assert send_event(result.id, "go", 1)
    run_pending(until=durable.DAY)
    assert {durable.flow.get_result(result.id).status for result in flows} == {TaskResultStatus.SUCCESSFUL}
    assert not DeadLetter.objects.exists()
    kinds = ("first", "second", "third", "fourth", "fifth", "child 0", "child 1", "child 2")
    made = sorted(Effect.objects.values_list("name", flat=True))
    assert made == sorted(f"{kind} {number}" for kind in kinds for number in range(50))
