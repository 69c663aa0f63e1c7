"""Unique keys that a transaction of another process takes and has not committed yet, on PostgreSQL."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from django.db import connections, transaction

from django_vtqueue import ClaimedJob, Queue, control
from django_vtqueue.core.settlement import released, succeeded
from django_vtqueue.models import Job
from django_vtqueue.queue.settling import settle
from tests.conftest import claimed
from tests.waiting import PATIENCE, PROMPT, wait_until

T = TypeVar("T")

WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted"  # pg_stat_activity does not change inside a transaction


@pytest.fixture
def alias(postgresql_database: str) -> str:
    return postgresql_database


@contextmanager
def another_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool
        pool.submit(connections.close_all).result()


def beside(alias: str, publish: Callable[[], Any], act: Callable[[], T]) -> T:
    """Publish in a transaction that is committed when ``act``, in another thread, waits for it; return its result."""
    with another_thread() as pool:
        with transaction.atomic(using=alias):
            publish()
            acting = pool.submit(act)
            with connections[alias].cursor() as cursor:
                wait_until(lambda: cursor.execute(WAITING).fetchall() or acting.done(), PROMPT)
            assert not acting.done()
        return acting.result(PATIENCE)


def started(queue: Queue, *keys: str) -> list[ClaimedJob]:
    """Return claimed jobs of these keys, which they have given up."""
    for key in keys:
        queue.publish(key, unique_key=key, unique_until="start")
    return [claimed(queue) for _ in keys]


@pytest.mark.parametrize("until", [None, 60], ids=["release", "put off"])
def test_a_release_while_its_key_is_taken(queue: Queue, until: float | None) -> None:
    """The job waits again, without its key."""
    [job] = started(queue, "k")
    beside(queue.database, lambda: queue.publish("new", unique_key="k"), lambda: job.release(until))
    rows = {row.pk: row for row in Job.objects.using(queue.database)}
    assert len(rows) == 2
    waits = "READY" if until is None else "SCHEDULED"
    assert (rows[job.id].state, rows[job.id].unique_until) == (waits, "started")


def test_a_turn_while_a_key_is_taken(queue: Queue) -> None:
    """What is settled with it is settled, and the others have their keys again."""
    done, *others = started(queue, "done", "a", "k", "z")
    settlements = [succeeded(done._held, "null", done._engine.now(), None), *(released(job._held) for job in others)]

    def turn() -> Any:
        with done._engine.transaction():
            return settle(done._engine, settlements)

    assert beside(queue.database, lambda: queue.publish("new", unique_key="k"), turn) == set()
    rows = Job.objects.using(queue.database).exclude(payload="new")
    assert dict(rows.values_list("unique_key", "unique_until")) == {
        **{"done": "started", "a": "start", "k": "started", "z": "start"},
    }
    assert dict(rows.values_list("unique_key", "state")) == {
        **{"done": "SUCCESSFUL", "a": "READY", "k": "READY", "z": "READY"},
    }


def test_a_move_while_its_key_is_taken(queue: Queue) -> None:
    """The job of that key is left out, and the others are moved."""
    ids = [queue.publish(key, unique_key=key) for key in ("a", "k", "z")]
    other = Queue("other", using=queue.database)
    moved = beside(
        queue.database,
        lambda: other.publish("new", unique_key="k"),
        lambda: control.move(ids, "other", using=queue.database),
    )
    assert moved == [ids[0], ids[2]]
    assert Job.objects.using(queue.database).get(queue_name=queue.name).pk == ids[1]
