"""Another process keeps the database busy: a lock for a long time, VACUUM, backups."""

import time
from pathlib import Path

import pytest

from tests.project import tasks

from ..processes.conftest import both_engines
from ..processes.database import LOCKED, Database
from ..processes.held import begin, executions
from ..processes.running import Start
from ..waiting import wait_until
from .scale import HELD

JOBS = 300
LEASE = 5  # seconds: before and after the lock it must not end, on a busy machine too

# Both again and again: each VACUUM writes the whole file anew under the lock, each backup reads it in small steps.
MAINTENANCE = """
import sqlite3, sys
live = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
while True:
    live.execute("VACUUM")
    copy = sqlite3.connect(sys.argv[1] + ".copy")
    live.backup(copy, pages=50)
    print(copy.execute("PRAGMA integrity_check").fetchone()[0], flush=True)
    copy.close()
"""


def test_a_long_lock_costs_child_processes_no_job(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """What ends in children during a lock longer than the leases stays in hand: claimed once, executed once."""
    database.options["visibility_timeout"] = LEASE
    worker = start_worker("--processes=2")
    jobs = [begin(database, tmp_path, f"{number}-") for number in range(4)]
    with database.locked():
        for number in range(4):
            (tmp_path / f"{number}-go").touch()
        database.wait_until_blocked(worker)
        time.sleep(max(HELD, LEASE))
    database.wait_for(*jobs)
    assert [database.job(job_id)["claims"] for job_id in jobs] == [1] * 4
    assert [len(executions(tmp_path, f"{number}-")) for number in range(4)] == [1] * 4
    assert worker.log.count(LOCKED) <= 2  # each child that holds a job says it once
    assert "Traceback" not in worker.log
    assert not worker.lines("lost")


@both_engines
def test_time_limits_hold_during_a_lock(database: Database, start_worker: Start) -> None:
    """A task that hangs is ended when its time is up, also while its lease cannot be renewed."""
    database.options["visibility_timeout"] = LEASE
    worker = start_worker("--processes=2")
    job_id = database.enqueue(tasks.hang)
    wait_until(lambda: database.job(job_id)["state"] == "RUNNING")
    with database.locked():
        worker.wait_for("runs for too long")
    wait_until(lambda: database.letter(job_id))
    assert database.outcomes(job_id) == ["timed out"]


@pytest.mark.sqlite("VACUUM and backups of the file")
def test_vacuum_and_backups_by_another_process_disturb_nothing(
    database: Database, start: Start, start_worker: Start, tmp_path: Path
) -> None:
    """While both go on all the time, every job is executed once, at its first attempt, and the copies are whole."""
    database.write("CREATE TABLE padding AS SELECT randomblob(5000000) AS bytes")
    workers = [start_worker("--threads=4"), start_worker("--processes=2")]
    maintenance = start("-c", MAINTENANCE, str(database.path))
    maintenance.wait_for("ok")
    notes = tmp_path / "notes"
    jobs = []
    for number in range(JOBS):
        jobs.append(database.enqueue(tasks.note, str(notes), str(number)))
    database.wait_for(*jobs)
    wait_until(lambda: len(maintenance.lines("ok")) > 2)
    assert sorted(map(int, notes.read_text().splitlines())) == list(range(JOBS))
    assert {row["attempts"] for row in database.rows("SELECT attempts FROM vtqueue_job")} == {1}
    assert set(maintenance.log.split()) == {"ok"}
    for worker in workers:
        assert "Traceback" not in worker.log
        assert not worker.lines("lost")
