"""A database that was copied from elsewhere: with DEBUG its jobs are not run by mistake."""

import io
import os
import shutil
import signal
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from pytest_django import Settings

from tests.project import tasks

from ..conftest import ALIAS
from ..faults.exchange import back_up, move_over
from ..waiting import wait_until
from .database import Database
from .inside import FORGET_ORIGIN, RAN_ON, here
from .running import MANAGE, PATIENCE, Running, Start, children

ELSEWHERE = ("web1:0", "/srv/shop/db.sqlite3", "1:1")
DEBUG = {"VTQUEUE_TEST_DEBUG": "1"}
pytestmark = pytest.mark.sqlite("its file tells a copy from the original")


@pytest.fixture
def copied(database: Database) -> Database:
    """Return a database that a worker on another machine worked off last, in the year 2026."""
    database.write(RAN_ON, *ELSEWHERE)
    return database


def origin(database: Database) -> tuple[str, str, str]:
    [row] = database.rows("SELECT machine, path, file FROM vtqueue_origin")
    return row["machine"], row["path"], row["file"]


def is_here(database: Database) -> bool:
    return origin(database) == (here(ALIAS).machine, str(database.path), here(ALIAS).file)


def refused(worker: Running) -> bool:
    return worker.wait() == 1 and "with DEBUG this worker refuses" in worker.log


def test_a_worker_writes_where_it_works(database: Database, start_worker: Start) -> None:
    """The first worker of a database makes its place known: machine, path, and file; then it works as ever."""
    assert database.rows("SELECT 1 FROM vtqueue_origin") == []
    job_id = database.enqueue(tasks.add, 1, 2)
    worker = start_worker(**DEBUG)
    wait_until(lambda: database.succeeded(job_id), PATIENCE)
    assert is_here(database)
    assert "ran on" not in worker.log


def copy_from_elsewhere(database: Database, folder: Path) -> Path:
    """Return a copy of the database that says that it was worked off elsewhere."""
    copy = back_up(database.path, folder / "copy.sqlite3")
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(FORGET_ORIGIN)
        connection.execute(RAN_ON, ELSEWHERE)
    return copy


