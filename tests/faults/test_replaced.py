"""The database file is exchanged, restored, deleted or damaged under a running worker."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import OperationalError, ProgrammingError, connections

from tests.project import tasks

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.held import begin, executions
from ..processes.running import Running, Start
from ..processes.test_asked import ask_all
from ..waiting import wait_until
from .exchange import back_up, delete, delete_and_copy, move_over, restore_in_place
from .inside import SETTLED, ControlLoop, after_each_opening

REPLACED = "the database was replaced; this worker goes on with the new one"
GONE = "the database cannot be reached (its file was exchanged or deleted, or is out of reach"
DAMAGED = "the database is damaged"
pytestmark = pytest.mark.sqlite("its file is exchanged; sessions that end: test_server.py")


@pytest.fixture
def other(empty_file: Path, tmp_path: Path) -> Path:
    """Return another database file with all tables, and no job."""
    return Path(shutil.copy(empty_file, tmp_path / "other.sqlite3"))


def assert_works(database: Database, worker: Running, exchanges: int = 1) -> None:
    """Assert that a worker still takes jobs, is known to others, and has said everything once (at the most)."""
    job_id = database.enqueue(tasks.add, 1, 2)
    database.wait_for(job_id)
    wait_until(lambda: [row for row in database.workers() if row["pid"] == worker.pid])
    assert not worker.ended(), worker.log
    assert "Traceback" not in worker.log
    assert worker.log.count(REPLACED) <= exchanges
    assert worker.log.count(GONE) <= exchanges
    assert worker.log.count(DAMAGED) <= 1


@pytest.mark.parametrize("exchange", [move_over, delete_and_copy])
def test_another_file_is_noticed_and_worked_off(
    database: Database,
    start_worker: Start,
    tmp_path: Path,
    other: Path,
    exchange: Callable[[Path, Path], None],
) -> None:
    """A worker goes on with the file in the place of its own; what that does not know is lost, and said."""
    worker = start_worker()
    begin(database, tmp_path)
    exchange(other, database.path)
    worker.wait_for(REPLACED)
    assert_works(database, worker)
    (tmp_path / "go").touch()
    worker.wait_for("lease lost")
    assert_works(database, worker)
    assert worker.terminate() == 0


@pytest.mark.parametrize("restore", [delete_and_copy, restore_in_place])
def test_a_backup_from_the_run_of_a_job_takes_its_result(
    database: Database, start_worker: Start, tmp_path: Path, restore: Callable[[Path, Path], None]
) -> None:
    """A job that runs in the backup as it runs here is settled there: it is executed once, with one claim."""
    worker = start_worker()
    job_id = begin(database, tmp_path)
    copy = back_up(database.path, tmp_path / "copy")
    later = database.enqueue(tasks.add, 1, 2)
    database.wait_for(later)
    restore(copy, database.path)
    if restore is not restore_in_place:
        worker.wait_for(REPLACED)
    assert_works(database, worker)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert database.job(job_id)["claims"] == 1
    assert len(executions(tmp_path)) == 1
    assert database.rows("SELECT * FROM vtqueue_job WHERE id = ?", later) == []


@pytest.mark.parametrize("restore", [restore_in_place, move_over])
def test_a_backup_from_before_a_claim_starts_no_second_run_of_it(
    database: Database,
    start_worker: Start,
    tmp_path: Path,
    restore: Callable[[Path, Path], None],
) -> None:
    """A job that waits in the backup and runs here is claimed again by its worker, and settled by that run."""
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    copy = back_up(database.path, tmp_path / "copy")
    worker = start_worker()
    wait_until(lambda: (tmp_path / "started").exists())
    restore(copy, database.path)
    wait_until(lambda: database.job(job_id)["state"] == "RUNNING")
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert_works(database, worker)
    assert database.job(job_id)["claims"] == 1
    assert len(executions(tmp_path)) == 1


@pytest.mark.parametrize("restore", [restore_in_place, move_over])
def test_a_restore_under_quiet_workers(
    database: Database, start_worker: Start, tmp_path: Path, restore: Callable[[Path, Path], None]
) -> None:
    """What has run since the backup runs again, when workers are asked to work again, and never beside itself."""
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    copy = back_up(database.path, tmp_path / "copy")
    workers = [start_worker() for _ in range(2)]
    wait_until(lambda: executions(tmp_path) and len(database.workers()) == 2)
    ask_all(database, "quiet")
    for worker in workers:
        worker.wait_for("is quiet")
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    restore(copy, database.path)
    wait_until(lambda: len(database.workers()) == 2)
    assert (database.job(job_id)["state"], len(executions(tmp_path))) == ("READY", 1)
    ask_all(database, "")
    database.wait_for(job_id)
    assert (database.job(job_id)["claims"], len(executions(tmp_path))) == (1, 2)


def test_a_deleted_file_is_waited_for(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Without its file a worker waits, creates none, and keeps what has finished until a backup takes it."""
    worker = start_worker("--threads", "2")
    job_id = begin(database, tmp_path)
    copy = back_up(database.path, tmp_path / "copy")
    delete(database.path)
    worker.wait_for(GONE)
    (tmp_path / "go").touch()
    assert not database.path.exists()
    copy.rename(database.path)
    database.wait_for(job_id)
    worker.wait_for(REPLACED)
    assert_works(database, worker)
    assert database.job(job_id)["claims"] == 1
    assert len(executions(tmp_path)) == 1


