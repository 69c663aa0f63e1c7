"""What workers write of what they did."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from django_vtqueue import throughput
from django_vtqueue.core import clock
from django_vtqueue.core.histograms import ERROR
from django_vtqueue.core.job import HeldJob
from django_vtqueue.core.settlement import succeeded
from django_vtqueue.engines import new_engine
from django_vtqueue.execution.outcomes import Outcome
from django_vtqueue.worker import statistics as module
from django_vtqueue.worker.statistics import Recorder
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import Database
from .running import Running, Start

SUMS = """
SELECT coalesce(sum(succeeded), 0) AS succeeded, coalesce(sum(failed), 0) AS failed, coalesce(sum(dead), 0) AS dead
FROM vtqueue_throughput"""


def sums(database: Database) -> tuple[int, int, int]:
    """Return how many attempts succeeded, failed, and were the last."""
    return tuple(database.rows(SUMS)[0])  # type: ignore[return-value]


def timed(database: Database, column: str) -> int:
    """Return how many attempts a histogram has, in all."""
    rows = database.rows(f"SELECT {column} FROM vtqueue_throughput")
    return sum(sum(json.loads(row[0]).values()) for row in rows)


def test_statistics_appear_while_it_works_and_add_up(database: Database, start_worker: Start) -> None:
    """Each attempt is counted once: the first ones can be read soon, all of them when the worker has left."""
    worker = start_worker(constants={"worker.statistics.PERIOD": 0.5})
    ids = database.enqueue_many(tasks.add, [(1, 2)] * 500)
    wait_until(lambda: sums(database)[0] > 0)
    assert not worker.ended()
    ids += database.enqueue_many(tasks.add.using(queue_name="other"), [(1, 2)] * 300)
    ids.append(database.enqueue(tasks.fail_first, 2))
    dead = database.enqueue(tasks.raise_it, "SystemExit")
    wait_until(lambda: database.succeeded(*ids) and database.letter(dead))
    assert worker.terminate() == 0
    assert sums(database) == (801, 2, 1)
    assert (timed(database, "run_times"), timed(database, "wait_times")) == (804, 804)
    flows = throughput.read(ALIAS)
    assert {name: sum(flow.succeeded) for name, flow in flows.items()} == {"default": 501, "other": 300}


def test_times_are_those_of_the_jobs(database: Database, drain: Callable[..., Running], tmp_path: Path) -> None:
    """The run time is that of the task, the wait begins when the job was due, not when it was published."""
    (tmp_path / "go").touch()
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    database.write("UPDATE vtqueue_job SET due_at = due_at - 3600000000 WHERE id = ?", job_id)
    drain()
    flow = throughput.read(ALIAS)["default"]
    assert flow.wait.p50 == pytest.approx(3600, rel=ERROR + 0.02)
    assert 0 < (flow.run.p99 or 0) < 60


@pytest.mark.parametrize(
    ("max_attempts", "proven"), [(1, True), (2, True), (1, False)], ids=["dead", "failed", "dead by its lease"]
)
def test_what_a_dead_worker_held_is_counted_by_another(
    database: Database, start_worker: Start, tmp_path: Path, max_attempts: int, proven: bool
) -> None:
    """The worker that ends the attempt of a dead one counts it, but not how long it took, which is unknown."""
    job_id = database.publish(f"{tasks.__name__}.kill_worker", str(tmp_path / "killed"), max_attempts=max_attempts)
    assert start_worker(ready=False).wait() == -signal.SIGKILL
    database.write("UPDATE vtqueue_job SET task_path = ?", f"{tasks.__name__}.raise_later")
    if not proven:
        [row] = database.workers()
        os.unlink(row["doorbell"])
        database.write("UPDATE vtqueue_job SET lease_until = 1, lease_us = 300000")
    other = start_worker()
    wait_until(lambda: database.letter(job_id))
    assert other.terminate() == 0
    assert sums(database) == (0, max_attempts - 1, 1)
    assert timed(database, "run_times") == timed(database, "wait_times") == max_attempts - 1


def test_an_idle_worker_writes_none(database: Database, start_worker: Start) -> None:
    """Where nothing ends nothing is counted: jobs that are given back are no attempts."""
    assert start_worker().terminate() == 0
    assert database.rows("SELECT 1 FROM vtqueue_throughput") == []


def test_jobs_go_on_without_their_statistics(database: Database, start_worker: Start) -> None:
    """What keeps the statistics from being written is said once, and keeps no job from running."""
    database.write("DROP TABLE vtqueue_throughput")
    database.write("CREATE TABLE vtqueue_throughput (id INTEGER)")
    worker = start_worker()
    ids = database.enqueue_many(tasks.add, [(1, 2)] * 100)
    database.wait_for(*ids)
    worker.wait_for("the statistics could not be written")
    later = database.enqueue(tasks.add, 1, 2)
    database.wait_for(later)
    assert worker.terminate() == 0
    assert worker.log.count("the statistics could not be written") == 1


# -- one recorder ------------------------------------------------------------------------------------------------------


def outcome(queue_name: str = "q", seconds: float = 0.001) -> Outcome:
    now = clock.now()
    job = HeldJob("0" * 32, queue_name, "t", 0, now, 1, 1, 3, "w", 60_000_000, now, now, "{}", "[]", now)
    return Outcome(job, succeeded(job, "1", now, None), None, None, seconds)


@pytest.mark.sqlite("its lock is that of all tables")
def test_a_lock_delays_the_statistics_and_nothing_else(database: Database) -> None:
    """While the database is locked a turn does not wait for them; they are tried again soon, and nothing is lost."""
    engine = new_engine(ALIAS, traced=False)
    recorder = Recorder(engine, "w")
    with engine.without_lock_waits():
        recorder.count([outcome()])
        with database.locked():
            recorder.write()
            assert recorder.next_at != module.NEVER
        recorder.count([outcome()])
        wait_until(lambda: recorder.write() or recorder.next_at == module.NEVER)  # type: ignore[func-returns-value]
    assert sums(database) == (2, 0, 0)


def test_counts_go_on_after_they_were_written(database: Database) -> None:
    """Later counts of the same minute add to those written; a write that is repeated adds nothing."""
    engine = new_engine(ALIAS, traced=False)
    recorder = Recorder(engine, "w")
    for _ in range(3):
        recorder.count([outcome(), outcome("other")])
        recorder.flush()
    recorder.flush()
    assert sums(database) == (6, 0, 0)
    assert timed(database, "run_times") == 6


def test_old_statistics_are_pruned_with_a_write(database: Database) -> None:
    """What is older than two days goes, a slice with each write; what is younger stays."""
    engine = new_engine(ALIAS, traced=False)
    insert = (
        "INSERT INTO vtqueue_throughput (starts_at, queue_name, worker_id, succeeded, failed, dead, run_times, "
        "wait_times) VALUES (?, ?, 'gone', 1, 0, 0, '{}', '{}')"
    )
    database.write(insert, clock.now() - module.MINUTES_KEPT - 1, "old")
    database.write(insert, clock.now() - module.MINUTES_KEPT + 60_000_000, "young")
    recorder = Recorder(engine, "w")
    recorder.count([outcome()])
    recorder.flush()
    names = [row[0] for row in database.rows("SELECT queue_name FROM vtqueue_throughput ORDER BY 1")]
    assert names == ["q", "young"]


def test_hours_are_the_sums_of_their_minutes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of an hour has what all of its minutes have, whenever they were written, each once."""
    engine = new_engine(ALIAS, traced=False)
    recorder = Recorder(engine, "w")
    hour = clock.now() // 3_600_000_000 * 3_600_000_000
    for minute in (0, 1, 2, 5, 59, 60):
        monkeypatch.setattr(engine, "now", lambda minute=minute: hour + minute * 60_000_000)
        for _ in range(2):
            recorder.count([outcome()])
            recorder.flush()
    rows = database.rows("SELECT starts_at, succeeded, run_times FROM vtqueue_hourlythroughput ORDER BY 1")
    assert [(row["starts_at"], row["succeeded"]) for row in rows] == [(hour, 10), (hour + 3_600_000_000, 2)]
    assert [sum(json.loads(row["run_times"]).values()) for row in rows] == [10, 2]
    tasks_of = database.rows("SELECT DISTINCT task_path FROM vtqueue_throughput")
    assert [row[0] for row in tasks_of] == ["t"]


def test_depth_is_measured(database: Database, start_worker: Start) -> None:
    """A worker notes how many jobs are due in each queue, also in those that no worker serves."""
    database.enqueue_many(tasks.add.using(queue_name="other"), [(1, 2)] * 7)
    start_worker("--queues", "default")
    found = "SELECT depth FROM vtqueue_throughput WHERE queue_name = 'other' AND task_path = ''"
    assert {row[0] for row in wait_until(lambda: database.rows(found))} == {7}
