"""Rows that were edited by hand: what the database takes stops no job beside them."""

import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from django.db import DatabaseError, connections, transaction

from django_vtqueue import LeaseLost, Queue
from django_vtqueue.exceptions import DamagedJob
from django_vtqueue.models import DeadLetter, Job
from tests.conftest import ALIAS
from tests.project import tasks

from ..processes.database import Database
from ..processes.running import PATIENCE, Start
from ..waiting import wait_until
from .inside import TaskResultDoesNotExist, run_all_due, task_finished

NUMBERS = ["0", "-1", "7", str(2**63 - 1), str(-(2**63)), "0.5", "-1e300", "1e300", "9e999", "-9e999"]
TEXTS = [
    "''",
    "'abc'",
    "'2026-01-01 00:00:00+00:00'",
    "'[]'",
    "'{\"a\": 1}'",
    "'NaN'",
    "char(0)",
    "CAST(x'ff' AS TEXT)",
    "'" + 32 * "z" + "'",
]
STATES = ["SCHEDULED", "READY", "BLOCKED", "WAITING", "RUNNING", "SUCCESSFUL", "FAILED"]
OTHERS = ["x''", "x'ff00fe'", "NULL", *(f"'{state}'" for state in STATES)]
COLUMNS = [field.column for field in Job._meta.local_fields if not field.generated]
EXPIRED = "state = 'RUNNING', worker_id = 'w', claims = 1, attempts = 1, lease_until = 5, started_at = 5"
TO_WAKE = "state = 'SCHEDULED', wake_at = 5"


def damage(database: Database, rows: Iterable[tuple[str, tuple[str, str]]], first: str = "") -> None:
    """Set a column of each job to a value, where the database takes it."""
    with transaction.atomic(using=ALIAS), connections[ALIAS].cursor() as cursor:
        for job_id, (column, value) in rows:
            if first:
                cursor.execute(f"UPDATE vtqueue_job SET {first} WHERE id = %s", [job_id])
            with suppress(DatabaseError), transaction.atomic(using=ALIAS):
                cursor.execute(f"UPDATE vtqueue_job SET {column} = {value} WHERE id = %s", [job_id])


def every_damage() -> Iterator[tuple[str, str]]:
    return ((column, value) for column in COLUMNS for value in [*NUMBERS, *TEXTS, *OTHERS])


@pytest.mark.parametrize(
    "first",
    ["", TO_WAKE, EXPIRED, f"{EXPIRED}, max_attempts = 1"],
    ids=["ready", "to wake", "expired", "exhausted"],
)
def test_a_damaged_row_does_not_stop_a_queue(database: Database, first: str) -> None:
    """Any value in any column of a row: the next job of its queue is handed out, and the row does not come back for
    ever; it waits, has run, or is a dead letter."""
    queue, cases = Queue("q", ALIAS, max_attempts=3), list(every_damage())
    ids = [job_id.hex for job_id in queue.publish_many(["damaged"] * len(cases))]
    after = {job_id.hex for job_id in queue.publish_many(["after"] * 50)}
    damage(database, zip(ids, cases, strict=True), first)
    seen = []
    for _ in range(2 * len(cases)):
        for job in queue.claim_many(3):
            seen.append(job.id.hex)
            with suppress(LeaseLost):
                job.ack()
    assert after <= set(seen)
    assert len(seen) == len(set(seen))
    assert not queue.claim()


@pytest.mark.parametrize(
    "processes", [["--threads", "2"], ["--processes", "2", "--threads", "1"]], ids=["threads", "processes"]
)
def test_damaged_rows_do_not_stop_a_worker(database: Database, drain: Start, processes: list[str]) -> None:
    """The same for tasks, hundreds of damaged rows at once: the jobs between them run, the worker ends when nothing is
    due, and what has become of each row can be shown."""
    database.options |= {"visibility_timeout": 1, "backoff": 600}
    cases = list(every_damage())
    ids = database.enqueue_many(tasks.add, [(number, 0) for number in range(2 * len(cases))])
    sound = database.enqueue_many(tasks.add, [(number, 1) for number in range(50)])
    damage(database, zip(ids[::2], cases, strict=True))
    damage(database, zip(ids[1::2], cases, strict=True), EXPIRED)
    sound += database.enqueue_many(tasks.add, [(number, 1) for number in range(50)])
    drain(*processes)
    assert database.succeeded(*sound)
    for job_id in ids:
        with suppress(TaskResultDoesNotExist):  # its id or its path is another one
            assert database.backend.get_result(job_id).status