def test_a_worker_without_its_file_leaves_when_told(database: Database, start_worker: Start) -> None:
    """SIGTERM ends a worker whose file was deleted; no empty file is left at its path."""
    worker = start_worker()
    delete(database.path)
    worker.wait_for(GONE)
    assert worker.terminate() == 0
    assert not database.path.exists()
    assert "Traceback" not in worker.log


def test_a_file_that_is_deleted_as_it_is_opened(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """No empty file comes into its place: with the inode of the one that is gone, nothing would tell them apart."""
    loop = ControlLoop(ALIAS)
    after_each_opening(monkeypatch, lambda: delete(database.path))
    with loop.without_waiting():
        with pytest.raises(OperationalError):
            loop.waiting("q", 1)
        assert not database.path.exists()


def test_a_damaged_file_is_waited_out(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A file of garbage is said once; when a good one is back, what has finished meanwhile is stored there."""
    worker = start_worker()
    job_id = begin(database, tmp_path)
    copy = back_up(database.path, tmp_path / "copy")
    move_over(Path(shutil.copy(__file__, tmp_path / "garbage")), database.path)
    worker.wait_for(DAMAGED)
    (tmp_path / "go").touch()
    delete_and_copy(copy, database.path)
    database.wait_for(job_id)
    assert_works(database, worker, exchanges=2)
    assert database.job(job_id)["claims"] == 1
    assert len(executions(tmp_path)) == 1


def test_a_connection_that_is_closed_is_opened_anew(database: Database, start_worker: Start) -> None:
    """Code of the worker's own process that closes all connections there are costs it nothing but a new one."""
    worker = start_worker("--threads", "2")
    for _ in range(2):
        job_id = database.enqueue(tasks.close_all_connections)
        database.wait_for(job_id)
    assert_works(database, worker)
    assert database.job(job_id)["claims"] == 1


def test_a_file_that_is_still_being_copied_is_not_opened(database: Database, other: Path) -> None:
    """A control loop waits until another file has not grown for a second; then it says once that it is another one."""
    loop = ControlLoop(ALIAS)
    whole = other.read_bytes()
    other.write_bytes(whole[:4096])

    def replaced() -> bool:
        try:
            return loop.replaced()
        except OperationalError as error:
            loop.note(error)
            return False

    with loop.without_waiting():
        assert not loop.replaced()
        move_over(other, database.path)
        assert not replaced()
        assert not replaced()
        grown_at = time.monotonic()
        database.path.write_bytes(whole)
        wait_until(replaced)
        assert time.monotonic() - grown_at >= SETTLED
        assert not loop.replaced()
        assert loop.unfinished("default") == 0


def assert_impatient(database: Database, loop: ControlLoop) -> None:
    assert loop.changed()
    with connections[ALIAS].cursor() as cursor:
        assert cursor.execute("PRAGMA busy_timeout").fetchone() == (0,)
    with database.locked(), pytest.raises(OperationalError, match="locked"), loop.transaction():
        pytest.fail("no other connection holds the lock")


def test_a_connection_closed_by_django_is_as_impatient_when_it_is_opened_again(database: Database) -> None:
    """Whatever opens it, no statement of a control loop waits for a lock; what it knew of commits is forgotten."""
    loop = ControlLoop(ALIAS)
    with loop.without_waiting():
        assert loop.changed()
        assert not loop.changed()
        connections[ALIAS].close()
        connections[ALIAS].ensure_connection()
        assert_impatient(database, loop)


def test_a_connection_closed_behind_django_is_a_trouble_after_which_a_new_one_is_opened(database: Database) -> None:
    """The next statement fails as one of a server that is gone does; the one after that has a new connection."""
    loop = ControlLoop(ALIAS)
    with loop.without_waiting():
        assert loop.changed()
        connections[ALIAS].connection.close()
        with pytest.raises(ProgrammingError) as caught:
            loop.changed()
        assert loop.is_gone(caught.value)
        loop.note(caught.value)
        assert_impatient(database, loop)


def test_a_connection_that_a_thread_keeps_is_not_kept_to_an_old_file(
    database: Database, start_worker: Start, other: Path
) -> None:
    """With persistent connections a job that starts after the exchange writes into the new file."""
    worker = start_worker("--threads", "1", VTQUEUE_TEST_CONNECTION='{"CONN_MAX_AGE": null}')
    before = database.enqueue(tasks.effect, "before")
    database.wait_for(before)
    move_over(other, database.path)
    worker.wait_for(REPLACED)
    after = database.enqueue(tasks.effect, "after")
    database.wait_for(after)
    assert [row["name"] for row in database.rows("SELECT name FROM project_effect")] == ["after"]