@pytest.mark.parametrize("arguments", [(), ("--processes", "2")])
def test_with_debug_a_worker_leaves_when_a_copy_takes_the_place_of_its_database(
    database: Database, start_worker: Start, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """A copy that is put over the file under a running worker is not worked off; a new worker says the two ways on."""
    worker = start_worker(*arguments, **DEBUG)
    wait_until(lambda: database.rows("SELECT 1 FROM vtqueue_origin"), PATIENCE)
    wait_until(lambda: len(database.workers()) == (2 if arguments else 1), PATIENCE)
    move_over(copy_from_elsewhere(database, tmp_path), database.path)
    job_id = database.enqueue(tasks.add, 1, 2)
    assert worker.wait() == 0
    assert "the database was replaced by one from web1" in worker.log
    assert database.job(job_id)["claims"] == 0
    assert origin(database) == ELSEWHERE
    assert refused(start_worker(ready=False, **DEBUG))


def test_with_debug_a_child_that_is_started_later_runs_no_copy(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """The children that replace those which have died, or have done their share, look before they begin."""
    worker = start_worker("--processes", "2", **DEBUG)
    wait_until(lambda: database.rows("SELECT 1 FROM vtqueue_origin"), PATIENCE)
    wait_until(lambda: len(database.workers()) == 2, PATIENCE)
    copy = copy_from_elsewhere(database, tmp_path)
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("DELETE FROM vtqueue_workerprocess")
    died = children(worker.pid)
    for pid in died:
        os.kill(pid, signal.SIGSTOP)  # it does not see the exchange
    move_over(copy, database.path)
    job_id = database.enqueue(tasks.add, 1, 2)
    for pid in died:
        os.kill(pid, signal.SIGKILL)
    assert worker.wait() == 0
    assert "the database was replaced by one from web1" in worker.log
    assert database.job(job_id)["claims"] == 0
    assert origin(database) == ELSEWHERE


@pytest.mark.parametrize("arguments", [("--no-reload",), ("--drain",), ("--queues", "other", "--no-reload"), ()])
def test_with_debug_a_worker_refuses(copied: Database, start: Start, arguments: tuple[str, ...]) -> None:
    """With any command line it ends with code 1, says whose jobs these are and the two ways on, and touches none."""
    job_id = copied.enqueue(tasks.add, 1, 2)
    worker = start(MANAGE, "vtworker", *arguments, **DEBUG)
    assert refused(worker)
    assert worker.log.endswith(
        "CommandError: The jobs of this database were last worked off on web1, /srv/shop/db.sqlite3 "
        "(worker started 2026-05-28 20:26 UTC).\n"
        "1 unfinished came with it. They might write to real people, so with DEBUG this worker refuses to run them.\n"
        "To delete them:    manage.py vtqueue purge --all\n"
        "To run them here:  manage.py vtworker --adopt\n"
    )
    assert copied.job(job_id)["claims"] == 0
    assert origin(copied) == ELSEWHERE


def test_adopt(copied: Database, drain: Start, start_worker: Start) -> None:
    """--adopt runs the jobs; from then on this is its origin, and no worker refuses it."""
    first = copied.enqueue(tasks.add, 1, 2)
    assert "ran on web1, /srv/shop/db.sqlite3 before" in drain("--adopt", **DEBUG).log
    assert copied.succeeded(first)
    assert is_here(copied)
    second = copied.enqueue(tasks.add, 3, 4)
    drain(**DEBUG)
    assert copied.succeeded(second)


def test_purge_is_the_other_way(copied: Database, start: Start, start_worker: Start) -> None:
    """After ``vtqueue purge --all`` there is nothing left to refuse: a worker takes over."""
    copied.enqueue(tasks.add, 1, 2, run_after=None)
    assert refused(start_worker(ready=False, **DEBUG))
    assert start(MANAGE, "vtqueue", "purge", "--all", "--yes", **DEBUG).wait() == 0
    start_worker(**DEBUG)
    wait_until(lambda: is_here(copied), PATIENCE)


def test_without_debug_a_worker_takes_over(copied: Database, drain: Start) -> None:
    """In production a database that has moved is nothing special; the worker's log has a line."""
    job_id = copied.enqueue(tasks.add, 1, 2)
    worker = drain()
    assert copied.succeeded(job_id)
    assert worker.log.count("ran on web1, /srv/shop/db.sqlite3 before; from now on they run here") == 1
    assert is_here(copied)


def test_the_same_file_is_no_copy(database: Database, drain: Start) -> None:
    """A container that is started anew has another name and the same volume: that is no reason to refuse."""
    database.write(RAN_ON, "4f1c88a0:0", "/elsewhere", here(ALIAS).file)
    job_id = database.enqueue(tasks.add, 1, 2)
    drain(**DEBUG)
    assert database.succeeded(job_id)
    assert is_here(database)


def test_another_file_in_the_same_place_is_no_copy(database: Database, drain: Start) -> None:
    """A backup that was restored, or a file that VACUUM INTO has made: the same path on the same machine."""
    database.write(RAN_ON, here(ALIAS).machine, here(ALIAS).path, "1:1")
    job_id = database.enqueue(tasks.add, 1, 2)
    drain(**DEBUG)
    assert database.succeeded(job_id)
    assert is_here(database)


def test_a_real_copy(database: Database, drain: Start, start: Start, tmp_path: Path) -> None:
    """A file that was worked off here and is copied beside itself is a copy, and the original is none."""
    drain()
    job_id = database.enqueue(tasks.add, 1, 2)
    database.leave()
    copy = Database(tmp_path / "copy.sqlite3", database.options["doorbells"])
    shutil.copy(database.path, copy.path)
    worker = start(MANAGE, "vtworker", "--no-reload", VTQUEUE_TEST_DB=str(copy.path), **DEBUG)
    assert refused(worker)
    assert f", {database.path} (worker started" in worker.log
    assert copy.job(job_id)["claims"] == 0
    drain(**DEBUG)
    assert database.succeeded(job_id)


def test_tables_that_come_later(database: Database, start: Start, start_worker: Start) -> None:
    """A worker that waited for its tables looks before it begins, not only at its start."""
    database.enqueue(tasks.add, 1, 2)
    migrations = "django_migrations"
    database.write(f"INSERT INTO {migrations} (app, name, applied) VALUES ('vtqueue', '9999_future', '2030-01-01')")
    worker = start_worker(ready=False, **DEBUG)
    worker.wait_for("Waiting for it.")
    database.write(RAN_ON, *ELSEWHERE)
    database.write(f"DELETE FROM {migrations} WHERE name = '9999_future'")
    assert refused(worker)


def test_a_database_that_comes_later(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """One that cannot be asked at the start, as its disk is not mounted yet, is asked before a worker begins."""
    database.enqueue(tasks.add, 1, 2)
    database.write(RAN_ON, *ELSEWHERE)
    folder = tmp_path / "mounted later"
    worker = start_worker(ready=False, VTQUEUE_TEST_DB=str(folder / "db.sqlite3"), **DEBUG)
    worker.wait_for("unable to open database file")
    assert "Traceback" not in worker.log
    folder.mkdir()
    back_up(database.path, folder / "new")
    (folder / "new").rename(folder / "db.sqlite3")
    assert refused(worker)


def test_a_worker_in_your_own_process(copied: Database, settings: Settings) -> None:
    """``call_command`` obeys as well, also inside a transaction, where it runs the jobs in the caller's thread."""
    job_id = copied.enqueue(tasks.add, 1, 2)
    settings.DEBUG = True
    settings.TASKS = copied.tasks
    for surroundings in (nullcontext(), transaction.atomic(using=ALIAS)):
        with surroundings, pytest.raises(CommandError, match="with DEBUG this worker refuses"):
            call_command("vtworker", drain=True)
    assert copied.job(job_id)["claims"] == 0
    call_command("vtworker", drain=True, adopt=True, verbosity=0, stderr=io.StringIO())
    assert copied.succeeded(job_id)


def test_the_row_is_written_once_a_start(database: Database, start_worker: Start) -> None:
    """Its moment is that of the last start of a worker; heartbeats do not touch it."""
    worker = start_worker()
    [[first]] = wait_until(lambda: database.rows("SELECT worked_at FROM vtqueue_origin"), PATIENCE)
    [row] = database.workers()
    assert first == row["started_at"]
    worker.signal(signal.SIGTERM)
    worker.wait()
    start_worker()
    wait_until(lambda: database.rows("SELECT 1 FROM vtqueue_origin WHERE worked_at > ?", first), PATIENCE)