@pytest.mark.sqlite("a column has a type only by its checks")
@pytest.mark.parametrize("table", ["vtqueue_job", "vtqueue_deadletter"])
def test_the_database_refuses_values_of_another_kind(database: Database, table: str) -> None:
    """Text where a number belongs, bytes where a text belongs, an id that is none: no row has them, in either table."""
    model = Job if table == "vtqueue_job" else DeadLetter
    queue = Queue("q", ALIAS, max_attempts=1)
    queue.publish(1)
    if model is DeadLetter:
        queue.claim_many(1)[0].nack()
    columns = {field.column: field.get_internal_type() for field in model._meta.local_fields if not field.generated}
    texts = ("CharField", "TextField", "JSONField", "UUIDField")
    with closing(sqlite3.connect(database.path, timeout=30)) as connection:
        for column, kind in columns.items():
            for value in ["x'ff'", "x''"] if kind in texts else ["'abc'", "0.5", "9e999", "x'31'"]:
                if kind == "FloatField":
                    continue
                with pytest.raises(sqlite3.IntegrityError):
                    connection.execute(f"UPDATE {table} SET {column} = {value}")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(f"UPDATE {table} SET id = 'abc'")


@pytest.mark.parametrize(
    "change",
    [
        *(f"state = '{state}'" for state in ["DONE", *STATES] if state != "READY"),
        "worker_id = 'w'",
        "wake_at = 5",
        "lease_until = 5",
        "finished_at = 5",
        "priority = 101",
        "lease_us = 0",
        f"lease_us = {1 << 62}",
    ],
)
def test_the_database_refuses_what_no_job_can_be(database: Database, change: str) -> None:
    """A state that there is not, or without what it has, or what another one has; numbers no statement counts with."""
    Queue("q", ALIAS).publish(1)
    with connections[ALIAS].cursor() as cursor, pytest.raises(DatabaseError):
        cursor.execute(f"UPDATE vtqueue_job SET {change}")


@pytest.mark.sqlite("its texts may be no UTF-8")
def test_a_row_that_cannot_be_read_becomes_a_dead_letter(database: Database) -> None:
    """If the name of its holder is not UTF-8, it cannot be settled; when its lease has ended, it is buried."""
    queue = Queue("q", ALIAS)
    job_id, after = queue.publish_many(["x", "after"])
    damage(database, [(job_id.hex, ("worker_id", "CAST(x'ff' AS TEXT)"))], EXPIRED)
    claimed = queue.claim_many(2)
    assert [job.id for job in claimed] == [after]
    letters = DeadLetter.objects.using(ALIAS).filter(pk=job_id)
    wait_until(lambda: queue.claim_many(1) or letters.exists())  # a process that has just begun gives holders time
    assert letters.get().exception_class.endswith("DamagedJob")


@pytest.mark.sqlite("its texts may be no UTF-8")
def test_a_row_that_cannot_be_read_is_announced_as_one(database: Database) -> None:
    """Receivers of task_finished are told what the dead letter says: no worker has died."""
    told: list[type[BaseException] | None] = []

    def note(**_: object) -> None:
        told.append(sys.exc_info()[0])

    damage(database, [(database.enqueue(tasks.add, 1, 2), ("worker_id", "CAST(x'ff' AS TEXT)"))], EXPIRED)
    task_finished.connect(note)
    try:
        assert run_all_due(database.backend) == []
    finally:
        task_finished.disconnect(note)
    assert told == [DamagedJob]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_row_edited_while_its_job_runs(
    database: Database, start_worker: Start, tmp_path: Path, processes: str
) -> None:
    """Also where its holder cannot settle it any more, the worker goes on with its other jobs."""
    database.options |= {"visibility_timeout": 1}
    start_worker("--processes", processes, "--threads", "2")
    cases = [("claims", "7"), ("lease_us", "1"), ("worker_id", "CAST(x'ff' AS TEXT)"), ("history", "'oops'")]
    for number, case in enumerate(cases):
        job_id = database.enqueue(tasks.hold, str(tmp_path), str(number))
        wait_until((tmp_path / f"{number}started").exists, PATIENCE)
        damage(database, [(job_id, case)])
        (tmp_path / f"{number}go").touch()
        after = database.enqueue(tasks.add, number, 1)
        wait_until(lambda after=after: database.succeeded(after), PATIENCE)
