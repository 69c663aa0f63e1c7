"""Pruning, and copying the log back, beside other writers."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from django_vtqueue.engines import new_engine
from django_vtqueue.engines.sqlite.wal import SLOW
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.loop import Worker
from django_vtqueue.worker.maintenance import PERIOD, PRUNED_BATCH, Maintenance
from django_vtqueue.worker.options import WorkerOptions
from tests.project import tasks

from ..conftest import ALIAS
from ..processes.database import Database
from ..waiting import wait_until

EXPIRED = (
    "UPDATE vtqueue_job SET state = 'SUCCESSFUL', worker_id = 'w', finished_at = 1, kept_until = 1, result = 'null'"
)


def maintenance_of(database: Database) -> Maintenance:
    """Return the maintenance of a new worker of a database."""
    worker = Worker(database.backend, WorkerOptions(threads=1), WorkerLog())
    worker.bell.close()
    return worker.turns.periodic.maintenance


@pytest.mark.sqlite("no statement waits for its lock")
def test_what_a_lock_prevents_is_done_in_the_next_turn(database: Database) -> None:
    """A lock that keeps a worker from pruning delays it by no second; and it goes on as long as there is more."""
    database.enqueue_many(tasks.add, [(1, 2)] * (PRUNED_BATCH + 1))
    database.write(EXPIRED)
    maintenance = maintenance_of(database)
    with maintenance.engine.without_lock_waits():
        maintenance.do_what_is_due(contended=False)
        assert len(database.rows("SELECT 1 FROM vtqueue_job")) == 1
        wait_until(lambda: time.monotonic() >= maintenance.next_at)
        with database.locked():
            maintenance.do_what_is_due(contended=False)
        assert maintenance.next_at < time.monotonic() + PERIOD / 2
        wait_until(lambda: time.monotonic() >= maintenance.next_at)
        maintenance.do_what_is_due(contended=False)
    assert not database.rows("SELECT 1 FROM vtqueue_job")


def test_as_many_rows_are_deleted_as_jobs_are_run(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to delete, and however little time there is for it: the table does not grow for ever."""
    monkeypatch.setattr("django_vtqueue.worker.maintenance.PRUNING_SHARE", 1e-9)
    database.enqueue_many(tasks.add, [(1, 2)] * (2 * PRUNED_BATCH + 1))
    database.write(EXPIRED)
    maintenance = maintenance_of(database)
    left = []
    with maintenance.engine.without_lock_waits():
        for started in (0, PRUNED_BATCH - 1, 1):
            maintenance.work.jobs_started += started
            maintenance.do_what_is_due(contended=False)
            left.append(len(database.rows("SELECT 1 FROM vtqueue_job")))
    assert left == [PRUNED_BATCH + 1, PRUNED_BATCH + 1, 1]


def test_what_cannot_be_pruned_is_told_once(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A foreign trigger that forbids it, say: neither does it fail a worker's turns, nor fill its log."""
    database.enqueue(tasks.add, 1, 2)
    database.write(EXPIRED)
    database.refuse("kept", "DELETE ON vtqueue_job", "OLD.id IS NOT NULL", "kept for ever")
    maintenance = maintenance_of(database)
    with maintenance.engine.without_lock_waits():
        for _ in range(2):
            maintenance.next_at, began = 0.0, time.monotonic()
            maintenance.do_what_is_due(contended=False)
            assert maintenance.next_at > began + PERIOD / 2
    assert caplog.text.count("kept for ever") == 1
    assert database.rows("SELECT 1 FROM vtqueue_job")


def test_a_part_that_fails_stops_no_other_part(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A trigger refuses the end of a lease, say: that is told once, and overdue jobs and old rows go as ever."""
    held = database.enqueue(tasks.add, 1, 2)
    database.write("UPDATE vtqueue_job SET state = 'RUNNING', worker_id = 'gone', lease_until = 1")
    database.refuse("held", "UPDATE ON vtqueue_job", f"OLD.id = '{held}'", "held for ever")
    maintenance = maintenance_of(database)

    def told() -> int:
        maintenance.next_at = 0.0
        maintenance.do_what_is_due(contended=False)
        return caplog.text.count("held for ever")

    with maintenance.engine.without_lock_waits():
        wait_until(told)
        overdue, old = database.enqueue(tasks.add, 1, 2), database.enqueue(tasks.add, 1, 2)
        database.write("UPDATE vtqueue_job SET start_by = 1 WHERE id = ?", overdue)
        database.write(f"{EXPIRED} WHERE id = ?", old)
        assert told() == 1
    assert [row["id"] for row in database.rows("SELECT id FROM vtqueue_job")] == [held]
    assert database.letter(overdue)


@pytest.mark.sqlite("the log (WAL)")
def test_the_log_is_copied_back_early_while_others_wait(database: Database) -> None:
    """Before the commit of another connection has to do it; where none waits, it is left alone for longer."""
    log = Path(f"{database.path}-wal")
    maintenance = maintenance_of(database)
    writer = closing(sqlite3.connect(database.path, isolation_level=None))
    with maintenance.engine.without_lock_waits(), writer as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("CREATE TABLE junk AS SELECT zeroblob(3500000)")
        before = log.stat().st_size
        maintenance.do_what_is_due(contended=False)
        assert log.stat().st_size == before
        maintenance.do_what_is_due(contended=True)
        assert log.stat().st_size == 0


@pytest.mark.sqlite("the log (WAL)")
def test_a_long_log_is_copied_beside_the_turns(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is no part of a turn: leases are renewed meanwhile."""
    log = Path(f"{database.path}-wal")
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("CREATE TABLE filler (content BLOB)")
        for _ in range(9):
            other.execute("INSERT INTO filler VALUES (zeroblob(8000000))")
        assert log.stat().st_size > SLOW
        engine = new_engine(ALIAS, traced=False)
        with engine.without_lock_waits():
            engine.now(), engine.changed()
            started, start = list[threading.Thread](), threading.Thread.start
            monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self), start(self))[1])
            assert engine.tidy(early=False) == 0
            assert len(started) == 1
            wait_until(lambda: log.stat().st_size == 0)
