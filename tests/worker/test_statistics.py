"""What a worker has counted, and writes beside its jobs."""

import json

import pytest

from django_vtqueue.core import clock
from django_vtqueue.core.job import HeldJob
from django_vtqueue.core.settlement import succeeded
from django_vtqueue.engines import new_engine
from django_vtqueue.execution.outcomes import Outcome
from django_vtqueue.worker import statistics as module
from django_vtqueue.worker.statistics import Recorder

from ..conftest import ALIAS
from ..processes.conftest import both_engines
from ..processes.database import Database
from ..processes.test_statistics import sums, timed
from ..waiting import wait_until


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


@both_engines
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


@both_engines
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


@both_engines
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
