"""The contract of Django's Tasks framework where it depends on what runs the tasks, and on the engine.

What runs them is a parameter: the test's own thread, as ``run_pending`` does, and a worker's threads. What is refused
before anything is stored, and what a result shows, is in tests/tasks/test_django.py.
"""

import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connections, transaction
from django.db.models import F
from django.dispatch import Signal
from pytest_django import Settings

from django_vtqueue import GiveUp, Retry, TaskContext, TaskResult, TaskResultStatus, requeue, task
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.models import Job
from tests.fake_clock import FakeClock
from tests.pending import run_pending

from .bench import BaseTaskBackend, Bench, InvalidTask, Task, task_backends, task_enqueued, task_finished, task_started
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
    """Be claimed by another worker while running."""
    alias = task_backends["default"].database  # type: ignore[attr-defined]
    Job.objects.using(alias).filter(state="RUNNING").update(claims=F("claims") + 1, worker_id="thief")
    return "too late"


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


# -- validation -------------------------------------------------------------------------------------------------------


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
    """A queue whose name is new is worked on."""
    result = give.using(queue_name="whatever", priority=-7).enqueue(1)
    run()
    done = backend.get_result(result.id)
    assert (done.status, done.task.queue_name, done.task.priority) == (SUCCESSFUL, "whatever", -7)


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


@pytest.mark.parametrize("how", ["raises", "exits", "breaks the transaction"])
def test_whatever_receivers_of_task_enqueued_do_the_job_is_stored(
    backend: VTQueueBackend, alias: str, how: str
) -> None:
    """``enqueue`` returns, and the caller's transaction goes on, with all that was written before and behind it."""

    def hinder(result: TaskResult) -> None:
        assert Job.objects.using(alias).filter(pk=result.id).exists()
        threads.append(threading.get_ident())
        if how == "breaks the transaction":
            connections[alias].cursor().execute("SELECT no_such_column FROM vtqueue_job")
        raise SystemExit(3) if how == "exits" else RuntimeError("a receiver failed")

    threads: list[int] = []
    with heard(task_enqueued, hinder), transaction.atomic(using=alias):
        results = [give.enqueue(1), *backend.enqueue_many(give, [((2,), {}), ((3,), {})])]
    assert [backend.get_result(result.id).args for result in results] == [[1], [2], [3]]
    assert threads == [threading.get_ident()] * 3


def in_transaction(raw: Any) -> bool:
    """Return whether a transaction is open on a connection of a driver."""
    return bool(raw.in_transaction if hasattr(raw, "in_transaction") else raw.info.transaction_status)


@pytest.mark.parametrize("failing", [False, True])
def test_task_finished_is_sent_after_the_commit(backend: VTQueueBackend, alias: str, run: Run, failing: bool) -> None:
    """A receiver finds the end of the job stored, and no transaction open."""
    status = FAILED if failing else SUCCESSFUL
    stored: list[TaskResultStatus] = []

    def look(result: TaskResult) -> None:
        connection = connections[alias]
        assert not connection.in_atomic_block
        assert not connection.connection or not in_transaction(connection.connection)
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


def test_a_failure_that_will_be_retried_is_not_announced(backend: VTQueueBackend, run: Run) -> None:
    """``task_finished`` is sent once in a job's life: at its end."""
    with heard(task_started) as started, heard(task_finished) as finished:
        fail_until.enqueue(3)
        run()
    assert [result.attempts for _, result in started] == [1, 2, 3]
    assert [(result.status, result.attempts) for _, result in finished] == [(SUCCESSFUL, 3)]


def test_a_loser_of_the_lease_announces_nothing(backend: VTQueueBackend, run: Run) -> None:
    """A worker that finishes a job which another one holds by now changes nothing and says nothing."""
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

    results: list[TaskResult] = [give.enqueue(1), fail.enqueue(), give.enqueue(2)]
    with heard(task_finished, look), heard(task_started, look):
        run()
    assert [backend.get_result(result.id).status for result in results] == [SUCCESSFUL, FAILED, SUCCESSFUL]


# -- how tasks end ----------------------------------------------------------------------------------------------------


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


@task
def named(function: str, args: int, kwargs: int, job: int, backend: int) -> str:
    return f"{function} {args + kwargs + job + backend}"


def test_arguments_of_any_name(backend: VTQueueBackend, run: Run) -> None:
    """Code around the call may have parameters of these names, too."""
    result = named.enqueue(function="f", args=1, kwargs=2, job=3, backend=4)
    run()
    result.refresh()
    assert result.return_value == "f 10"


@task(max_attempts=1)
def ask_wrongly(alias: str, caught: bool) -> str:
    with connections[alias].cursor() as cursor:
        try:
            cursor.execute("SELECT no_such_column FROM vtqueue_job")
        except DatabaseError:
            if not caught:
                raise
    return "caught"


@pytest.mark.parametrize("caught", [True, False])
def test_an_error_of_the_database_inside_a_transaction(backend: VTQueueBackend, caught: bool) -> None:
    """A test's transaction, say, can be used afterwards; PostgreSQL refuses all that follows an error."""
    with transaction.atomic(using=backend.database):
        result = ask_wrongly.enqueue(backend.database, caught)
        run_pending()
        result.refresh()
        assert result.status == (SUCCESSFUL if caught else FAILED)


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


def test_an_expired_job_is_failed_in_the_end(backend: VTQueueBackend, bench: Bench, time: FakeClock) -> None:
    """A task whose workers die is FAILED too when its attempts are used up; its errors say what happened."""
    result = fail.enqueue()
    bench.one(queues=None, raw=False, lease=60)
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


def test_results_stay_readable_when_use_tz_changes(backend: VTQueueBackend, settings: Settings, run: Run) -> None:
    """The same moments: aware in UTC, or naive in TIME_ZONE."""
    results = ended(run)
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    waiting, done, failed = (backend.get_result(result.id) for result in results)
    assert waiting.task.run_after == datetime(2040, 1, 1, 21)
    assert [result.status for result in (waiting, done, failed)] == [READY, SUCCESSFUL, FAILED]
    for before, after in zip(results, (waiting, done, failed), strict=True):
        assert times(after) == [moment.replace(tzinfo=None) + timedelta(hours=9) for moment in times(before)]


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
if django.VERSION >= (6, 0):
    from django.tasks import task_backends
else:
    from django_tasks import task_backends
assert type(task_backends["default"]).__name__ == "VTQueueBackend"
assert all(connection.connection is None for connection in connections.all()), "a connection was made"
print(module.send.module_path)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=250)
    assert (done.stdout, done.returncode) == ("shop.send\n", 0), done.stderr
