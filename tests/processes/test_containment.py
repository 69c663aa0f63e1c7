"""What tasks may do to a worker: nothing."""

import json
import sqlite3

import pytest

from django_vtqueue.compat import Task
from tests.project import tasks

from ..waiting import wait_until
from .conftest import Start
from .database import Database
from .running import PATIENCE

RAISED = {
    "SystemExit": "builtins.SystemExit",
    "KeyboardInterrupt": "builtins.KeyboardInterrupt",
    "GeneratorExit": "builtins.GeneratorExit",
    "BaseException": "builtins.BaseException",
    "CancelledError": "asyncio.exceptions.CancelledError",
    "MemoryError": "builtins.MemoryError",
    "RecursionError": "builtins.RecursionError",
    "Unprintable": "tests.project.tasks.Unprintable",
}


def test_whatever_a_task_raises_is_recorded_and_the_next_job_runs(database: Database, start_worker: Start) -> None:
    """No exception of a task, of whatever kind, ends the worker or its thread: each is a failed attempt, with its
    class and its traceback in the history, and the jobs after it run."""
    worker = start_worker("--threads", "1")
    raising = {kind: database.enqueue(tasks.raise_it, kind) for kind in RAISED}
    no_json = database.enqueue(tasks.no_json)
    after = database.enqueue(tasks.add, 1, 2)
    wait_until(lambda: database.succeeded(after), PATIENCE)
    for kind, job_id in raising.items():
        letter = database.letter(job_id)
        assert letter, kind
        assert letter["exception_class"] == RAISED[kind]
        [entry] = database.history(job_id)
        assert (entry["outcome"], entry["exception_class"]) == ("failed", RAISED[kind])
        assert entry["traceback"]
    assert "str() raised RuntimeError" in database.history(raising["Unprintable"])[0]["message"]
    [entry] = database.history(no_json)
    assert entry["exception_class"] == "builtins.TypeError"
    assert "is not JSON serializable" in entry["message"]
    assert worker.terminate() == 0
    assert "met an error and goes on" not in worker.log
    assert len(worker.lines("dead ")) == len(RAISED)


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


@pytest.mark.parametrize(("max_age", "seen"), [(0, [0, 1, 2]), (None, [0, 1, 2]), (1e-6, [0, 0, 0])])
def test_connections_are_kept_between_jobs(
    database: Database, start_worker: Start, max_age: float | None, seen: list[int]
) -> None:
    """A thread of a worker keeps its connection to SQLite, but for as long as CONN_MAX_AGE says if that is not 0."""
    start_worker("--threads", "1", VTQUEUE_TEST_CONNECTION=json.dumps({"CONN_MAX_AGE": max_age}))
    jobs = [database.enqueue(tasks.temporary_tables) for _ in range(3)]
    wait_until(lambda: database.succeeded(*jobs), PATIENCE)
    assert [database.result(job_id) for job_id in jobs] == seen


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
