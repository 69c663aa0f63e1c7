"""The rows of live workers. Their heartbeats are in test_together."""

import signal
import socket
import time
from pathlib import Path
from uuid import UUID

from tests.project import tasks

from ..waiting import wait_until
from . import inside
from .database import Database
from .held import begin
from .running import Start


def test_a_worker_is_present_from_its_start_to_its_end(database: Database, start_worker: Start) -> None:
    """A live worker has a row that says where it is and what it does; a stop while it is idle takes it away at once.

    The exit code is 0, and no socket is left behind.
    """
    worker = start_worker("--queues", "a,b", "--threads", "3")
    [row] = wait_until(database.workers)
    assert (row["host"], row["pid"], row["queues"], row["slots"]) == (socket.gethostname(), worker.pid, "a,b", 3)
    assert row["worker_id"].startswith(f"{row['host']}:{row['pid']}:")
    assert row["heartbeat_at"] == row["started_at"]
    assert Path(row["doorbell"]).is_socket()
    assert worker.terminate() == 0
    assert database.workers() == []
    assert database.bells() == set()


def test_a_worker_long_silent_is_forgotten(database: Database, start_worker: Start) -> None:
    """A row without a bell, of a worker that has been silent for long, is removed; a recent one is left alone."""
    worker = start_worker(constants=inside.tuned(heartbeat=0.5))
    wait_until(database.workers)
    [[now]] = database.rows("SELECT heartbeat_at FROM vtqueue_workerprocess")
    database.add_worker("recent:1:a", now)
    database.add_worker("silent:1:a", 1)
    wait_until(lambda: len(database.workers()) == 2)
    assert {row["worker_id"].partition(":")[0] for row in database.workers()} == {"recent", socket.gethostname()}
    assert not worker.ended()


def test_a_worker_holds_no_job_before_it_is_known(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A worker has its row before its first job, also where a lock was in the way: else no other could see it dead."""
    database.enqueue(tasks.hold, str(tmp_path))
    with database.locked():
        worker = start_worker()
        time.sleep(0.3)  # the lock's length: less than the second until its next look at the others
    wait_until(lambda: (tmp_path / "started").exists())
    assert [row["pid"] for row in database.workers()] == [worker.pid]


def test_another_backends_dead_worker_is_left_to_its_own(database: Database, start_worker: Start) -> None:
    """A worker that finds a dead one settles only the jobs of its own queues; the last one takes row and bell away."""
    database.options["visibility_timeout"] = 600
    killed = start_worker("--threads", "1")
    job_id = database.enqueue(tasks.kill_worker.using(queue_name="emails"), "/dev/null")
    assert killed.wait() == -signal.SIGKILL
    [row] = database.workers()
    for queue_name, settled, left in [("reports", [], True), ("emails", [job_id], False)]:
        assert inside.settle_for_the_dead(database, queue_name) == settled
        assert bool(database.workers()) == Path(row["doorbell"]).exists() == left


def test_a_killed_worker_is_remembered(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """The row of a killed worker stays, with what became of its jobs; only after an hour it goes."""
    killed = start_worker("--threads", "1")
    job_id = begin(database, tmp_path)
    killed.process.kill()
    start_worker()
    found = "SELECT * FROM vtqueue_workerprocess WHERE died_at IS NOT NULL"
    wait_until(lambda: database.rows(found))
    [row] = database.rows(found)
    assert (row["pid"], row["went_on"], row["buried"], row["left"]) == (killed.pid, 1, 0, str(UUID(job_id)))
    assert [each["pid"] for each in database.workers()] != [killed.pid]
    inside.died_an_hour_ago(database)
    start_worker()  # its first heartbeat is sooner than the next one of the other
    wait_until(lambda: not database.rows(found))
