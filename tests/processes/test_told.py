"""What is told of jobs that child processes run: by the child that has run them, or by another if that one has died."""

import os
import shutil
import signal
from pathlib import Path

from tests.project import tasks

from ..waiting import wait_until
from .conftest import ROOT
from .database import Database
from .running import PATIENCE, Running, Start, children
from .test_children import lines
from .test_log import to_stderr

LOGGED = {"VTQUEUE_TEST_LOGGING": to_stderr("INFO")}  # the framework's log is a receiver of task_finished


def told(worker: Running, state: str) -> int:
    """Return how many jobs the worker, or a child of its, has said to have ended so."""
    return sum(f"state={state}" in line for line in worker.log.splitlines())


def test_a_success_that_could_not_be_stored_is_not_told(database: Database, start_worker: Start) -> None:
    """A job whose result its row refuses has failed, to be tried again: nobody hears that it has succeeded."""
    database.refuse("refused", "UPDATE ON vtqueue_job", "NEW.result = '13'", "no")
    refused, *stored = database.enqueue_many(tasks.add, [(6, 7), (1, 1), (2, 2)])
    worker = start_worker("--processes", "2", **LOGGED)
    wait_until(lambda: told(worker, "SUCCESSFUL") == 2 and database.job(refused)["attempts"] == 1, PATIENCE)
    assert worker.terminate() == 0
    assert told(worker, "SUCCESSFUL") == 2
    assert database.succeeded(*stored)
    assert [entry["message"] for entry in database.history(refused)] == ["The outcome could not be stored."]


def test_a_job_whose_row_refuses_each_end_is_not_run_again_at_once(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """With ``max_attempts=1`` its code runs once in a lease, though neither its result nor its burial can be stored.

    Nor does another such job, or a turn that fails after that, have it run again.
    """
    database.options["max_attempts"] = 1
    database.refuse("no_result", "UPDATE ON vtqueue_job", "NEW.result = 'null'", "no")
    database.refuse("no_burial", "INSERT ON vtqueue_deadletter", "true", "no")
    for name in "xy":
        database.enqueue(tasks.note, str(tmp_path / "runs"), name)
    worker = start_worker("--threads", "1")
    wait_until(lambda: worker.log.count("the database refuses each change to the row") == 2)
    database.wait_for(*(database.enqueue(tasks.add, number, 2) for number in range(3)))
    assert worker.log.count("the database refuses each change to the row") == 2
    assert sorted((tmp_path / "runs").read_text().split()) == ["x", "y"]


def test_a_death_is_told_when_there_is_a_child_again(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A job that dies with the last child, while the others are being replaced, is told of by one that comes next."""
    database.options["max_attempts"] = 1
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    worker = start_worker("--processes", "2", "--threads", "1", **LOGGED)
    wait_until(lambda: lines(tmp_path / "started"), PATIENCE)
    [busy] = map(int, lines(tmp_path / "started"))
    for child in [*(pid for pid in children(worker.pid) if pid != busy), busy]:
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: child not in children(worker.pid), PATIENCE)  # noqa: B023
    wait_until(lambda: database.letter(job_id) and told(worker, "FAILED") == 1, PATIENCE)
    assert worker.terminate() == 0
    assert told(worker, "FAILED") == 1


def test_a_child_of_another_version_is_refused(database: Database, start: Start, tmp_path: Path) -> None:
    """After an upgrade beside a running worker new children say so and end; those that are there go on."""
    package = tmp_path / "site" / "django_vtqueue"
    shutil.copytree(ROOT / "django_vtqueue", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in "ab":
        (tmp_path / name).mkdir()
    command = "-P", "-m", "django", "vtworker", "--no-reload", "--processes", "2", "--threads", "1"
    worker = start(*command, PYTHONPATH=os.pathsep.join([str(package.parent), str(ROOT)]))
    a, b = (database.enqueue(tasks.hold, str(tmp_path / name)) for name in "ab")
    wait_until(lambda: lines(tmp_path / "a" / "started") and lines(tmp_path / "b" / "started"), PATIENCE)
    init = package / "__init__.py"
    init.write_text(init.read_text().replace('__version__ = "', '__version__ = "1234.'))
    os.kill(int(lines(tmp_path / "a" / "started")[0]), signal.SIGKILL)
    worker.wait_for("is installed now: restart the worker")
    for name in "ab":
        (tmp_path / name / "go").touch()
    wait_until(lambda: database.succeeded(a, b), PATIENCE)
    assert (database.job(a)["attempts"], database.job(b)["attempts"]) == (2, 1)
    assert worker.terminate() == 0
