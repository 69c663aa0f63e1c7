"""``vtworker --reload``: a parent that watches the code, and a worker that it starts anew."""

import os
import signal
import time
from pathlib import Path

import pytest

from ..waiting import wait_until
from . import inside
from .conftest import ROOT
from .database import Database
from .held import begin, executions
from .running import Running, Start, is_ours

GRACE = 1.0  # seconds for which a job may run on after a change of the code
LONG_GRACE = pytest.mark.parametrize("grace", [60.0], ids=[""])  # one whose end is not waited for

TASKS = """
from django_vtqueue import task

@task
def answer():
    return {answer!r}
"""


class Code:
    """The tasks module of an app that a developer edits."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "edited" / "tasks.py"
        self.file.parent.mkdir()
        (self.file.parent / "__init__.py").touch()
        self.write("first")

    def write(self, answer: str) -> None:
        self.file.write_text(TASKS.format(answer=answer))


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code(tmp_path)


@pytest.fixture
def grace() -> float:
    return GRACE


@pytest.fixture
def options() -> tuple[str, ...]:
    return ()


@pytest.fixture
def parent(start_worker: Start, code: Code, tmp_path: Path, grace: float, options: tuple[str, ...]) -> Running:
    """Return a running ``vtworker --reload``, with a worker that is ready."""
    return start_worker(
        *options,
        reload=True,
        constants=inside.tuned(reload_look=0.2, reload_grace=grace),
        PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}",
        PYTHONDONTWRITEBYTECODE="1",  # a file that is changed twice in a second would be taken from there
        VTQUEUE_TEST_APPS="edited",
    )


def answer(database: Database) -> str:
    """Return what the edited task returns."""
    job_id = database.publish("edited.tasks.answer")
    database.wait_for(job_id)
    return str(database.result(job_id))


@LONG_GRACE
def test_a_change_restarts_the_worker_when_its_job_has_ended(
    database: Database, parent: Running, code: Code, tmp_path: Path
) -> None:
    """When code changes, what runs is finished by the old worker, and what comes next runs the new code."""
    assert answer(database) == "first"
    running = begin(database, tmp_path)
    code.write("the second")
    parent.wait_for("tasks.py changed; restarting")
    (tmp_path / "go").touch()
    parent.wait_ready(times=2)
    assert answer(database) == "the second"
    job = database.job(running)
    assert (job["state"], job["claims"], job["history"]) == ("SUCCESSFUL", 1, "[]")


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["threads", "processes"])
def test_people_see_a_worker_all_the_time(
    database: Database, parent: Running, code: Code, options: tuple[str, ...]
) -> None:
    """While the worker starts anew nobody is told that there is none, and afterwards there is one of them."""
    count = 2 if options else 1
    wait_until(lambda: len(database.workers()) == count)
    before = {row["worker_id"] for row in database.workers()}
    seen: list[set[str]] = []

    def replaced() -> bool:
        seen.append({row["worker_id"] for row in database.workers()})
        return len(seen[-1]) == count and not seen[-1] & before and not any(":reload" in each for each in seen[-1])

    code.write("the second")
    wait_until(replaced)
    assert all(seen)
    assert answer(database) == "the second"


def test_a_job_that_does_not_end_is_given_back(database: Database, parent: Running, code: Code, tmp_path: Path) -> None:
    """A job that runs on after a change of the code is given back, without loss of an attempt, and begun anew."""
    running = begin(database, tmp_path)
    code.write("the second")
    wait_until(lambda: len(executions(tmp_path)) == 2)
    (tmp_path / "go").touch()
    database.wait_for(running)
    assert database.outcomes(running) == ["released"]
    assert (database.job(running)["attempts"], database.job(running)["claims"]) == (1, 2)


def test_a_mistake_in_the_code_is_waited_out(database: Database, parent: Running, code: Code) -> None:
    """Code that cannot be imported leaves the parent waiting; the next change starts a worker again."""
    text = code.file.read_text()
    code.file.write_text("def answer(:")
    parent.wait_for("waiting for a change of the code")
    assert "SyntaxError" in parent.log
    assert not parent.ended()
    code.file.write_text(text.replace("first", "mended"))
    parent.wait_ready(times=2)
    assert answer(database) == "mended"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_ends_both(
    database: Database, parent: Running, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGTERM and Ctrl-C go on to the worker, which finishes its job first; both exit with 0.

    The time that a job has after a change of the code does not limit a stop by a signal.
    """
    worker = parent.wait_ready()
    running = begin(database, tmp_path)
    parent.signal(number)
    stopped = time.monotonic()
    wait_until(lambda: parent.ended() or time.monotonic() > stopped + GRACE + 0.5)
    (tmp_path / "go").touch()
    assert parent.wait() == 0
    assert not is_ours(worker)
    assert (database.succeeded(running), database.history(running)) == (True, [])


def test_a_signal_ends_a_parent_that_waits_for_a_change(database: Database, parent: Running, code: Code) -> None:
    """A parent whose worker could not be started can be stopped as well."""
    code.file.write_text("def answer(:")
    parent.wait_for("waiting for a change of the code")
    parent.signal(signal.SIGTERM)
    assert parent.wait() == 1


def test_a_worker_does_not_outlive_its_parent(database: Database, parent: Running) -> None:
    """When the parent is killed its worker stops by itself, as after a signal."""
    worker = parent.wait_ready()
    parent.kill()
    wait_until(lambda: not is_ours(worker))
    assert f":{worker} done: 0 attempts" in parent.log
    assert database.workers() == []


def test_a_killed_worker_is_started_again(database: Database, parent: Running) -> None:
    """A worker that is killed (by the system, for its memory) is replaced, without a change of the code."""
    os.kill(parent.wait_ready(), signal.SIGKILL)
    parent.wait_for("the worker was killed by signal 9; restarting")
    parent.wait_ready(times=2)
    assert answer(database) == "first"
