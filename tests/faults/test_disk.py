"""The disk is full, or may only be read: at the start of a worker, while it runs, and at its end."""

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.project import tasks

from ..conftest import ALIAS, connected
from ..processes.database import Database
from ..processes.held import begin, executions
from ..processes.running import MANAGE, Running, Start
from ..waiting import wait_until
from .disks import LimitedDisk, SmallDisk, reading, small_disk
from .scale import HELD

FULL = "the database cannot be written"
Disk = LimitedDisk | SmallDisk
pytestmark = pytest.mark.sqlite("the disk of its file; that of a server: test_server.py")


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """Return a disk that can be filled."""
    (tmp_path / "disk").mkdir()
    if getattr(request, "param", "limited") == "limited":  # what needs no privilege
        yield LimitedDisk(tmp_path / "disk")
    else:
        with small_disk(tmp_path / "disk") as disk:
            yield disk


@pytest.fixture
def sqlite_file(empty_file: Path, disk: Disk, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Return the alias of a fresh database file on that disk."""
    path = disk.folder / "db.sqlite3"
    shutil.copy(empty_file, path)
    with django_db_blocker.unblock(), connected(path) as alias:
        yield alias


def lengthen_the_log(database: Database) -> None:
    """Make the log (WAL) longer than what a worker writes to standard error."""
    for _ in range(10):
        database.write("PRAGMA user_version = 1")


def assert_said_once(worker: Running) -> None:
    assert worker.log.count(FULL) == 1, worker.log
    assert "Traceback" not in worker.log
    assert len(worker.log.splitlines()) < 20


def test_a_full_disk_is_waited_out_with_results_in_hand(
    database: Database, start_worker: Start, disk: Disk, tmp_path: Path
) -> None:
    """What finishes while nothing can be written is stored when there is room again: claimed once, executed once."""
    worker = start_worker()
    jobs = [begin(database, tmp_path, name) for name in "abc"]
    lengthen_the_log(database)
    with reading(database.path):
        disk.fill(database.path, worker.pid)
        for name in "ab":
            (tmp_path / f"{name}go").touch()
        worker.wait_for(FULL)
        time.sleep(HELD / 2)
        (tmp_path / "cgo").touch()
        time.sleep(HELD / 2)
        disk.free(worker.pid)
    database.wait_for(*jobs)
    assert [database.job(job_id)["claims"] for job_id in jobs] == [1, 1, 1]
    assert [len(executions(tmp_path, name)) for name in "abc"] == [1, 1, 1]
    later = database.enqueue(tasks.add, 1, 2)
    database.wait_for(later)
    assert_said_once(worker)
    assert worker.terminate() == 0


def test_a_worker_that_starts_on_a_full_disk_begins_when_there_is_room(
    database: Database, start: Start, disk: Disk
) -> None:
    """It waits, saying so once, and then works."""
    job_id = database.enqueue(tasks.add, 1, 2)
    connections[ALIAS].close()
    disk.fill(database.path)
    worker = start(*disk.launcher, MANAGE, "vtworker", "--no-reload")
    worker.wait_for(FULL)
    disk.free(worker.pid)
    worker.wait_ready()
    database.wait_for(job_id)
    assert_said_once(worker)


def test_a_worker_that_waits_for_a_full_disk_at_its_start_leaves_when_told(
    database: Database, start: Start, disk: Disk
) -> None:
    """SIGTERM ends it before it has begun."""
    disk.fill(database.path)
    worker = start(*disk.launcher, MANAGE, "vtworker", "--no-reload")
    worker.wait_for(FULL)
    assert worker.terminate() == 0
    assert_said_once(worker)


def test_an_idle_worker_leaves_a_full_disk_when_told(database: Database, start_worker: Start, disk: Disk) -> None:
    """It cannot take its row away, and does not wait for that."""
    worker = start_worker()
    wait_until(database.workers)
    lengthen_the_log(database)
    with reading(database.path):
        disk.fill(database.path, worker.pid)
        assert worker.terminate() == 0
    assert "Traceback" not in worker.log


def test_a_worker_with_results_in_hand_leaves_a_full_disk_and_the_jobs_run_again(
    database: Database, start_worker: Start, disk: Disk, tmp_path: Path
) -> None:
    """A first signal waits for room, a second does not; what could not be stored is done again when its lease ends."""
    database.options["visibility_timeout"] = 2
    worker = start_worker()
    job_id = begin(database, tmp_path)
    lengthen_the_log(database)
    with reading(database.path):
        disk.fill(database.path, worker.pid)
        (tmp_path / "go").touch()
        worker.wait_for(FULL)
        worker.signal(signal.SIGTERM)
        time.sleep(HELD / 2)
        assert not worker.ended()
        assert worker.terminate() in (0, 1)  # 1: it was ended amid a try (worker/shutdown.py)
        if isinstance(disk, SmallDisk):
            disk.free(worker.pid)
    assert "Traceback" not in worker.log
    start_worker()
    database.wait_for(job_id)
    assert len(executions(tmp_path)) == 2
    assert database.outcomes(job_id) in (["worker died"], ["lease expired"])


@pytest.mark.parametrize("disk", ["small"], indirect=True)
def test_a_disk_that_may_only_be_read_is_waited_for(database: Database, start_worker: Start, disk: SmallDisk) -> None:
    """A worker that opened the file for reading only writes as soon as it may, though its own file handle may not."""
    job_id = database.enqueue(tasks.add, 1, 2)
    connections[ALIAS].close()
    disk.remount("ro")
    worker = start_worker(ready=False)
    worker.wait_for(FULL)
    disk.remount("rw")
    database.wait_for(job_id)
    assert_said_once(worker)
