"""Writing while the caller has a cursor open, as in ``for row in rows.iterator(): task.enqueue(row.pk)``."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_vtqueue import Queue, control
from django_vtqueue.exceptions import StaleTransaction
from django_vtqueue.execution.connections import close_leftovers
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.queue import dead_letters, pauses
from django_vtqueue.queue.discarding import discard_jobs, discard_letters

from ..conftest import claimed
from ..waiting import PROMPT

ROWS = 2100  # more than an iterator fetches at once


@pytest.fixture
def other(alias: str) -> Iterator[sqlite3.Connection]:
    """Another process that writes, as far as SQLite can tell."""
    with closing(sqlite3.connect(connections[alias].settings_dict["NAME"], isolation_level=None)) as other:
        yield other


@pytest.fixture
def read(queue: Queue, alias: str, other: sqlite3.Connection) -> Iterator[Callable[[], Iterator[Any]]]:
    """Return a function that begins to read jobs of a queue "read", after which another connection writes."""
    Queue("read", using=alias).publish_many(range(ROWS))
    opened: list[Any] = []

    def read() -> Iterator[Any]:
        rows = Job.objects.using(alias).filter(queue_name="read").order_by("pk").values_list("pk").iterator()
        next(rows)
        other.execute("UPDATE vtqueue_job SET priority = 1 WHERE queue_name = 'read'")
        opened.append(rows)
        return rows

    yield read
    for rows in opened:
        with suppress(sqlite3.ProgrammingError):  # its connection was closed
            rows.close()


def test_a_fan_out_enqueues_each_row(queue: Queue, alias: str, other: sqlite3.Connection) -> None:
    """Whatever other processes write meanwhile."""
    Queue("read", using=alias).publish_many(range(ROWS))
    for number, row in enumerate(Job.objects.using(alias).filter(queue_name="read").iterator()):
        queue.publish(row.payload)
        if number % 100 == 0:
            other.execute("UPDATE vtqueue_job SET priority = 1 WHERE payload = '1'")
    assert len(queue) == ROWS


VERBS: dict[str, Callable[[Queue, str], object]] = {
    "publish": lambda queue, alias: queue.publish("x"),
    "publish_many": lambda queue, alias: queue.publish_many(["x", "y"]),
    "claim": lambda queue, alias: claimed(queue),
    "purge": lambda queue, alias: queue.purge(),
    "cancel": lambda queue, alias: control.cancel(Job.objects.using(alias).only("pk")[:1], using=alias),
    "run_now": lambda queue, alias: control.run_now([], using=alias),
    "change_priority": lambda queue, alias: control.change_priority([], 3, using=alias),
    "delete": lambda queue, alias: discard_jobs([], using=alias),
    "pause": lambda queue, alias: pauses.pause("sensors", using=alias),
    "resume": lambda queue, alias: pauses.resume("sensors", using=alias),
    "requeue": lambda queue, alias: dead_letters.requeue(list(DeadLetter.objects.using(alias)), using=alias),
    "discard": lambda queue, alias: discard_letters(list(DeadLetter.objects.using(alias)), using=alias),
}


@pytest.mark.parametrize("verb", VERBS)
def test_an_open_cursor_forbids_no_verb(queue: Queue, alias: str, read: Callable[[], Iterator[Any]], verb: str) -> None:
    """It goes on reading afterwards, on the connection that is still this thread's."""
    queue.publish("first")
    dead = Queue("dead", using=alias)
    dead.publish("dead", max_attempts=1)
    claimed(dead).nack()
    mine, rows = connections[alias], read()
    VERBS[verb](queue, alias)
    assert connections[alias] is mine
    assert len(list(rows)) == ROWS - 1


