"""Workers that another process asks to be quiet, to work again, or to stop; and what they tell of themselves."""

import signal
from pathlib import Path

import pytest

from django_vtqueue import control
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from . import inside
from .database import Database
from .held import executions
from .running import Running, Start

QUIET = "is quiet: it finishes its jobs, and claims nothing until it is asked to work"
ASKED_TO = {"quiet": control.quiet_workers, "": control.resume_workers, "stop": control.stop_workers}


def ask(database: Database, worker: Running, to: str) -> None:
    """Ask a worker that is present."""
    [worker_id] = wait_until(lambda: [row["worker_id"] for row in database.workers() if row["pid"] == worker.pid])
    assert ASKED_TO[to]([worker_id], using=ALIAS) == [worker_id]


def ask_all(database: Database, to: str) -> None:
    """Ask all workers that are present."""
    ids = {row["worker_id"] for row in database.workers()}
    assert set(ASKED_TO[to](sorted(ids), using=ALIAS)) == ids


def test_a_quiet_worker_claims_nothing_until_it_is_to_work(
    database: Database, held: tuple[Running, str], start_worker: Start, tmp_path: Path
) -> None:
    """A quiet worker finishes what runs, stays, leaves the rest to others, and says so once; then it works again."""
    worker, running = held
    ask(database, worker, "quiet")
    worker.wait_for(QUIET)
    (tmp_path / "go").touch()
    database.wait_for(running)
    left = database.enqueue(tasks.sign, str(tmp_path))
    other = start_worker()
    database.wait_for(left)
    assert not (tmp_path / str(worker.pid)).exists()
    assert other.terminate() == 0
    later = database.enqueue(tasks.sign, str(tmp_path))
    assert database.job(later)["claims"] == 0
    assert not worker.ended()
    ask(database, worker, "")
    database.wait_for(later)
    assert (tmp_path / str(worker.pid)).exists()
    wait_until(lambda: "works again" in worker.log)
    assert (worker.log.count("is quiet"), worker.log.count("works again")) == (1, 1)
    assert worker.terminate() == 0


def test_a_quiet_worker_ends_no_leases(database: Database, start_worker: Start) -> None:
    """Also in queues at which no claim of it looks; its other maintenance goes on, and this too when it works again."""
    held = database.enqueue(tasks.add, 1, 2)
    worker = start_worker("--queues", "other")
    ask(database, worker, "quiet")
    worker.wait_for(QUIET)
    inside.held(database, "gone", inside.LONG_AGO, lease=1e-6)
    for _ in range(3):  # looks of maintenance, of which the first or the second one would end it
        old = database.enqueue(tasks.add, 1, 2)
        inside.kept_for_long(database, old)
        wait_until(lambda: len(database.rows("SELECT 1 FROM vtqueue_job")) == 1)
    assert database.job(held)["state"] == "RUNNING"
    ask(database, worker, "")
    wait_until(lambda: database.job(held)["state"] == "READY")
    assert worker.terminate() == 0


def test_stop_is_as_graceful_as_sigterm(database: Database, held: tuple[Running, str], tmp_path: Path) -> None:
    """A worker that is asked to stop finishes what runs, claims nothing more, exits with 0, and takes its row away."""
    worker, running = held
    waiting = database.enqueue(tasks.add, 1, 2)
    ask(database, worker, "stop")
    worker.wait_for("stops, as it was asked to")
    assert not worker.ended()
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.result(running) == "go"
    assert database.job(waiting)["claims"] == 0
    assert database.workers() == []


def test_stop_after_a_signal_changes_nothing(database: Database, held: tuple[Running, str], tmp_path: Path) -> None:
    """A worker that is asked to stop while it already stops goes on finishing what runs: it is no second signal."""
    worker, running = held
    worker.signal(signal.SIGTERM)
    ask(database, worker, "stop")
    worker.wait_for("stops, as it was asked to")
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert (database.result(running), database.job(running)["claims"]) == ("go", 1)


