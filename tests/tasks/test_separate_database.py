"""A queue in a database of its own: what is enqueued in a transaction of another database waits for its commit."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from pytest_django import Settings

from django_vtqueue import (
    DuplicateJob,
    PayloadTooLarge,
    Queue,
    QueueFull,
    TaskResultStatus,
    call,
    control,
    enqueue_many,
    send_event,
    task,
)
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks.compat import TaskResultDoesNotExist, task_enqueued
from tests.conftest import ALIAS

from ..pending import run_pending
from ..project import durable
from ..project.models import Effect
from ..project.tasks import add

pytestmark = pytest.mark.django_db(transaction=True)

Configure = Callable[..., None]


@task(unique_key="once")
def once() -> None: ...


@task(unique_key="once", on_duplicate="error")
def once_only() -> None: ...


@task(immediate=True)
def at_once() -> None: ...


@task
def enqueue_amid() -> int:
    """Return how many jobs there are before the block is left in which one is enqueued."""
    with transaction.atomic():
        add.enqueue(1, 2)
        return stored()


@pytest.fixture(autouse=True, params=["sqlite_file", "postgresql_database"], ids=["sqlite", "postgresql"])
def configure(request: pytest.FixtureRequest, settings: Settings) -> Configure:
    """Keep the jobs in another database than the default one; return what sets OPTIONS."""
    request.getfixturevalue(request.param)

    def configure(**options: Any) -> None:
        entry = {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": []}
        settings.TASKS = {"default": {**entry, "OPTIONS": {"database": ALIAS, **options}}}

    configure()
    return configure


def stored() -> int:
    return Job.objects.using(ALIAS).count()


@contextmanager
def undone(using: str | None = None) -> Iterator[None]:
    """Roll back what the block does."""
    with transaction.atomic(using=using):
        yield
        transaction.set_rollback(True, using=using)


def test_after_the_commit_of_any_database(configure: Configure) -> None:
    """The jobs may be in the default database, and the data in another one: they wait for its commit all the same."""
    configure(database="default")
    with transaction.atomic(using=ALIAS):
        add.enqueue(1, 2)
        assert Job.objects.count() == 0
    assert Job.objects.count() == 1
    with undone(ALIAS):
        add.enqueue(1, 2)
    assert Job.objects.count() == 1
    with transaction.atomic(using=ALIAS), undone():  # the second is the jobs' own
        add.enqueue(1, 2)
        assert Job.objects.count() == 2
    assert Job.objects.count() == 1


def test_without_autocommit(configure: Configure) -> None:
    """Where autocommit is off on the jobs' own database they are a part of what its next commit stores."""
    configure(database="default")
    transaction.set_autocommit(False)
    try:
        with transaction.atomic(using=ALIAS):
            add.enqueue(1, 2)
            transaction.commit()
        transaction.rollback()
        assert Job.objects.count() == 1
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)


def test_after_the_commit() -> None:
    """A job is stored when the block has committed, under the id that its result had before; outside of one at once."""
    with transaction.atomic():
        result = add.enqueue(1, 2)
        assert result.status == TaskResultStatus.READY
        assert stored() == 0
        with pytest.raises(TaskResultDoesNotExist):
            add.get_result(result.id)
    assert add.get_result(result.id).args == [1, 2]
    add.enqueue(3, 4)
    assert stored() == 2


def test_a_rollback() -> None:
    """A rollback publishes nothing; that of a savepoint nothing of what was enqueued inside."""
    with undone():
        add.enqueue(1, 2)
        Queue("sensors").publish(1)
    assert stored() == 0
    with transaction.atomic():
        kept = add.enqueue(1, 2)
        with undone():
            add.enqueue(3, 4)
    assert [str(pk) for pk in Job.objects.using(ALIAS).values_list("pk", flat=True)] == [kept.id]


def test_many_at_once() -> None:
    """All jobs of a call are stored together after the commit, payloads too."""
    with transaction.atomic():
        results = enqueue_many(add, [((1, 2), {}), ((3, 4), {})])
        ids = Queue("sensors").publish_many([1, 2, 3])
        assert stored() == 0
    found = Job.objects.using(ALIAS).values_list("pk", flat=True)
    assert {*map(str, found)} == {*(result.id for result in results), *map(str, ids)}