@pytest.mark.parametrize("verb", ["ack", "nack", "extend", "release"])
def test_an_open_cursor_forbids_no_end_of_a_job(queue: Queue, read: Callable[[], Iterator[Any]], verb: str) -> None:
    """A job that was claimed before the cursor was opened is held no longer than without one."""
    queue.publish("first")
    job = claimed(queue)
    rows = read()
    getattr(job, verb)()
    assert len(list(rows)) == ROWS - 1


def test_who_watches_the_connection_sees_what_is_written_beside_it(
    queue: Queue, alias: str, read: Callable[[], Iterator[Any]]
) -> None:
    """Django's log of queries, and execute wrappers."""
    seen: list[str] = []
    read()

    def wrapper(execute: Any, sql: str, *arguments: Any) -> Any:
        seen.append(sql)
        return execute(sql, *arguments)

    with CaptureQueriesContext(connections[alias]) as captured, connections[alias].execute_wrapper(wrapper):
        queue.publish("x")
    assert sum(" INTO vtqueue_job " in query["sql"] for query in captured) == 1
    assert sum(" INTO vtqueue_job " in sql for sql in seen) == 1


def test_the_busy_timeout_counts_beside_an_open_cursor(
    queue: Queue, alias: str, read: Callable[[], Iterator[Any]], other: sqlite3.Connection
) -> None:
    """It is the user's, on both connections together."""
    with connections[alias].cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 300")
    read()
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(OperationalError, match="locked"):
        queue.publish("x")
    assert 0.29 <= time.monotonic() - began < PROMPT
    other.execute("ROLLBACK")
    queue.publish("x")


@pytest.mark.parametrize("many", [1, 2])
def test_a_transaction_that_has_read_is_told_at_once_what_to_do(
    queue: Queue, alias: str, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """Without transaction_mode IMMEDIATE it can write no more once another connection has; waiting is in vain."""
    queue.publish("first")
    monkeypatch.setattr(connections[alias], "transaction_mode", None)
    began = time.monotonic()

    def read_then_write() -> None:
        with transaction.atomic(using=alias):
            assert len(queue) == 1
            other.execute("UPDATE vtqueue_job SET priority = 1")
            queue.publish_many(["x"] * many)

    with pytest.raises(StaleTransaction, match="'IMMEDIATE'"):
        read_then_write()
    assert time.monotonic() - began < PROMPT
    assert len(queue) == 1


def test_without_wal_a_fan_out_uses_its_own_connection(
    queue: Queue, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There an open cursor keeps others from writing, but not the connection that reads."""
    monkeypatch.setitem(
        connections[alias].settings_dict["OPTIONS"],
        "init_command",
        "PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF",
    )
    connections[alias].close()
    Queue("read", using=alias).publish_many(range(ROWS))
    for row in Job.objects.using(alias).filter(queue_name="read").iterator():
        queue.publish(row.payload)
    assert len(queue) == ROWS


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the cursor's connection is closed
def test_a_cursor_that_a_job_leaves_open_disturbs_no_other_one(
    queue: Queue, alias: str, read: Callable[[], Iterator[Any]]
) -> None:
    """The thread's connection is closed after the job; the ORM's own writes work again, too."""
    read()
    with pytest.raises(OperationalError, match="locked"):
        Job.objects.using(alias).update(priority=2)
    close_leftovers(inline=False)
    Job.objects.using(alias).update(priority=2)


def test_a_connection_without_an_open_cursor_is_kept_between_jobs(queue: Queue, alias: str) -> None:
    """To open one takes longer than many jobs."""
    queue.publish("x")
    raw = connections[alias].connection
    close_leftovers(inline=False)
    assert connections[alias].connection is raw


def test_the_query_log_of_a_job_ends_with_it(queue: Queue, alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With DEBUG Django keeps the last 9,000 statements, whatever their size, until the next request."""
    monkeypatch.setattr(connections[alias], "force_debug_cursor", True)
    assert not Job.objects.using(alias).exists()
    assert len(connections[alias].queries_log) == 1
    close_leftovers(inline=False)
    assert not connections[alias].queries_log
