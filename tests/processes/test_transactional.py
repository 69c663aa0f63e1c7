"""Transactional tasks: their writes and their acknowledgement are committed together, or not at all."""

import errno
import json
import os
import signal
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from django_vtqueue import Queue, control
from tests.project import durable, tasks, transactional, writers

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import Database
from .held import lines
from .inside import last_attempt
from .running import Start

KINDS = pytest.mark.parametrize("processes", ["1", "2"], ids=["threads", "children"])


@pytest.fixture
def known(database: Database) -> None:
    """Have workers load these tasks when they start."""
    database.options["task_modules"] = ["tests.project.writers"]


def effects(database: Database, name: str = "x") -> int:
    return int(database.rows("SELECT count(*) FROM project_effect WHERE name = ?", name)[0][0])


@pytest.mark.sqlite("one transaction at a time writes; on a server a task locks the rows that it reads to write")
def test_one_runs_at_a_time(database: Database, drain: Start) -> None:
    """Two never run at the same time, so none overwrites what another has read; each one counts once."""
    database.write("INSERT INTO project_effect (name, value) VALUES ('x', 0)")
    jobs = database.enqueue_many(transactional.count, [("x",)] * 200)
    drain("--processes", "2")
    assert database.succeeded(*jobs)
    assert {database.job(job_id)["claims"] for job_id in jobs} == {1}  # and none is claimed ahead: see guides/worker.md
    assert database.rows("SELECT value FROM project_effect")[0]["value"] == 200


def test_killed_before_the_end_it_has_done_nothing(database: Database, start_worker: Start) -> None:
    """A process that is killed in the middle leaves no write and no enqueued job; the next attempt leaves one each."""
    job_id = database.enqueue(transactional.die_first, "x")
    start_worker("--processes", "2", "--threads", "1")
    database.wait_for(job_id)
    wait_until(lambda: not database.unfinished())
    assert (database.outcomes(job_id), effects(database)) == (["worker died"], 1)
    assert len(database.rows("SELECT 1 FROM vtqueue_job WHERE task_path = ?", tasks.add.module_path)) == 1


def test_a_failure_takes_its_writes_back(database: Database, drain: Start) -> None:
    """What a failed attempt wrote and enqueued is gone, also when it is the result that is not JSON."""
    ids = [database.enqueue(task, "x") for task in (transactional.fail, transactional.no_json)]
    drain()
    assert (effects(database), database.rows("SELECT 1 FROM vtqueue_job")) == (0, [])
    assert [database.outcomes(job_id) for job_id in ids] == [["failed"]] * 2


def test_a_lost_lease_takes_its_writes_back(database: Database, start_worker: Start) -> None:
    """Whose lease was lost before the end commits nothing; the execution that holds the job does."""
    job_id = database.enqueue(transactional.lose_first, "x")
    worker = start_worker()
    wait_until(lambda: database.succeeded(job_id))
    assert effects(database) == 1
    assert database.outcomes(job_id) in (
        ["lease expired"],
        [],
    )  # or it was released as unknown, by a turn after a lock
    assert worker.lines("lost")


def test_many_in_a_row_do_not_keep_others_from_writing(database: Database, start_worker: Start) -> None:
    """Between two of them another worker claims, renews and settles, although the lock is free for a moment only."""
    one_after_the_other = transactional.take_long.using(queue_name="slow")
    slow = database.enqueue_many(one_after_the_other, [("x", 1.2)] * 100)
    for _ in range(2):
        start_worker("--queues", "slow", ready=False)
    wait_until(lambda: database.unfinished() < len(slow))  # it is in the middle of it
    start_worker("--queues", "default", "--threads", "1", ready=False)
    jobs = [database.enqueue(tasks.add, 1, 2) for _ in range(2)]  # one at a time: settled, and the next one claimed
    database.wait_for(*jobs)
    assert not database.succeeded(*slow)


def test_steps_in_a_row_do_not_keep_others_from_writing(database: Database, start_worker: Start) -> None:
    """Who waits for the lock gets it behind one of the next two steps, although they follow each other at once."""
    loop = database.enqueue(durable.writes_often, 16, 0.5)
    start_worker("--threads", "1", ready=False)
    made = "SELECT count(*) AS steps FROM project_effect"
    wait_until(lambda: database.rows(made)[0]["steps"])
    passed = []
    while not database.succeeded(loop):
        before = database.rows(made)[0]["steps"]
        database.enqueue(tasks.add.using(queue_name="other"), 1, 2)
        passed.append(database.rows(made)[0]["steps"] - before)
    assert max(passed) <= 2


