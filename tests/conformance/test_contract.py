"""The contract of Django's Tasks framework, where backends fall: each sentence of it is a test.

What runs the tasks is a parameter: in the test's own thread, as ``run_pending`` does, and by a worker's threads.
"""

import asyncio
import enum
import logging
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import connections, transaction
from django.db.models import F
from django.dispatch import Signal
from pytest_django import Settings

from django_vtqueue import GiveUp, Queue, Retry, TaskContext, TaskResult, TaskResultStatus, UnknownTask, task
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.fields import StoredText
from django_vtqueue.models import Job
from django_vtqueue.queue.dead_letters import requeue
from django_vtqueue.tasks.compat import (
    FRAMEWORK_APP,
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    framework_task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.fake_clock import START, FakeClock
from tests.pending import run_pending

from .conftest import configure

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
SUCCESSFUL, FAILED = TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED

Run = Callable[[], object]
Seen = list[tuple[type, TaskResult]]


@pytest.fixture(params=["inline", "worker"])
def run(request: pytest.FixtureRequest, backend: VTQueueBackend) -> Run:
    """Return a function that runs what is due, and the retries of it, to their ends."""
    if request.param == "inline":
        return lambda: run_pending(until=timedelta(seconds=5))
    return lambda: call_command("vtworker", drain=True, drain_retries=5, verbosity=0, reload=False)


@contextmanager
def heard(signal: Signal, look: Callable[[TaskResult], None] | None = None) -> Iterator[Seen]:
    """Collect what a signal is sent with during the block."""
    seen: Seen = []

    def receiver(sender: type, task_result: TaskResult, **kwargs: Any) -> None:
        if look:
            look(task_result)
        seen.append((sender, task_result))

    signal.connect(receiver)
    try:
        yield seen
    finally:
        signal.disconnect(receiver)


def times(result: TaskResult) -> list[datetime]:
    """Return what is known of when a task was enqueued, started and finished."""
    return [moment for moment in (result.enqueued_at, result.started_at, result.finished_at) if moment is not None]


@task
def give(value: Any = None) -> Any:
    return value


@task
async def give_later(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


@task(takes_context=True, max_attempts=3, backoff=0.01)
def fail_until(context: TaskContext, attempt: int) -> int:
    if context.attempt < attempt:
        raise ConnectionError(f"attempt {context.attempt}")
    return context.attempt


@task(max_attempts=1)
def fail(kind: str = "ValueError") -> None:
    kinds = {"SystemExit": SystemExit(3), "GiveUp": GiveUp("no such report"), "Retry": Retry("again")}
    raise kinds.get(kind, ValueError("no luck"))


@task(takes_context=True)
def look_at_myself(context: TaskContext) -> dict[str, Any]:
    mine, stored = context.task_result, task_backends["default"].get_result(context.task_result.id)
    assert mine.args == stored.args == []
    return {
        "status": [mine.status, stored.status],
        "attempts": [context.attempt, mine.attempts, stored.attempts],
        "workers": [mine.worker_ids == stored.worker_ids, len(mine.worker_ids)],
        "times": [mine.started_at == stored.started_at, mine.started_at == mine.last_attempted_at],
        "ends": [mine.finished_at, stored.finished_at],
    }


@task
def lose_my_lease() -> str:
    """Be claimed by somebody else while running."""
    alias = task_backends["default"].database  # type: ignore[attr-defined]
    Job.objects.using(alias).filter(state="RUNNING").update(claims=F("claims") + 1, worker_id="thief")
    return "too late"


@task
def interrupted() -> None:
    raise KeyboardInterrupt


@task(queue_name="default")
def other() -> None:
    pass


# -- enqueueing and results, sync and async ---------------------------------------------------------------------------


def test_enqueue_and_get_result(backend: VTQueueBackend, run: Run) -> None:
    """A result is READY when enqueued, and by its id, from anywhere, what it has become since."""
    result = give.enqueue({"a": [1, None]})
    assert (result.status, result.args, result.kwargs) == (READY, [{"a": [1, None]}], {})
    assert (result.worker_ids, result.errors, result.attempts, result.started_at) == ([], [], 0, None)
    assert give.get_result(result.id) == result

    run()
    done = give.get_result(result.id)
    assert (done.status, done.return_value, done.attempts) == (SUCCESSFUL, {"a": [1, None]}, 1)
    assert done.enqueued_at == result.enqueued_at
    assert sorted(times(done)) == times(done)
    assert done.started_at == done.last_attempted_at
    assert done.is_finished


def test_aenqueue_and_aget_result(backend: VTQueueBackend, run: Run) -> None:
    """The same from async code."""

    @async_to_sync
    async def enqueue() -> TaskResult:
        result = await give.aenqueue("x")
        assert await give.aget_result(result.id) == result
        return result

    result = enqueue()
    run()
    assert async_to_sync(give.aget_result)(result.id).return_value == "x"


def test_refresh_and_arefresh(backend: VTQueueBackend, run: Run) -> None:
    """A result in hand can be brought up to date, in both ways."""
    first, second = give.enqueue(1), give.enqueue(value=2)
    run()
    assert (first.status, second.status) == (READY, READY)
    first.refresh()
    async_to_sync(second.arefresh)()
    assert (first.return_value, second.return_value) == (1, 2)
    assert first == give.get_result(first.id)
    assert second == give.get_result(second.id)


def test_an_async_task_runs(backend: VTQueueBackend, run: Run) -> None:
    """A coroutine function is a task like any other."""
    result = give_later.enqueue("x")
    run()
    result.refresh()
    assert result.return_value == "x"


def test_get_result_of_another_task_is_refused(backend: VTQueueBackend) -> None:
    """``task.get_result`` gives results of this task only."""
    result = give.enqueue()
    with pytest.raises(Exception, match="Task does not match"):
        other.get_result(result.id)


def test_while_a_task_runs_it_is_seen_running(backend: VTQueueBackend, run: Run) -> None:
    """In its context and in the store alike: RUNNING, one attempt, by one worker, begun and not ended."""
    result = look_at_myself.enqueue()
    run()
    result.refresh()
    assert result.errors == []
    assert result.return_value == {
        "status": ["RUNNING", "RUNNING"],
        "attempts": [1, 1, 1],
        "workers": [True, 1],
        "times": [True, True],
        "ends": [None, None],
    }


def test_enqueueing_takes_part_in_the_callers_transaction(backend: VTQueueBackend, alias: str) -> None:
    """A task that was enqueued in a transaction which rolls back was never there."""

    def work(commit: bool) -> TaskResult:
        with transaction.atomic(using=alias):
            results.append(give.enqueue(commit))
            if not commit:
                raise ZeroDivisionError
            return results[-1]

    results: list[TaskResult] = []
    with pytest.raises(ZeroDivisionError):
        work(commit=False)
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(results[0].id)
    assert backend.get_result(work(commit=True).id).status == READY


@pytest.mark.parametrize(
    "result_id",
    [
        *["", "x", "0" * 32, str(UUID(int=1)), "0" * 31, "0" * 10_000, "\0", "\ud800", "' OR 1=1 --", "é" * 32],
        *[None, 7, 3.5, True, b"0" * 32, object(), [], {}, (1,)],
    ],
    ids=lambda value: ascii(value)[:20] if type(value) is not object else "object",
)  # fmt: skip
def test_a_malformed_or_unknown_id_does_not_exist(backend: VTQueueBackend, result_id: Any) -> None:
    """Whatever is asked for, the answer for what is no task is TaskResultDoesNotExist."""
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(result_id)
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(backend.aget_result)(result_id)


def test_a_raw_job_is_no_task(backend: VTQueueBackend, alias: str) -> None:
    """The id of a payload in the same table has no task result."""
    job_id = Queue("sensors", using=alias).publish("x")
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(str(job_id))


def test_an_id_is_found_in_any_spelling(backend: VTQueueBackend) -> None:
    """With dashes as people see it, without, in capitals, or as a UUID."""
    result = give.enqueue()
    for spelling in (result.id, result.id.upper(), result.id.replace("-", ""), UUID(result.id)):
        assert backend.get_result(spelling).id == result.id  # type: ignore[arg-type]


def test_ids_are_uuids_that_grow(backend: VTQueueBackend) -> None:
    """Version 7, so that the primary key grows with time."""
    ids = [UUID(give.enqueue().id) for _ in range(3)]
    assert {job_id.version for job_id in ids} == {7}
    assert ids == sorted(ids)


# -- validation -------------------------------------------------------------------------------------------------------


def plain() -> None:
    pass


def nested() -> Callable[[], None]:
    def inner() -> None:
        pass

    return inner


def no_context(value: int) -> None:
    pass


@pytest.mark.parametrize(
    ("func", "options"),
    [
        pytest.param(nested(), {}, id="nested"),
        pytest.param(len, {}, id="builtin"),
        pytest.param(plain, {"priority": 101}, id="priority-high"),
        pytest.param(plain, {"priority": -101}, id="priority-low"),
        pytest.param(plain, {"priority": 1.5}, id="priority-fraction"),
        pytest.param(plain, {"queue_name": "unknown"}, id="queue"),
        pytest.param(no_context, {"takes_context": True}, id="context"),
        pytest.param(plain, {"takes_context": True}, id="no-context"),
    ],
)
@pytest.mark.parametrize("decorator", [task, framework_task], ids=["ours", "django"])
def test_a_task_is_validated_when_defined(
    alias: str, settings: Settings, decorator: Callable[..., Any], func: Callable[..., Any], options: dict[str, Any]
) -> None:
    """What can never run here is refused where it is defined."""
    configure(settings, alias, QUEUES=["default"])
    with pytest.raises(InvalidTask):
        decorator(**options)(func)


@pytest.mark.parametrize(
    "changes",
    [{"priority": 101}, {"priority": 0.5}, {"queue_name": "unknown"}, {"run_after": datetime(2030, 1, 1)}],
    ids=["priority-high", "priority-fraction", "queue", "naive"],
)
def test_a_task_is_validated_in_using(alias: str, settings: Settings, changes: dict[str, Any]) -> None:
    """``using()`` makes a new task, which must be valid too."""
    configure(settings, alias, QUEUES=["default"])
    with pytest.raises(InvalidTask):
        give.using(**changes)


def test_a_task_is_validated_again_when_enqueued(alias: str, settings: Settings) -> None:
    """A task that was valid where it was defined may not be valid here: nothing is stored then."""
    configure(settings, alias, QUEUES=["default", "emails"])
    mail = give.using(queue_name="emails")
    mail.enqueue()
    configure(settings, alias, QUEUES=["default"])
    with pytest.raises(InvalidTask, match="emails"):
        mail.enqueue()
    assert Job.objects.using(alias).count() == 1


def test_a_valid_task_is_inspected_once(backend: VTQueueBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inspecting a function is a large part of an enqueue's cost, so it is done once for each queue and priority."""
    inspected: list[Task] = []
    monkeypatch.setattr(BaseTaskBackend, "validate_task", lambda self, task: inspected.append(task))
    for _ in range(3):
        give.enqueue()
        give.using(priority=3).enqueue()
        give.using(run_after=datetime(2030, 1, 1, tzinfo=UTC)).enqueue()
    assert len(inspected) == 2


def test_empty_queues_allow_any(alias: str, settings: Settings) -> None:
    """``QUEUES: []`` is Django's way to say so; without the key there is "default" only."""
    configure(settings, alias, QUEUES=[])
    assert give.using(queue_name="whatever").enqueue().task.queue_name == "whatever"
    del settings.TASKS["default"]["QUEUES"]
    settings.TASKS = settings.TASKS
    with pytest.raises(InvalidTask):
        give.using(queue_name="whatever")


def test_every_worker_of_empty_queues_serves_any(backend: VTQueueBackend, run: Run) -> None:
    """A queue that nobody has named before is worked on."""
    result = give.using(queue_name="whatever", priority=-7).enqueue(1)
    run()
    done = backend.get_result(result.id)
    assert (done.status, done.task.queue_name, done.task.priority) == (SUCCESSFUL, "whatever", -7)


# -- what is JSON -----------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

NOT_JSON = {
    "object": object(),
    "set": {1},
    "datetime": datetime(2030, 1, 1, tzinfo=UTC),
    "uuid": uuid4(),
    "enum": Colour.RED,
    "function": print,
    "nan": float("nan"),
    "infinity": float("inf"),
    "nested nan": {"a": [1, {"b": float("-inf")}]},
    "integer key": {1: "a"},
    "none key": {None: 1},
    "nested key": [{"a": {True: 1}}],
    "not utf-8": b"\xff",
    "circle": CIRCLE,
    "too deep": DEEP,
    "too long an integer": 10**5000,
}
not_json = pytest.mark.parametrize("value", NOT_JSON.values(), ids=NOT_JSON)


@not_json
def test_arguments_that_are_not_json_are_the_callers_mistake(backend: VTQueueBackend, alias: str, value: Any) -> None:
    """TypeError, in the caller, and nothing is stored: also for what Django's own normalisation lets through."""
    with heard(task_enqueued) as sent:
        with pytest.raises(TypeError):
            give.enqueue(value)
        with pytest.raises(TypeError):
            give.enqueue(value=value)
        with pytest.raises(TypeError):
            async_to_sync(give.aenqueue)(value)
    assert not Job.objects.using(alias).exists()
    assert sent == []


# What the task of the same name returns; it is not sent as an argument.
@task(max_attempts=1)
def return_what_is_not_json(name: str) -> Any:
    return NOT_JSON[name]


@pytest.mark.parametrize("name", NOT_JSON)
def test_a_result_that_is_not_json_is_a_failure(backend: VTQueueBackend, run: Run, name: str) -> None:
    """The task has run, but what it returned cannot be stored: FAILED, with a TypeError that says so."""
    result = return_what_is_not_json.enqueue(name)
    run()
    result.refresh()
    assert result.status == FAILED
    [error] = result.errors
    assert error.exception_class is TypeError


def test_tuples_become_what_json_has(backend: VTQueueBackend, run: Run) -> None:
    """As in Django's own backends: in the result that enqueue returns, and in what the task is given."""
    result = give.enqueue((1, (2, "three")))
    assert result.args == [[1, [2, "three"]]]
    run()
    result.refresh()
    assert result.return_value == [1, [2, "three"]]


# -- signals ----------------------------------------------------------------------------------------------------------


def test_signals_are_sent_with_the_class_as_sender(backend: VTQueueBackend, run: Run) -> None:
    """Enqueued, started, finished: each once for a job that succeeds, with its result, by the backend's class."""
    with heard(task_enqueued) as enqueued, heard(task_started) as started, heard(task_finished) as finished:
        result = give.enqueue(1)
        assert enqueued == [(VTQueueBackend, result)]
        run()
    assert [(sender, told.id) for sender, told in started] == [(VTQueueBackend, result.id)]
    [(sender, told)] = finished
    assert sender is VTQueueBackend
    assert told == backend.get_result(result.id)


@pytest.mark.parametrize("failing", [False, True])
def test_task_finished_is_sent_after_the_commit(backend: VTQueueBackend, alias: str, run: Run, failing: bool) -> None:
    """Whoever hears it finds the end of the job stored, and no transaction open."""
    status = FAILED if failing else SUCCESSFUL
    stored: list[TaskResultStatus] = []

    def look(result: TaskResult) -> None:
        connection = connections[alias]
        assert not connection.in_atomic_block
        assert not connection.connection or not connection.connection.in_transaction
        stored.append(backend.get_result(result.id).status)

    with heard(task_finished, look) as finished:
        (fail if failing else give).enqueue()
        run()
    assert [result.status for _, result in finished] == stored == [status]


def test_an_executor_thread_announces(backend: VTQueueBackend) -> None:
    """A receiver that takes its time must not stop the control loop: it is called in a thread that runs jobs."""
    threads: list[threading.Thread] = []
    with heard(task_finished, lambda result: threads.append(threading.current_thread())):
        give.enqueue()
        fail.enqueue()
        call_command("vtworker", drain=True, verbosity=0)
    assert len(threads) == 2
    assert all(thread is not threading.main_thread() for thread in threads)


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit", "GiveUp", "Retry"])
def test_a_failure_is_announced_inside_its_except(backend: VTQueueBackend, run: Run, kind: str) -> None:
    """``sys.exc_info()`` of a receiver has the task's exception, with the lines of the task in its traceback."""
    tracebacks: list[str] = []
    with heard(task_finished, lambda result: tracebacks.append(traceback.format_exc())) as finished:
        fail.enqueue(kind)
        run()
    [(_, result)] = finished
    assert result.status == FAILED
    assert f"{kind}: " in tracebacks[0]
    assert ", in fail\n" in tracebacks[0]


def test_a_success_is_announced_outside_of_any_except(backend: VTQueueBackend, run: Run) -> None:
    """Nothing is being handled then, also when another job has failed just before."""
    errors: list[Any] = []
    with heard(task_finished, lambda result: errors.append((result.status, sys.exc_info()[0]))):
        fail.enqueue()
        give.enqueue()
        run()
    assert sorted(errors, key=str) == [(FAILED, ValueError), (SUCCESSFUL, None)]


def test_djangos_logger_has_the_traceback(backend: VTQueueBackend, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """What Django writes (and mails to ADMINS) for a failed task shows where it failed."""
    fail.enqueue()
    with caplog.at_level(logging.ERROR, "django_tasks" if FRAMEWORK_APP else "django.tasks"):
        run()
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info
    assert record.exc_info[0] is ValueError
    assert "in fail" in caplog.text


def test_a_failure_that_will_be_retried_is_not_announced(backend: VTQueueBackend, run: Run) -> None:
    """``task_finished`` is sent once in a job's life: at its end."""
    with heard(task_started) as started, heard(task_finished) as finished:
        fail_until.enqueue(3)
        run()
    assert [result.attempts for _, result in started] == [1, 2, 3]
    assert [(result.status, result.attempts) for _, result in finished] == [(SUCCESSFUL, 3)]


def test_a_loser_of_the_lease_announces_nothing(backend: VTQueueBackend, run: Run) -> None:
    """Who finishes a job that somebody else holds by now changes nothing and says nothing."""
    result = lose_my_lease.enqueue()
    with heard(task_finished) as finished:
        run()
    assert finished == []
    stored = backend.get_result(result.id)
    assert (stored.status, stored.worker_ids) == (RUNNING, ["thief"])


def test_a_receiver_that_fails_does_no_harm(backend: VTQueueBackend, run: Run) -> None:
    """A mail to ADMINS that cannot be sent, say: the job has ended, the next one runs."""

    def look(result: TaskResult) -> None:
        raise OSError("no mail today")

    results = [give.enqueue(1), fail.enqueue(), give.enqueue(2)]
    with heard(task_finished, look), heard(task_started, look):
        run()
    assert [backend.get_result(result.id).status for result in results] == [SUCCESSFUL, FAILED, SUCCESSFUL]


# -- how tasks end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit", "GiveUp"])
def test_whatever_a_task_raises_is_a_failure(backend: VTQueueBackend, run: Run, kind: str) -> None:
    """``sys.exit()`` too: the worker goes on, and the result says what was raised, with its traceback."""
    result, after = fail.enqueue(kind), give.enqueue()
    run()
    result.refresh()
    assert result.status == FAILED
    [error] = result.errors
    assert error.exception_class.__name__ == kind
    assert ", in fail\n" in error.traceback
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="failed"):
        result.return_value  # noqa: B018
    after.refresh()
    assert after.status == SUCCESSFUL


# What a task or its backoff says about the next attempt, and is no duration.
NO_DELAYS = {"text": "soon", "nan": float("nan"), "infinity": float("inf"), "huge": 1e300, "longest": timedelta.max}


@task(max_attempts=2, backoff=0.01)
def retry_never(name: str) -> None:
    raise Retry("later", delay=NO_DELAYS[name])  # type: ignore[arg-type]


def no_delay(error: BaseException, result: TaskResult) -> Any:
    if result.args == ["exit"]:
        raise SystemExit(3)
    return NO_DELAYS[result.args[0]]


@task(max_attempts=2, backoff=no_delay)
def fail_without_delay(name: str) -> None:
    raise ValueError("no luck")


@pytest.mark.parametrize(
    ("task", "name"),
    [*((retry_never, name) for name in NO_DELAYS), *((fail_without_delay, name) for name in [*NO_DELAYS, "exit"])],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_delay_that_is_none_does_not_cost_the_job(backend: VTQueueBackend, task: Task, name: str) -> None:
    """The attempt has failed, a default delay is used, and the mistake is written into the history."""
    result = task.enqueue(name)
    run_pending(until=timedelta(seconds=5))
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 2)
    assert "a default was used" in result.errors[0].traceback


def test_ctrl_c_gives_the_job_back(backend: VTQueueBackend, alias: str) -> None:
    """A KeyboardInterrupt in the caller's own thread goes through, and the attempt is not counted."""
    result = interrupted.enqueue()
    with pytest.raises(KeyboardInterrupt):
        run_pending()
    result.refresh()
    assert (result.status, result.attempts, result.errors) == (READY, 0, [])
    assert Job.objects.using(alias).get().attempts == 0


def test_waiting_for_a_retry_is_ready_with_errors(backend: VTQueueBackend, time: FakeClock) -> None:
    """Between two attempts: READY, one error, one worker, started and not finished."""
    result = fail_until.enqueue(3)
    run_pending()
    result.refresh()
    assert (result.status, result.attempts, len(result.worker_ids)) == (READY, 1, 1)
    assert [error.exception_class for error in result.errors] == [ConnectionError]
    assert result.started_at == result.last_attempted_at
    assert result.finished_at is None
    assert not result.is_finished

    first = result.started_at
    time.advance(60)
    run_pending()
    result.refresh()
    assert [len(result.errors), result.attempts] == [2, 2]
    assert result.started_at == first == datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
    assert result.last_attempted_at == datetime(2027, 1, 15, 8, 1, tzinfo=UTC)


def test_a_dead_letter_is_failed(backend: VTQueueBackend, run: Run) -> None:
    """Attempts used up: FAILED, with an error and a worker for each attempt."""
    result = fail_until.enqueue(9)
    run()
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (FAILED, 3, 3)
    assert [error.traceback.splitlines()[-1] for error in result.errors] == [
        f"ConnectionError: attempt {attempt}" for attempt in (1, 2, 3)
    ]


def test_an_expired_job_is_failed_in_the_end(backend: VTQueueBackend, alias: str, time: FakeClock) -> None:
    """A task whose workers die is FAILED too when its attempts are used up; its errors say what happened."""
    result = fail.enqueue()
    Job.objects.using(alias).update(
        state="RUNNING", claims=1, attempts=1, worker_id="w1", started_at=START, lease_until=START
    )
    assert backend.get_result(result.id).status == RUNNING
    time.advance(61)
    run_pending()
    result.refresh()
    assert (result.status, result.worker_ids) == (FAILED, ["w1"])
    assert result.errors[0].exception_class.__name__ == "LeaseExpired"
    assert "w1" in result.errors[0].traceback


def test_attempts_and_workers_go_on_after_a_requeue(backend: VTQueueBackend, alias: str, run: Run) -> None:
    """``result.attempts`` counts the executions of a whole life; so does ``context.attempt``, which is Django's."""
    result = fail_until.enqueue(5)
    run()
    assert requeue([result.id], using=alias) == [UUID(result.id)]
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (READY, 3, 3)
    assert Job.objects.using(alias).get().attempts == 0
    run()
    result.refresh()
    assert (result.status, result.return_value, result.attempts, len(result.errors)) == (SUCCESSFUL, 5, 5, 4)
    assert len(result.worker_ids) == 5
    assert Job.objects.using(alias).get().attempts == 2


def test_attempts_count_what_the_history_leaves_out(backend: VTQueueBackend, alias: str, time: FakeClock) -> None:
    """After more attempts than the history keeps, their number is still right."""
    result = give.enqueue()
    Job.objects.using(alias).update(task_path=fail_until.module_path, max_attempts=0)
    Job.objects.using(alias).update(payload={"args": [61], "kwargs": {}})
    for _ in range(61):
        run_pending()
        time.advance(3600)
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 61, 61)
    assert len(result.errors) == 50


# -- history stays readable -------------------------------------------------------------------------------------------


def ended(run: Run) -> list[TaskResult]:
    """Return three results: of one that waits, one that succeeded and one that failed."""
    done, failed = give.using(queue_name="old", priority=3).enqueue("x"), fail.using(queue_name="old").enqueue()
    run()
    waiting = give.using(queue_name="old", run_after=datetime(2040, 1, 1, 12, tzinfo=UTC)).enqueue()
    done.refresh()
    failed.refresh()
    return [waiting, done, failed]


def test_results_stay_readable_when_their_queue_is_gone(
    backend: VTQueueBackend, alias: str, settings: Settings, run: Run
) -> None:
    """A queue that was taken out of QUEUES: its past can still be read."""
    results = ended(run)
    new = configure(settings, alias, QUEUES=["new"])
    again = [new.get_result(result.id) for result in results]
    assert [result.task.queue_name for result in again] == ["old"] * 3
    assert [result.status for result in again] == [READY, SUCCESSFUL, FAILED]
    assert again == results


@pytest.mark.parametrize(
    "path", ["tests.conformance.test_contract.gone", "no.such.module.func", "nothing", "json.dumps"]
)
def test_results_stay_readable_when_their_function_is_gone(
    backend: VTQueueBackend, alias: str, run: Run, path: str
) -> None:
    """A task that is gone is shown by its path; it cannot be called."""
    results = ended(run)
    Job.objects.using(alias).update(task_path=path)
    for result in results[:2]:
        again = backend.get_result(result.id)
        assert (again.status, again.args, again.enqueued_at) == (result.status, result.args, result.enqueued_at)
        assert again.task.module_path == path if "." in path else again.task.module_path.endswith(path)
        with pytest.raises(UnknownTask, match=path):
            again.task.call()


def test_results_stay_readable_when_use_tz_changes(backend: VTQueueBackend, settings: Settings, run: Run) -> None:
    """The same moments: aware in UTC, or naive in TIME_ZONE."""
    results = ended(run)
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    waiting, done, failed = (backend.get_result(result.id) for result in results)
    assert waiting.task.run_after == datetime(2040, 1, 1, 21)
    assert [result.status for result in (waiting, done, failed)] == [READY, SUCCESSFUL, FAILED]
    for before, after in zip(results, (waiting, done, failed), strict=True):
        assert times(after) == [moment.replace(tzinfo=None) + timedelta(hours=9) for moment in times(before)]


@pytest.mark.parametrize("payload", ["{", "[]", "{}", '{"args": 1, "kwargs": []}', "[" * 100_000])
def test_a_damaged_payload_can_be_shown(backend: VTQueueBackend, alias: str, payload: str) -> None:
    """Somebody edited the row: the result can be read, without arguments."""
    result = give.enqueue(1)
    Job.objects.using(alias).update(payload=StoredText(payload))
    again = backend.get_result(result.id)
    assert (again.status, again.args, again.kwargs) == (READY, [], {})


def test_a_damaged_payload_is_a_failure_without_a_retry(backend: VTQueueBackend, alias: str, run: Run) -> None:
    """What is damaged does not mend itself: a dead letter at once, and the next job runs."""
    result, after = give.enqueue(1), give.enqueue(2)
    Job.objects.using(alias).filter(pk=result.id).update(payload=StoredText("{"))
    run()
    assert [backend.get_result(item.id).status for item in (result, after)] == [FAILED, SUCCESSFUL]
    assert backend.get_result(result.id).attempts == 1


# -- at import --------------------------------------------------------------------------------------------------------


def test_a_backend_is_built_from_its_configuration_alone() -> None:
    """Backends are built at import, once per thread: no database, no import of models, no look at the options."""
    code = """
import sys
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_vtqueue"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "/nowhere/db.sqlite3"}},
    TASKS={"default": {
        "BACKEND": "django_vtqueue.backend.VTQueueBackend", "OPTIONS": {"database": "nowhere", "wrong": 1},
    }},
)
from django_vtqueue import task
import types
module = sys.modules["shop"] = types.ModuleType("shop")
exec("def send(): pass", vars(module))
module.send = task(module.send)
import django
django.setup()
from django.db import connections
assert all(connection.connection is None for connection in connections.all()), "a connection was made"
from django_vtqueue.tasks.compat import task_backends
assert type(task_backends["default"]).__name__ == "VTQueueBackend"
assert all(connection.connection is None for connection in connections.all()), "a connection was made"
print(module.send.module_path)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("shop.send\n", 0), done.stderr