def test_immediate(configure: Configure) -> None:
    """With ``immediate`` of the task, the call, the queue or the backend it is stored at once, whatever is undone."""
    with undone():
        at_once.enqueue()
        Queue("sensors").publish(1, immediate=True)
        configure(queue_options={"sensors": {"immediate": True}})
        Queue("sensors").publish(1)
        Queue("others").publish(1)
        configure(immediate=True)
        add.enqueue(1, 2)
    assert stored() == 4


def test_a_transaction_of_the_jobs_own_database() -> None:
    """In a transaction of the jobs' own database a job is a part of that one."""
    with transaction.atomic():
        with transaction.atomic(using=ALIAS):
            add.enqueue(1, 2)
        assert stored() == 1
        with undone(ALIAS):
            add.enqueue(1, 2)
    assert stored() == 1


def test_a_unique_key() -> None:
    """Whether a key is taken is known after the commit: then the result has the id of the job that is there."""
    there = once.enqueue()
    with transaction.atomic():
        result = once.enqueue()
        assert result.id != there.id
    assert result.id == there.id
    assert result.duplicate  # type: ignore[attr-defined]
    assert stored() == 1


def test_a_full_queue(configure: Configure) -> None:
    """Room is judged when a job is enqueued; one that was taken is stored, also if the queue is full by then."""
    configure(queue_options={"sensors": {"max_depth": 2}})
    queue = Queue("sensors")
    with transaction.atomic():
        queue.publish(1)
        queue.publish_many([2, 3], immediate=True)
        with pytest.raises(QueueFull):
            queue.publish(4)
    assert sorted(Job.objects.using(ALIAS).values_list("payload", flat=True)) == [1, 2, 3]


def test_a_payload_that_is_too_large(configure: Configure) -> None:
    """What can be judged at once is: the caller is told, and its block is its own to end."""
    configure(max_payload_bytes=10)
    with transaction.atomic(), pytest.raises(PayloadTooLarge):
        Queue("sensors").publish("x" * 20)
    assert stored() == 0


def test_what_fails_after_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    """A job that cannot be stored then is logged, with its id and the reason; the others of the block are stored."""
    once.enqueue()
    with transaction.atomic():
        Effect.objects.create()
        lost = once_only.enqueue()
        add.enqueue(1, 2)
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "1 jobs of queue 'default' were not stored after the commit" in record.getMessage()
    assert lost.id.replace("-", "") in record.getMessage()
    assert record.exc_info
    assert record.exc_info[0] is DuplicateJob
    assert Effect.objects.count() == 1
    assert stored() == 2