def waiting(database: Database) -> list[str]:
    """Return the ids of the jobs that a worker has claimed and has not begun."""
    return [row["id"] for row in database.rows("SELECT id FROM vtqueue_job WHERE state = 'RUNNING' AND attempts = 0")]


@pytest.fixture
def line(database: Database, known: None, start_worker: Start, tmp_path: Path) -> list[str]:
    """Return jobs of 0.1 s; a worker has claimed twenty more than it has begun, and they wait in it for their turn."""
    database.options["visibility_timeout"] = 30
    jobs = database.enqueue_many(writers.say_and_sleep, [(str(tmp_path / "log"), 0.1)] * 40)
    start_worker()
    wait_until(lambda: len(waiting(database)) > 20)
    return jobs


def test_cancelled_in_line_it_does_not_begin(database: Database, line: list[str], tmp_path: Path) -> None:
    """A job that waits for its turn in a worker becomes a dead letter, as one does that waits in the queue."""
    control.cancel(line[20:], using=ALIAS, by="anna")
    wait_until(lambda: not database.unfinished())
    letters = database.rows("SELECT attempts FROM vtqueue_deadletter")
    assert {row["attempts"] for row in letters} == {0}
    begun = len(lines(tmp_path / "log"))  # some of the others, too, if the machine is busy
    assert begun >= 20
    assert len(letters) == len(line) - begun
    assert database.succeeded(*line[:20])


def test_the_line_is_in_the_order_of_priority(database: Database, line: list[str], tmp_path: Path) -> None:
    """What is urgent does not wait for all those that were there before."""
    urgent = database.enqueue(writers.say_and_sleep.using(priority=100), str(tmp_path / "log"), 0)
    database.wait_for(urgent, *line)
    order = database.rows("SELECT id FROM vtqueue_job ORDER BY finished_at")
    assert order[-1]["id"] != urgent


def test_a_pause_holds_the_line(database: Database, line: list[str], tmp_path: Path) -> None:
    """Those that wait for their turn when their queue is paused go back to their places, and begin after it."""
    Queue("default", using=ALIAS).pause()
    wait_until(lambda: not database.rows("SELECT 1 FROM vtqueue_job WHERE state = 'RUNNING'"))
    assert database.unfinished()
    assert database.rows("SELECT max(attempts) FROM vtqueue_job WHERE state = 'READY'")[0][0] == 0
    Queue("default", using=ALIAS).resume()
    database.wait_for(*line)
    assert len(lines(tmp_path / "log")) == len(line)


def test_what_hangs_before_its_transaction_is_ended(
    database: Database, known: None, start_worker: Start, tmp_path: Path
) -> None:
    """Its time runs from its turn on, so that the next one has it: here a receiver of ``task_started`` hangs."""
    database.options |= {"hard_timeout": 5, "max_attempts": 1}
    environment = {"VTQUEUE_TEST_APPS": "tests.project.tracing.Tracing"}
    hanging = database.enqueue(writers.append, "HANG")
    others = database.enqueue_many(writers.append, [("x",)] * 5)
    start_worker("--processes", "2", **environment)
    database.wait_for(*others)
    wait_until(lambda: database.letter(hanging) is not None)


def test_the_time_limit_rolls_back(database: Database, drain: Start) -> None:
    """When its time is up a task is ended, in a query and in async code too; nothing of it is written."""
    endless = (transactional.query_for_ever, transactional.query_beside_an_open_cursor, transactional.wait_async)
    ids = [database.enqueue(task, "x") for task in endless]
    drain()
    assert effects(database) == 0
    assert [database.outcomes(job_id) for job_id in ids] == [["timed out"]] * 3


