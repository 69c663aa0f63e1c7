"""Workflows: chains and groups of calls, run as children of one job."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_vtqueue import TaskResultStatus, call, chain, control, group, requeue
from django_vtqueue.exceptions import StepError, UnknownTask
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks.compat import BaseTaskBackend, InvalidTask
from django_vtqueue.tasks.signatures import shown_call
from tests.pending import run_pending
from tests.project import workflows as shop
from tests.project.models import Effect

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def nothing_is_broken() -> Iterator[None]:
    yield
    shop.BROKEN.clear()


def effects() -> dict[str, int]:
    return dict(Effect.objects.values_list("name", "value"))


def whole(result: Any) -> Any:
    """Run what is pending; return the result of a whole."""
    run_pending()
    result.refresh()
    return result


def letter(result: Any) -> DeadLetter:
    return DeadLetter.objects.get(pk=result.id)


def test_a_chain() -> None:
    """Each result is the first argument of the next one, and the last one is that of the whole."""
    result = chain(call(shop.fetch, "a.org"), call(shop.parse, upper=True), call(shop.store, "x", "y")).enqueue()
    assert (Job.objects.count(), result.status) == (1, TaskResultStatus.READY)
    assert whole(result).return_value == {"text": "A.ORG PAGE", "tags": ["x", "y"]}
    assert effects() == {"fetch a.org": 1, "parse": 1, "store": 1}
    assert [job.parent_id for job in Job.objects.exclude(pk=result.id)] == [Job.objects.get(pk=result.id).pk] * 3


def test_a_link_that_fails() -> None:
    """It ends the chain: the whole fails with an error that names it, and what comes behind is not enqueued."""
    shop.BROKEN.add("parse")
    result = whole(chain(call(shop.fetch, "a"), call(shop.parse), call(shop.store)).enqueue())
    assert result.status == TaskResultStatus.FAILED
    assert letter(result).exception_class == "django_vtqueue.exceptions.WorkflowFailed"
    assert letter(result).message.startswith(
        "django_vtqueue.exceptions.GiveUp: no page ['2 parse' failed: tests.project.workflows.parse (job "
    )
    assert "store" not in effects()


def test_the_cause_in_a_workflow_of_workflows() -> None:
    """The message of each whole begins with the exception that was the cause, however deep it is."""
    shop.BROKEN.add("1")
    result = whole(chain(group([group([call(shop.send, 1)])])).enqueue())
    assert letter(result).message.startswith("django_vtqueue.exceptions.GiveUp: 1 is broken ['group' failed: ")


def test_a_chain_is_requeued() -> None:
    """A requeued whole goes on where it was: with the link that has failed, each time."""
    shop.BROKEN.add("parse")
    result = whole(chain(call(shop.fetch, "a"), call(shop.parse), call(shop.store)).enqueue())
    for _ in range(2):
        assert requeue(result.id)
        assert whole(result).status == TaskResultStatus.FAILED
    shop.BROKEN.clear()
    assert requeue(result.id)
    assert whole(result).return_value["text"] == "a page"
    assert effects() == {"fetch a": 1, "parse": 4, "store": 1}


def test_a_group() -> None:
    """The result is the list of the results in order; ``then`` gets it, and its result is that of the whole."""
    calls = [call(shop.send, number) for number in (3, 1, 2)]
    assert whole(group(calls).enqueue()).return_value == [30, 10, 20]
    assert whole(group(iter(calls), then=call(shop.report, title="Sum: ")).enqueue()).return_value == "Sum: 60"
    assert whole(group([], then=call(shop.report)).enqueue()).return_value == "0"
    assert whole(group([]).enqueue()).return_value == []


def test_a_group_with_failures() -> None:
    """``then`` is not enqueued, ``on_failure`` gets the failures, and the whole fails when all have ended."""
    shop.BROKEN |= {"1", "3"}
    calls = [call(shop.send, number) for number in range(4)]
    result = whole(group(calls, then=call(shop.report), on_failure=call(shop.alarm, to="ops")).enqueue())
    assert result.status == TaskResultStatus.FAILED
    assert letter(result).message.startswith(
        "django_vtqueue.exceptions.GiveUp: 1 is broken [2 of the 4 calls of 'group' failed: tests.project"
    )
    assert effects() == {"send 0": 1, "send 1": 1, "send 2": 1, "send 3": 1, "alarm ops": 1}
    [told] = Job.objects.filter(task_path=shop.alarm.module_path)
    dead = str(DeadLetter.objects.get(parent_id=result.id, message="1 is broken").pk)
    assert [failure["index"] for failure in told.result] == [1, 3]
    assert told.result[0] == {
        "index": 1,
        "job_id": dead,
        "task": "tests.project.workflows.send",
        "exception_class": "django_vtqueue.exceptions.GiveUp",
        "message": "1 is broken",
    }


def test_then_fails() -> None:
    """That is a failure of the whole as well: ``on_failure`` is told, and not that the first call has failed."""
    shop.BROKEN.add("report")
    calls = [call(shop.send, 1)]
    result = whole(group(calls, then=call(shop.report), on_failure=call(shop.alarm, "ops")).enqueue())
    assert letter(result).message.startswith(
        "django_vtqueue.exceptions.GiveUp: no paper ['then' failed: tests.project.workflows.report (job"
    )
    assert effects() == {"send 1": 1, "report": 1, "alarm ops": 1}
    [told] = Job.objects.get(task_path=shop.alarm.module_path).result
    assert (told["index"], told["task"], told["message"]) == (None, shop.report.module_path, "no paper")


def test_a_group_is_requeued() -> None:
    """Only what has failed is made anew; what still fails is told anew."""
    shop.BROKEN |= {"1", "2"}
    calls = [call(shop.send, number) for number in range(3)]
    result = whole(group(calls, then=call(shop.report), on_failure=call(shop.alarm, "ops")).enqueue())
    shop.BROKEN.remove("2")
    assert requeue(result.id)
    assert whole(result).status == TaskResultStatus.FAILED
    shop.BROKEN.clear()
    assert requeue(result.id)
    assert whole(result).return_value == "30"
    assert effects() == {"send 0": 1, "send 1": 3, "send 2": 2, "alarm ops": 2, "report": 1}


def test_cancelled() -> None:
    """The cancellation of a whole cancels what waits of it; requeued, it goes on there and alarms for none of that."""
    result = group([call(shop.send, 1)], on_failure=call(shop.alarm, "ops")).using(queue_name="wholes").enqueue()
    run_pending("wholes")
    assert Job.objects.count() == 2
    control.cancel(result.id)
    assert set(DeadLetter.objects.values_list("exception_class", flat=True)) == {"django_vtqueue.exceptions.Cancelled"}
    assert DeadLetter.objects.count() == 2
    assert requeue(result.id)
    assert whole(result).return_value == [10]
    assert effects() == {"send 1": 1}


def test_nested() -> None:
    """A chain in a group, a group in a chain, and as ``then``; a value goes to each call of a group."""
    page = chain(call(shop.fetch, "a"), call(shop.parse))
    assert whole(group([page, call(shop.send, 1)]).enqueue()).return_value == ["a page", 10]
    spread = chain(call(shop.send, 1), group([call(shop.send), call(shop.add_one)]), call(shop.report))
    assert whole(spread.enqueue()).return_value == "111"
    last = chain(call(shop.report), call(shop.store))
    assert whole(group([call(shop.send, 1)], then=last).enqueue()).return_value == {"text": "10", "tags": []}
    first = chain(chain(call(shop.send, 1), call(shop.send)), chain(call(shop.send)))
    assert whole(first.enqueue()).return_value == 1000


def test_a_nested_failure() -> None:
    """The error of the whole has that of the part in it."""
    shop.BROKEN.add("parse")
    result = whole(group([chain(call(shop.fetch, "a"), call(shop.parse))]).enqueue())
    assert "run_chain" in result.errors[-1].traceback
    assert "'2 parse' failed" in result.errors[-1].traceback


def test_options() -> None:
    """The whole runs where its first call does, or as ``using`` says; each call as its own task says."""
    first, second = shop.send.using(queue_name="mail", priority=5), shop.send.using(run_after=2 * DAY)
    result = chain(call(first, 1), call(second)).enqueue()
    assert (result.task.queue_name, result.task.priority) == ("mail", 5)
    other = chain(call(first, 1)).using(queue_name="slow").using(priority=-1).enqueue()
    assert (other.task.queue_name, other.task.priority) == ("slow", -1)
    Job.objects.filter(pk=other.id).delete()
    assert whole(result).status == TaskResultStatus.READY
    made = Job.objects.filter(task_path=shop.send.module_path).order_by("pk")
    assert [(job.queue_name, job.priority, job.state) for job in made] == [
        ("mail", 5, "SUCCESSFUL"),
        ("default", 0, "SCHEDULED"),
    ]
    assert made[1].due_at - made[1].enqueued_at == 2 * DAY
    run_pending(until=3 * DAY)
    result.refresh()
    assert result.return_value == 100


@pytest.mark.parametrize(
    ("workflow", "error", "message"),
    [
        (lambda: chain(call(shop.fetch)), TypeError, r"does not fit tests.project.workflows.fetch\(url: str\)"),
        (lambda: chain(call(shop.send, 1), call(shop.send, 2)), TypeError, "argument is the result of the call"),
        (lambda: chain(call(shop.send, 1), call(shop.send, number=2)), TypeError, "multiple values for argument"),
        (lambda: group([call(shop.send, 1)], then=call(shop.send, 1)), TypeError, "Its first argument is the result"),
        (lambda: group([call(shop.send, 1)], on_failure=call(shop.alarm)), TypeError, "missing a required argument"),
        (lambda: chain(call(shop.send, 1), group([call(shop.fetch, "a")])), TypeError, "too many positional"),
        (lambda: chain(call(shop.send, {1})), TypeError, r"Unsupported type: set. number of tests.project"),
        (lambda: chain(call(shop.send, 1), call(shop.only_one)), StepError, "has a unique_key"),
        (lambda: chain(call(shop.send, 1), call(shop.soon.using(run_after=DAY))), ValueError, "expires is 60"),
    ],
)
def test_wrong_calls(workflow: Any, error: type[Exception], message: str) -> None:
    """What cannot be called is refused at enqueue, and nothing is stored."""
    with pytest.raises(error, match=message):
        workflow().enqueue()
    assert not Job.objects.exists()


@pytest.mark.parametrize("nested", [False, True])
def test_a_whole_in_a_queue_with_overflow(settings: Any, nested: bool) -> None:
    """It is refused at enqueue, for its job has steps; the error says what to do, and calls may run there."""
    options = {"queue_options": {"wide": {"overflow": True}}}
    settings.TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": options}}
    part = chain(call(shop.send.using(queue_name="wide"), 1), call(shop.send))
    with pytest.raises(InvalidTask, match=r"cannot be in queue 'wide', which has overflow.*using\(queue_name=…\)"):
        (group([call(shop.send, 2), part]) if nested else part).enqueue()
    assert not Job.objects.exists()
    part = part.using(queue_name="default")
    assert whole((group([part]) if nested else part).enqueue()).return_value == ([100] if nested else 100)


def test_a_call_that_is_due_at_once() -> None:
    """A delay of nothing is one, too."""
    result = chain(call(shop.fetch.using(run_after=timedelta(0)), "a"), call(shop.parse)).enqueue()
    run_pending()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


def test_what_is_no_call() -> None:
    """A task, or what it returns, is no call; and a chain has at least one."""
    with pytest.raises(TypeError, match=r"chain takes call\(task, …\), a chain or a group, not"):
        chain(shop.fetch)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="then takes call"):
        group([], then=shop.report)  # type: ignore[arg-type]
    for wrong in ("", {}, None, [None], [[]]):
        with pytest.raises(TypeError, match=r"group takes call\(task, …\)"):
            group(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="group takes call"):
        group([call(shop.send, 1)], call(shop.send, 2))  # type: ignore[list-item]
    for none in ([], [[]]):
        with pytest.raises(ValueError, match="at least one call"):
            chain(*none)


def test_calls_are_arguments_or_one_list() -> None:
    """A chain and a group take both, the list also of a generator."""
    calls = [call(shop.send, 1), call(shop.send, 2)]
    assert group(calls) == group(*calls) == group(each for each in calls)
    assert chain(calls) == chain(*calls) == chain(iter(calls))
    assert group([]) == group()
    assert group(chain(calls)).parts == (chain(calls),)


def test_other_backends(settings: Any) -> None:
    """Where the tasks run by another backend there are no workflows, and the error says so."""
    dummy = f"{BaseTaskBackend.__module__.removesuffix('base')}dummy.DummyBackend"
    settings.TASKS = {"default": {"BACKEND": dummy}}
    with pytest.raises(InvalidTask, match="needs VTQueueBackend, but TASKS has DummyBackend"):
        chain(call(shop.fetch, "a")).enqueue()


def test_stored_paths_import_nothing() -> None:
    """A path in a row that is no task of this project is refused, as that of a job is."""
    result = chain(call(shop.fetch, "a")).enqueue()
    job = Job.objects.get(pk=result.id)
    job.payload["kwargs"]["calls"][0]["task"] = "antigravity.fly"
    job.save()
    [ran] = run_pending()
    assert ran.errors[-1].exception_class is UnknownTask


def test_secrets() -> None:
    """What is secret by the name of a parameter is hidden in the row of the whole as well."""
    result = chain(call(shop.login, "ann", "pass-word"), call(shop.login, "s3cret")).enqueue()
    shown = str(shown_call(Job.objects.get(pk=result.id)))
    assert "ann" in shown
    assert "pass-word" not in shown
    assert "s3cret" not in shown


def enqueued_and_broken() -> None:
    chain(call(shop.send, 1)).enqueue()
    raise ZeroDivisionError


def test_in_a_transaction(transactional_db: None) -> None:
    """A workflow is stored with the caller's transaction, or not at all."""
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        enqueued_and_broken()
    assert not Job.objects.exists()


def test_async(transactional_db: None) -> None:
    """aenqueue is the async twin."""
    result = asyncio.run(chain(call(shop.send, 1)).aenqueue())
    assert whole(result).return_value == 10
