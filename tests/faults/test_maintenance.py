"""Pruning, and copying the log back, beside other writers."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.project import tasks

from ..processes.database import Database
from ..waiting import wait_until
from .inside import PRUNED_AT_ONCE, UPKEEP, Upkeep, leave_no_time_to_prune

EXPIRED = (
    "UPDATE vtqueue_job SET state = 'SUCCESSFUL', worker_id = 'w', finished_at = 1, kept_until = 1, result = 'null'"
)


@pytest.mark.sqlite("no statement waits for its lock")
def test_what_a_lock_prevents_is_done_in_the_next_turn(database: Database) -> None:
    """A lock that keeps a worker from pruning delays it by no second; and it goes on as long as there is more."""
    database.enqueue_many(tasks.add, [(1, 2)] * (PRUNED_AT_ONCE + 1))
    database.write(EXPIRED)
    upkeep = Upkeep(database.backend)
    with upkeep.without_waiting():
        upkeep.go_on()
        assert len(database.rows("SELECT 1 FROM vtqueue_job")) == 1
        wait_until(upkeep.is_due)
        with database.locked():
            upkeep.go_on()
        assert upkeep.next_at < time.monotonic() + UPKEEP / 2
        wait_until(upkeep.is_due)
        upkeep.go_on()
    assert not database.rows("SELECT 1 FROM vtqueue_job")


def test_as_many_rows_are_deleted_as_jobs_are_run(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to delete, and however little time there is for it: the table does not grow for ever."""
    leave_no_time_to_prune(monkeypatch)
    database.enqueue_many(tasks.add, [(1, 2)] * (2 * PRUNED_AT_ONCE + 1))
    database.write(EXPIRED)
    upkeep = Upkeep(database.backend)
    left = []
    with upkeep.without_waiting():
        for started in (0, PRUNED_AT_ONCE - 1, 1):
            upkeep.note_started(started)
            upkeep.go_on()
            left.append(len(database.rows("SELECT 1 FROM vtqueue_job")))
    assert left == [PRUNED_AT_ONCE + 1, PRUNED_AT_ONCE + 1, 1]


def test_what_cannot_be_pruned_is_told_once(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A foreign trigger that forbids it, say: neither does it fail a worker's turns, nor fill its log."""
    database.enqueue(tasks.add, 1, 2)
    database.write(EXPIRED)
    database.refuse("kept", "DELETE ON vtqueue_job", "OLD.id IS NOT NULL", "kept for ever")
    upkeep = Upkeep(database.backend)
    with upkeep.without_waiting():
        for _ in range(2):
            upkeep.have_due()
            began = time.monotonic()
            upkeep.go_on()
            assert upkeep.next_at > began + UPKEEP / 2
    assert caplog.text.count("kept for ever") == 1
    assert database.rows("SELECT 1 FROM vtqueue_job")


def test_a_part_that_fails_stops_no_other_part(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A trigger refuses the end of a lease, say: that is told once, and overdue jobs and old rows go as ever."""
    held = database.enqueue(tasks.add, 1, 2)
    database.write("UPDATE vtqueue_job SET state = 'RUNNING', worker_id = 'gone', lease_until = 1")
    database.refuse("held", "UPDATE ON vtqueue_job", f"OLD.id = '{held}'", "held for ever")
    upkeep = Upkeep(database.backend)

    def told() -> int:
        upkeep.have_due()
        upkeep.go_on()
        return caplog.text.count("held for ever")

    with upkeep.without_waiting():
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
    upkeep = Upkeep(database.backend)
    writer = closing(sqlite3.connect(database.path, isolation_level=None))
    with upkeep.without_waiting(), writer as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("CREATE TABLE junk AS SELECT zeroblob(3500000)")
        before = log.stat().st_size
        upkeep.go_on()
        assert log.stat().st_size == before
        upkeep.go_on(contended=True)
        assert log.stat().st_size == 0
