"""A foreign process holds the write lock for longer than every busy timeout: a backup, a migration, a shell."""

import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import OperationalError, connections

from tests.project import durable, tasks

from ..conftest import ALIAS
from ..processes.database import LOCKED, Database
from ..processes.held import begin, lines
from ..processes.running import Running, Start
from ..waiting import PROMPT, wait_until

LONG = 1.5  # seconds for which the lock is held after that was said; the busy timeout is 1 second


def assert_said_once(worker: Running, processes: int = 1) -> None:
    assert not worker.ended(), worker.log
    assert worker.log.count(LOCKED) <= processes
    assert "Traceback" not in worker.log
    assert len(worker.log.splitlines()) < 20


def test_a_lock_during_settlement_and_claim_loses_nothing(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """What finishes and what becomes due during a long lock is settled and claimed after it; the log has one line."""
    worker = start_worker(VTQUEUE_TEST_TIMEOUT="1")
    running = begin(database, tmp_path)
    due = database.enqueue(tasks.add, 1, 2, run_after=timedelta(seconds=1))
    with database.locked():
        (tmp_path / "go").touch()
        database.wait_until_blocked(worker)
        time.sleep(LONG)
    database.wait_for(running, due)
    assert [database.job(job_id)["claims"] for job_id in (running, due)] == [1, 1]
    assert_said_once(worker)


@pytest.mark.parametrize(
    ("database", "processes"), [("sqlite", 1), ("sqlite", 2), ("postgresql", 2)], indirect=["database"]
)
def test_a_job_that_ends_in_time_is_not_ended_because_of_a_lock(
    database: Database, start_worker: Start, tmp_path: Path, processes: int
) -> None:
    """The time of a job that has finished cannot be up, however long a lock keeps it from being settled.

    Neither can that of one which finishes while its worker already waits for the lock.
    """
    database.options["hard_timeout"] = limit = 10
    worker = start_worker(f"--processes={processes}", "--threads=2", VTQUEUE_TEST_TIMEOUT="1")
    *jobs, last = [begin(database, tmp_path, f"{number}-") for number in range(2 * processes)]
    with database.locked():
        for number in range(len(jobs)):
            (tmp_path / f"{number}-go").touch()
        database.wait_until_blocked(*[worker] * processes)
        (tmp_path / f"{len(jobs)}-go").touch()
        time.sleep(limit)
    database.wait_for(*jobs, last)
    assert "runs for too long" not in worker.log
    assert "ended with code" not in worker.log
    assert_said_once(worker, processes)


@pytest.mark.parametrize("what", ["step", "transactional", "children"])
def test_a_lock_beside_a_durable_task(database: Database, start_worker: Start, tmp_path: Path, what: str) -> None:
    """What it has to write waits for a lock longer than the busy timeout: no attempt is used, none has failed."""
    worker = start_worker(VTQUEUE_TEST_TIMEOUT="1")
    job_id = database.enqueue(durable.beside_a_lock, str(tmp_path), what)
    wait_until(lambda: database.rows("SELECT 1 FROM project_effect"))
    with database.locked():
        (tmp_path / "go").touch()
        database.wait_until_blocked(worker)
        time.sleep(LONG)
    database.wait_for(job_id)
    assert (database.result(job_id), database.outcomes(job_id)) == (1, [])
    [made] = database.rows("SELECT value FROM project_effect WHERE name = 'begun'")
    assert made["value"] in ((1, 2) if what == "children" else (1,))  # anew for its children, if they are not faster


def test_a_lock_longer_than_the_leases_takes_no_job_from_its_living_holder(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """After the lock every lease looks expired, but living workers renew theirs before another one takes them."""
    database.options["visibility_timeout"] = lease = 8
    workers = [start_worker("--threads", "12", VTQUEUE_TEST_TIMEOUT="1") for _ in range(2)]
    jobs = [
        begin(database, tmp_path, f"{number}-") for number in range(16)
    ]  # one after the other, so that each worker gets some
    with database.locked():
        database.wait_until_blocked(*workers)
        time.sleep(lease)
        locked_until = time.time_ns() // 1000
    wait_until(lambda: all(database.job(job_id)["visible_at"] > locked_until for job_id in jobs))
    for number in range(16):
        (tmp_path / f"{number}-go").touch()
    database.wait_for(*jobs)
    assert [database.job(job_id)["claims"] for job_id in jobs] == [1] * 16
    for worker in workers:
        assert not worker.lines("lost")
        assert worker.log.count(LOCKED) <= 1


@pytest.mark.sqlite("its own wait for a lock is not fair")
def test_a_transaction_of_a_task_waits_as_fairly_as_the_worker(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """One that the task begins by itself: it asks for the lock again and again, SQLite's own handler does not."""
    job_id = database.enqueue(tasks.hold_then_begin, str(tmp_path))
    start_worker()
    wait_until(lambda: lines(tmp_path / "started"))
    with database.locked():
        (tmp_path / "go").touch()
        wait_until(lambda: (tmp_path / "said").read_text().count("BEGIN IMMEDIATE") > 20)
    database.wait_for(job_id)


@pytest.mark.sqlite("the timeout of a connection for a lock")
def test_enqueue_waits_as_long_as_its_own_timeout_and_works_afterwards(database: Database) -> None:
    """An enqueue during a long lock raises OperationalError when the connection's own timeout is over, not later."""
    connections[ALIAS].close()
    connections[ALIAS].settings_dict["OPTIONS"] = {**connections[ALIAS].settings_dict["OPTIONS"], "timeout": 0.5}
    with database.locked():
        began = time.monotonic()
        with pytest.raises(OperationalError, match="locked"):
            database.enqueue(tasks.add, 1, 2)
        assert 0.5 <= time.monotonic() - began < PROMPT
    assert database.job(database.enqueue(tasks.add, 1, 2))["state"] == "READY"
    with connections[ALIAS].cursor() as cursor:
        assert cursor.execute("PRAGMA busy_timeout").fetchone() == (500,)


def test_a_lock_at_the_start_and_at_the_end_is_waited_for(database: Database, start_worker: Start) -> None:
    """A worker that starts under a lock begins when it is gone; one that stops under it leaves all the same."""
    job_id = database.enqueue(tasks.add, 1, 2)
    with database.locked():
        worker = start_worker(VTQUEUE_TEST_TIMEOUT="1")
        database.wait_until_blocked(worker)
    database.wait_for(job_id)
    wait_until(database.workers)
    with database.locked():
        assert worker.terminate() == 0
    assert "Traceback" not in worker.log