def test_a_receiver_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Of task_enqueued: that is logged, the block ends as it would have, and what stands behind it is stored too."""

    def fail(**values: Any) -> None:
        raise RuntimeError("no receiver")

    task_enqueued.connect(fail)
    try:
        with transaction.atomic():
            add.enqueue(1, 2), add.enqueue(3, 4)
    finally:
        task_enqueued.disconnect(fail)
    assert stored() == 2
    assert caplog.text.count("RuntimeError: no receiver") == 2


@pytest.fixture
def announced() -> Iterator[list[str]]:
    """Return the ids of results with which ``task_enqueued`` was sent."""
    ids: list[str] = []

    def note(task_result: Any, **kwargs: Any) -> None:
        ids.append(task_result.id)

    task_enqueued.connect(note)
    yield ids
    task_enqueued.disconnect(note)


def test_the_signal(announced: list[str]) -> None:
    """``task_enqueued`` is sent when a job is stored, and not if it never is."""
    with undone():
        add.enqueue(1, 2)
    with transaction.atomic():
        result = add.enqueue(1, 2)
        assert announced == []
    assert announced == [result.id]


def test_the_admin_and_what_runs(admin_client: Client) -> None:
    """Both look there; what a task enqueues in a block of the default database is stored after that block."""
    result = enqueue_amid.enqueue()
    assert result.id in admin_client.get("/admin/vtqueue/job/").content.decode()
    assert [each.return_value for each in run_pending()] == [1, 3]
    assert set(Job.objects.using(ALIAS).values_list("state", flat=True)) == {"SUCCESSFUL"}
    assert stored() == 2


def test_an_event_and_a_cancellation_do_not_wait() -> None:
    """They act at once, also where the block is rolled back; on_commit has them wait."""
    waits, cancelled = durable.order.enqueue(7), add.enqueue(1, 2)
    run_pending()
    later = add.using(run_after=timedelta(days=1)).enqueue(1, 2)
    with transaction.atomic():
        assert send_event(waits.id, "shipped", 7)
        assert control.cancel([later.id])
        transaction.on_commit(lambda: control.cancel([waits.id]))
        transaction.set_rollback(True)
    assert add.get_result(later.id).status == TaskResultStatus.FAILED
    run_pending()
    assert Job.objects.using(ALIAS).get(pk=waits.id).steps["done"][1]["value"] == 7
    assert add.get_result(cancelled.id).status == TaskResultStatus.SUCCESSFUL


# -- steps of durable tasks -------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Any], Any]] = {
    "step": lambda context: context.step("pay", Effect.objects.create, name="paid"),
    "transactional step": lambda context: context.step("pay", str, transactional=True),
    "sleep": lambda context: context.sleep("nap", 60),
    "wait_for": lambda context: context.wait_for("paid"),
    "gather": lambda context: context.gather("all", [call(add, 1, 2)]),
    "iterate": lambda context: next(context.iterate("items", range(3))),
}


def execute(code: Callable[[Any], Any]) -> str:
    """Have a durable task do something once; return its error, if it has failed."""
    durable.CODE["run"] = code
    durable.changed_code.enqueue()
    [result] = run_pending()
    return result.errors[0].traceback if result.errors else ""


@contextmanager
def without_autocommit() -> Iterator[None]:
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.parametrize("called", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("opened", [transaction.atomic, without_autocommit], ids=["atomic", "autocommit"])
@pytest.mark.parametrize("of_jobs", [False, True], ids=["another database", "the same"])
def test_steps_in_a_transaction(configure: Configure, called: Any, opened: Any, of_jobs: bool) -> None:
    """In an open transaction of any database nothing is made or waited for: a rollback would undo a part."""
    if of_jobs:
        configure(database="default")

    def code(context: Any) -> None:
        with opened():
            called(context)

    assert "inside a transaction of database 'default' (transaction.atomic, or its autocommit is off)" in execute(code)
    assert Effect.objects.count() == 0
    letter = DeadLetter.objects.using("default" if of_jobs else ALIAS).get()
    assert (letter.exception_class, letter.steps) == ("django_vtqueue.exceptions.StepError", None)


def test_the_next_item_in_a_transaction() -> None:
    """A transaction that an item has begun, and not ended, is no place for the next one."""

    def code(context: Any) -> None:
        for _item in context.iterate("items", range(3)):
            transaction.set_autocommit(False)
            Effect.objects.create()

    try:
        assert "iterate 'items' was asked for inside a transaction of database 'default'" in execute(code)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_step_that_leaves_a_transaction_open(transactional: bool) -> None:
    """It is not made, for what it has written may be rolled back."""

    def pay() -> None:
        transaction.set_autocommit(False)
        Effect.objects.create()

    try:
        said = execute(lambda context: context.step("pay", pay, transactional=transactional))
        assert "Step 'pay' has returned inside a transaction of database 'default'" in said
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_steps_between_transactions() -> None:
    """Transactions that have ended, and those inside of steps, are a task's own matter; so are those of its caller."""

    def code(context: Any) -> None:
        with transaction.atomic(), undone():
            Effect.objects.create()
        context.step("pay", pay)
        context.step("pay again", lambda: Effect.objects.create().pk, transactional=context.task_result.id == first)
        for _item in context.iterate("items", range(2)):
            pay()

    @transaction.atomic
    def pay() -> None:
        Effect.objects.create()

    durable.CODE["run"] = code
    first = durable.changed_code.enqueue().id
    assert [result.errors for result in run_pending()] == [[]]
    durable.changed_code.enqueue()
    with transaction.atomic(), transaction.atomic(using=ALIAS):
        assert [result.errors for result in run_pending()] == [[]]
    assert Effect.objects.count() == 8