def writer_of(pipe: Path) -> BinaryIO | None:
    """Return the end of a pipe at which its reader waits; None while nobody reads it."""
    try:
        return open(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "wb")
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def test_the_write_lock_is_free_when_the_time_is_up(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A task that hangs where nothing ends it loses its transaction: others write, and its later writes are refused."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    job_id = database.enqueue(transactional.hang_and_write, "x", str(pipe))
    start_worker()
    writer = wait_until(lambda: writer_of(pipe))
    database.write("CREATE INDEX later ON project_effect (name)")  # it waits for the end of what has written there
    database.wait_for(database.enqueue(tasks.add, 1, 2))
    assert database.job(job_id)["state"] == "RUNNING"
    writer.close()
    wait_until(lambda: database.letter(job_id))
    assert (effects(database), database.outcomes(job_id)) == (0, ["timed out"])
    again = database.enqueue(transactional.append, "y")
    database.wait_for(again)
    assert effects(database, "y") == 1


@KINDS
def test_to_wait_for_a_turn_is_not_to_run(database: Database, drain: Start, processes: str) -> None:
    """Each of many has its whole time, from the moment at which its own transaction begins; none ends without it."""
    ids = database.enqueue_many(writers.take_a_part_of_its_time, [("x",)] * 3)
    drain("--processes", processes)
    assert database.succeeded(*ids)
    assert effects(database) == 3


def test_the_time_of_another_workers_transaction_is_no_time_of_ones_own(
    database: Database, start_worker: Start
) -> None:
    """The same holds where another process has the write lock."""
    ids = database.enqueue_many(writers.take_a_part_of_its_time, [("x",)] * 3)
    for _ in range(2):
        start_worker("--threads", "2")
    database.wait_for(*ids)
    assert effects(database) == 3


@pytest.mark.usefixtures("known")
def test_one_that_hangs_holds_up_no_other(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """When its transaction has been rolled back it has the turn no longer, however long its code goes on.

    Those that wait meanwhile occupy no slot: other jobs run.
    """
    hanging = database.enqueue(writers.hang, "x", 600)
    others = database.enqueue_many(writers.append, [("y",)] * 3)
    ordinary = database.enqueue(tasks.add, 1, 2)
    worker = start_worker("--threads", "2")
    database.wait_for(ordinary, *others)
    assert database.job(hanging)["state"] == "RUNNING"
    worker.kill()


@pytest.mark.usefixtures("known")
def test_what_waits_for_its_turn_dies_with_no_worker(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A worker that is killed takes no attempt of those along that have not begun."""
    first = database.enqueue(writers.say_and_sleep, str(tmp_path / "first"), 600)
    waiting = database.enqueue_many(writers.append, [("x",)] * 3)
    last_attempt(database)
    worker = start_worker()
    wait_until((tmp_path / "first").exists)
    wait_until(lambda: all(database.job(job)["state"] == "RUNNING" for job in waiting))
    assert [database.job(job)["attempts"] for job in waiting] == [0, 0, 0]
    worker.kill()
    start_worker()
    database.wait_for(*waiting)
    assert database.letter(first)


@pytest.mark.usefixtures("known")
def test_what_waits_for_its_turn_is_given_back_at_a_stop(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """It is not run to its end: it has not begun."""
    first = database.enqueue(writers.hold, str(tmp_path))
    waiting = database.enqueue_many(writers.append, [("x",)] * 3)
    worker = start_worker()
    wait_until((tmp_path / "started").exists)
    worker.signal(signal.SIGTERM)
    worker.wait_for("stopping")
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.succeeded(first)
    rows = [database.job(job) for job in waiting]
    assert [(row["state"], row["attempts"], row["history"]) for row in rows] == [("READY", 0, "[]")] * 3


def test_who_leaves_the_transaction_writes_nothing(database: Database, drain: Start) -> None:
    """A task that closes its connection, or ends its transaction, has failed; the next one is executed as ever."""
    leaving = [transactional.close_and_sleep, transactional.end_its_transaction]
    ids = [database.enqueue(task, "x") for task in leaving]
    after = database.enqueue(transactional.append, "y")
    drain("--threads", "1")
    assert (effects(database), effects(database, "y")) == (0, 1)
    assert [database.outcomes(job_id) in (["failed"], ["timed out"]) for job_id in ids] == [True, True]
    assert database.succeeded(after)


@pytest.mark.sqlite("psycopg waits for ever where parameters of executemany come from the same connection")
def test_a_statement_inside_a_statement(database: Database, drain: Start) -> None:
    """The parameters of one statement may come from another."""
    job_id = database.enqueue(transactional.write_while_reading, "x")
    drain()
    assert (database.succeeded(job_id), effects(database)) == (True, 2)


def test_async_tasks_are_transactional_too(database: Database, drain: Start) -> None:
    """What an async task writes in threads of its own making is part of the transaction."""
    job_id = database.enqueue(transactional.write_async, "x")
    drain()
    assert (database.succeeded(job_id), effects(database)) == (True, 1)


def test_what_fails_after_the_commit_changes_nothing(database: Database, drain: Start) -> None:
    """A hook that fails after the commit is logged; the task is done and does not run again."""
    job_id = database.enqueue(transactional.fail_after_commit, "x")
    worker = drain()
    assert (database.succeeded(job_id), effects(database), database.job(job_id)["claims"]) == (True, 1, 1)
    assert "ConnectionError: refused" in worker.log


@pytest.mark.sqlite("the timeout of a connection for a lock")
def test_a_database_that_is_locked_costs_no_attempt(database: Database, start_worker: Start) -> None:
    """A task that cannot begin within the connection's timeout is given back uncounted, and runs afterwards."""
    start_worker("--threads", "2", VTQUEUE_TEST_TIMEOUT="0.1")  # which does not know yet that the task is transactional
    hanging, waiting = database.enqueue_many(transactional.hang, [("x",)] * 2)  # one claim takes both
    database.wait_for(hanging, waiting)
    claims = [database.job(job_id)["claims"] for job_id in (hanging, waiting)]
    assert ([database.job(job_id)["attempts"] for job_id in (hanging, waiting)], effects(database)) == ([1, 1], 2)
    assert sum(claims) > 2


def test_a_task_of_another_database_is_refused(database: Database, drain: Start) -> None:
    """A transactional task whose database is not the queue's is not called; the error says what to do."""
    job_id = database.enqueue(transactional.write_elsewhere)
    drain()
    letter = database.letter(job_id)
    assert letter is not None
    assert letter["message"].startswith("tests.project.transactional.write_elsewhere is transactional in the database")


def test_a_worker_refuses_tasks_that_cannot_commit_as_one(database: Database, start_worker: Start) -> None:
    """What is wrong with a task is an error of its worker's start, whichever module it is in."""
    database.options["task_modules"] = ["tests.project.transactional"]
    worker = start_worker(ready=False)
    assert worker.wait() == 1
    assert "(vtqueue.E008)" in worker.log


def test_a_transaction_that_waited_for_the_lock_has_its_time_limit(
    database: Database, known: None, start_worker: Start
) -> None:
    """Its time runs from its beginning, also where its task lets no other thread run: its process is killed."""
    start_worker("--processes", "2", "--threads", "1")
    wait_until(lambda: len(database.workers()) == 2)
    job_id = database.enqueue(writers.hold_the_interpreter, 600)
    wait_until(lambda: database.job(job_id)["attempts"] == 1, every=0.0005)
    with database.locked():
        time.sleep(0.5)  # for which it may have to wait
    wait_until(lambda: database.letter(job_id))
    assert database.outcomes(job_id) == ["timed out"]


@pytest.mark.parametrize(
    ("database", "statement"),
    [
        ("sqlite", "PRAGMA query_only = 1"),
        ("sqlite", "CREATE TEMP TABLE vtqueue_job (x)"),
        ("postgresql", "SET default_transaction_read_only = on"),
        ("postgresql", "CREATE TEMP TABLE vtqueue_job (x int)"),
    ],
    indirect=["database"],
)
def test_what_a_task_leaves_on_its_connection_is_said_and_closed(
    database: Database, start_worker: Start, statement: str
) -> None:
    """A transaction that cannot begin for that reason begins a second later, and the log says why it did not."""
    database.write("INSERT INTO project_effect (name, value) VALUES ('x', 0)")
    database.options["max_attempts"] = 1
    worker = start_worker("--threads", "1", VTQUEUE_TEST_CONNECTION=json.dumps({"CONN_MAX_AGE": None}))
    leaving = database.enqueue(tasks.leave_on_connection, statement)
    job_id = database.enqueue(transactional.count, "x")
    database.wait_for(leaving, job_id)
    [said] = [line for line in worker.log.splitlines() if "its transaction cannot begin" in line]
    assert said.startswith(f"tests.project.transactional.count …{job_id[-8:]}: ")
    assert database.job(job_id)["attempts"] == 1