def test_a_supervisor_ends_with_the_workers_that_were_asked_to_stop(database: Database, start_worker: Start) -> None:
    """A child that is asked to stop, quiet or not, is not replaced; with the last one the supervisor ends."""
    worker = start_worker("--processes", "2")
    wait_until(lambda: len(database.workers()) == 2)
    ask_all(database, "quiet")
    wait_until(lambda: worker.log.count(QUIET) == 2)
    first, second = (row["worker_id"] for row in database.workers())
    control.stop_workers([first], using=ALIAS)
    wait_until(lambda: len(database.workers()) == 1)
    assert not worker.ended()
    control.stop_workers([second], using=ALIAS)
    assert worker.wait() == 0
    assert "works again" not in worker.log


def test_what_was_claimed_ahead_is_given_back(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A quiet worker keeps nothing that it does not run."""
    worker = start_worker("--threads", "1")
    ids = database.enqueue_many(tasks.sign, [(str(tmp_path),)] * 30_000)
    wait_until(lambda: database.rows("SELECT 1 FROM vtqueue_job WHERE state = 'SUCCESSFUL' LIMIT 1"))
    ask(database, worker, "quiet")
    worker.wait_for(QUIET)
    wait_until(lambda: not database.rows("SELECT 1 FROM vtqueue_job WHERE state = 'RUNNING'"))
    left = database.unfinished()
    assert 0 < left < len(ids)
    lines = (tmp_path / str(worker.pid)).read_text().split()
    assert len(lines) == len(set(lines)) == len(ids) - left


@pytest.mark.parametrize("arguments", [["--threads", "2"], ["--processes", "2", "--threads", "1"]], ids=" ".join)
def test_a_quiet_drain_ends(database: Database, start_worker: Start, tmp_path: Path, arguments: list[str]) -> None:
    """With --drain a quiet worker finishes what runs, and ends: there is nothing that it would wait for."""
    running = database.enqueue_many(tasks.hold, [(str(tmp_path),)] * 2)
    worker = start_worker("--drain", *arguments)
    wait_until(lambda: len(executions(tmp_path)) == 2)
    left = database.enqueue(tasks.add, 1, 2)
    ask_all(database, "quiet")
    wait_until(lambda: worker.log.count(QUIET) == len(database.workers()))
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.succeeded(*running)
    assert database.job(left)["claims"] == 0


def test_what_was_asked_outlives_the_row(database: Database, start_worker: Start) -> None:
    """A row that was lost (the database was put back to before) is written anew, with what was asked of the worker."""
    worker = start_worker()
    ask(database, worker, "quiet")
    worker.wait_for(QUIET)
    database.write("DELETE FROM vtqueue_workerprocess")
    [row] = wait_until(database.workers)
    assert row["asked_to"] == "quiet"
    assert "works again" not in worker.log


def test_asking(database: Database, start_worker: Start) -> None:
    """Workers that are gone are left out of the answer."""
    assert control.stop_workers(["gone:1:a"], using=ALIAS) == []
    one, two = start_worker(), start_worker()
    rows = wait_until(lambda: len(database.workers()) == 2 and database.workers())
    ids = [row["worker_id"] for row in rows]
    assert control.stop_workers([ids[1], "gone:1:a", ids[0]], using=ALIAS) == [ids[1], ids[0]]
    assert (one.wait(), two.wait()) == (0, 0)


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.parametrize("arguments", [[], ["--processes", "2", "--threads", "1"]], ids=["threads", "children"])
def test_memory_is_told_with_the_heartbeat(
    database: Database, start_worker: Start, tmp_path: Path, arguments: list[str]
) -> None:
    """A worker's row says how much memory its process takes."""
    start_worker(*arguments)
    names = ("a", "b") if arguments else ("a",)
    for name in names:  # all children are ready when each has a job
        database.enqueue(tasks.hold, str(tmp_path), name)
    pids = {wait_until(lambda name=name: executions(tmp_path, name))[0] for name in names}  # type: ignore[misc]
    database.write("DELETE FROM vtqueue_workerprocess")  # it beats again at once
    rows = wait_until(lambda: len(database.workers()) == len(names) and database.workers())
    assert {row["pid"] for row in rows} == pids
    for row in rows:
        assert row["memory"] == pytest.approx(resident(row["pid"]), rel=0.2)
