"""What tasks may do to a worker: nothing."""

import json
import sqlite3
from pathlib import Path

import pytest

from django_vtqueue import Queue
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from .conftest import both_engines
from .database import Database
from .inside import Task
from .running import PATIENCE, Start


@both_engines
@pytest.mark.parametrize("arguments", [("--threads", "2"), ("--processes", "2")], ids=["threads", "children"])
def test_a_hard_time_limit_reaches_async_code(
    database: Database, start_worker: Start, arguments: tuple[str, ...]
) -> None:
    """In threads it is ended at its next ``await``, and the worker goes on."""
    database.options |= {
        "hard_timeout": 3,
        "max_attempts": 1,
        "queue_options": {"async": {"handler": "tests.project.tasks.wait_for_ever_with"}},
    }
    ids = [database.enqueue(tasks.loop_for_long), Queue("async", using=ALIAS, max_attempts=1).publish("x").hex]
    worker = start_worker(*arguments)
    wait_until(lambda: all(database.letter(job_id) for job_id in ids), PATIENCE)
    assert [database.history(job_id)[0]["outcome"] for job_id in ids] == ["timed out"] * 2
    after = database.enqueue(tasks.add, 1, 2)
    wait_until(lambda: database.succeeded(after), PATIENCE)
    assert "does not end" not in worker.log


def test_an_async_handler_is_awaited(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """What a handler of raw jobs leaves to be awaited is done before the job is acknowledged."""
    database.options |= {"queue_options": {"async": {"handler": "tests.project.tasks.note_later"}}}
    job_id = Queue("async", using=ALIAS).publish(str(tmp_path / "noted")).hex
    start_worker()
    wait_until(lambda: database.succeeded(job_id), PATIENCE)
    assert (tmp_path / "noted").exists()


@pytest.mark.parametrize("max_age", [0, None])
@pytest.mark.parametrize("leave", [tasks.leave_atomic_open, tasks.leave_begin_open, tasks.leave_autocommit_off])
def test_a_transaction_left_open_is_rolled_back(
    database: Database, start_worker: Start, leave: Task, max_age: int | None
) -> None:
    """A task that forgets to end a transaction holds the write lock no longer than it runs, and its thread's next job
    starts with a clean connection, whether connections are kept between jobs or not."""
    worker = start_worker("--threads", "1", VTQUEUE_TEST_CONNECTION=json.dumps({"CONN_MAX_AGE": max_age}))
    leaving = database.enqueue(leave, "left")
    after = database.enqueue(tasks.effect, "after")
    wait_until(lambda: database.succeeded(leaving, after), PATIENCE)
    database.write("UPDATE django_migrations SET name = name")  # nobody holds the lock
    assert [row["name"] for row in database.rows("SELECT name FROM project_effect")] == ["after"]
    assert [database.job(job_id)["claims"] for job_id in (leaving, after)] == [1, 1]
    assert "Traceback" not in worker.log


@pytest.mark.sqlite("a thread keeps its connection though CONN_MAX_AGE is 0")
@pytest.mark.parametrize(("max_age", "seen"), [(0, [0, 1, 2]), (None, [0, 1, 2]), (1e-6, [0, 0, 0])])
def test_connections_are_kept_between_jobs(
    database: Database, start_worker: Start, max_age: float | None, seen: list[int]
) -> None:
    """A thread of a worker keeps its connection to SQLite, but for as long as CONN_MAX_AGE says if that is not 0."""
    start_worker("--threads", "1", VTQUEUE_TEST_CONNECTION=json.dumps({"CONN_MAX_AGE": max_age}))
    jobs = [database.enqueue(tasks.temporary_tables) for _ in range(3)]
    wait_until(lambda: database.succeeded(*jobs), PATIENCE)
    assert [database.result(job_id) for job_id in jobs] == seen


@pytest.mark.sqlite("the log (WAL)")
def test_the_database_can_be_locked_exclusively_by_others_when_a_worker_is_idle(
    database: Database, start_worker: Start
) -> None:
    """An idle worker keeps no transaction open, not even one that reads: the log can be folded back into the file."""
    start_worker()
    job_id = database.enqueue(tasks.add, 1, 2)
    wait_until(lambda: database.succeeded(job_id), PATIENCE)
    connection = sqlite3.connect(database.path, timeout=PATIENCE)
    try:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    finally:
        connection.close()
