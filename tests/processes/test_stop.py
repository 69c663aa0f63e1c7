"""Workers that are told to stop."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.project import tasks

from ..waiting import wait_until
from .conftest import MANAGE, Start, environment
from .database import Database
from .running import PATIENCE, Running, python

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def held(database: Database, start_worker: Start, tmp_path: Path) -> tuple[Running, str]:
    """Return a worker with one thread, and the id of the job that it runs."""
    worker = start_worker("--threads", "1")
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    wait_until(lambda: (tmp_path / "started").exists(), PATIENCE)
    return worker, job_id


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_lets_finish_what_runs_and_claims_nothing_more(
    database: Database, held: tuple[Running, str], tmp_path: Path, number: signal.Signals
) -> None:
    """After SIGTERM or Ctrl-C a worker finishes what it has begun, takes nothing new, and exits with 0."""
    worker, running = held
    later = database.enqueue(tasks.note, str(tmp_path / "noted"), "later")
    worker.signal(number)
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.result(running) == "go"
    assert (database.job(later)["state"], database.job(later)["claims"]) == ("READY", 0)
    assert not (tmp_path / "noted").exists()
    assert "done: 1 jobs;" in worker.lines("vtworker")[-1]
    assert database.workers() == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_an_idle_worker(database: Database, start_worker: Start, number: signal.Signals) -> None:
    """A worker with nothing to do ends at the first signal, exits with 0 and leaves nothing behind."""
    worker = start_worker()
    wait_until(database.workers, PATIENCE)
    worker.signal(number)
    assert worker.wait() == 0
    assert database.workers() == []
    assert list(Path(database.options["doorbells"]).iterdir()) == []


def assert_given_back(database: Database, worker: Running, job_id: str) -> None:
    job = database.job(job_id)
    assert (job["state"], job["worker_id"], job["attempts"], job["claims"]) == ("READY", "", 0, 1)
    [entry] = database.history(job_id)
    assert (entry["number"], entry["outcome"]) == (1, "released")
    assert job["visible_at"] - entry["ended"] == 1_000_000
    assert "gave back 1 job" in worker.log


@pytest.mark.parametrize("numbers", [SIGNALS, SIGNALS[::-1]])
def test_a_second_signal_gives_the_job_back_at_once(
    database: Database, start_worker: Start, held: tuple[Running, str], tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    """At the second signal the process is gone at once; its job is due a second later and has lost no attempt."""
    worker, job_id = held
    worker.signal(*numbers)
    assert worker.wait() == 0
    assert_given_back(database, worker, job_id)
    (tmp_path / "go").touch()
    start_worker()
    wait_until(lambda: database.succeeded(job_id), PATIENCE)
    assert (database.job(job_id)["attempts"], database.job(job_id)["claims"]) == (1, 2)
    wait_until(lambda: worker.pid not in [row["pid"] for row in database.workers()], PATIENCE)
    assert len((tmp_path / "started").read_text().split()) == 2


def test_shutdown_timeout_gives_back_what_still_runs(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """With --shutdown-timeout one signal is enough: what has not ended by then is given back."""
    worker = start_worker("--shutdown-timeout", "0.3")
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    wait_until(lambda: (tmp_path / "started").exists(), PATIENCE)
    assert worker.terminate() == 0
    assert_given_back(database, worker, job_id)


def test_what_ends_within_the_shutdown_timeout_is_kept(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """--shutdown-timeout is a limit, not a wait: a job that ends before it is settled, and the worker leaves then."""
    worker = start_worker("--shutdown-timeout", "1000")
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    wait_until(lambda: (tmp_path / "started").exists(), PATIENCE)
    worker.signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.result(job_id) == "go"


def test_a_signal_ends_a_worker_that_waits_for_its_tables(database: Database, start_worker: Start) -> None:
    """A worker that cannot begin yet can be stopped as well."""
    database.write("INSERT INTO django_migrations (app, name, applied) VALUES ('vtqueue', '9999_future', '2030-01-01')")
    worker = start_worker(ready=False)
    worker.wait_for("Waiting for it.")
    assert worker.terminate() == 0


@pytest.mark.skipif(not shutil.which("setsid"), reason="there is no setsid(1)")
@pytest.mark.parametrize("arguments", [(), ("--processes", "2")], ids=["threads", "processes"])
def test_ctrl_c_on_a_terminal(database: Database, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Ctrl-C reaches the worker and its children alike: the job is finished, the end is clean, nobody is left."""
    master, slave = os.openpty()
    command = ["setsid", "--ctty", *python(MANAGE, "vtworker", "--no-reload", *arguments)]
    worker = Running(command, environment(database), tmp_path / "log", stdin=slave)
    try:
        worker.wait_ready()
        job_id = database.enqueue(tasks.hold, str(tmp_path))
        child = int(
            wait_until(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text(), PATIENCE)
        )
        os.write(master, b"\x03")
        (tmp_path / "go").touch()
        assert worker.wait() == 0
    finally:
        worker.clean_up()
        os.close(master)
        os.close(slave)
    assert database.result(job_id) == "go"
    assert "done: 1 jobs;" in worker.lines("vtworker")[-1]
    assert not [word for word in ("Traceback", "KeyboardInterrupt", "ended with code") if word in worker.log]
    assert not Path(f"/proc/{child}").exists()
