"""vtworker as process 1, as in a container: that one has no default signal actions, and is every orphan's parent."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.project import tasks

from ..waiting import wait_until
from .conftest import environment
from .database import Database
from .held import begin
from .running import MANAGE, Running, children, python

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
CHILDREN = [(), ("--processes", "2")]
in_threads_and_children = pytest.mark.parametrize("arguments", CHILDREN, ids=["threads", "processes"])


def why_not() -> str:
    """Return why no process namespace can be made on this system; "" if it does."""
    if not shutil.which("unshare"):
        return "there is no unshare(1)"
    done = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"no process namespace can be made: {why_not()}")


class Container:
    """A worker that is process 1 of its own namespace, seen from outside."""

    def __init__(self, running: Running) -> None:
        self.running = running

    @property
    def pid(self) -> int:
        """The worker's process id outside, where it is not 1."""
        [pid] = children(self.running.pid)
        return pid

    def zombies(self) -> int:
        states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in children(self.pid)]
        return states.count("Z")

    def stop(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


StartContainer = Callable[..., Container]


@pytest.fixture
def start_container(database: Database, tmp_path: Path) -> Iterator[StartContainer]:
    """Return a function that starts a worker as process 1; it is killed with the test."""
    started: list[Running] = []

    def start_container(*arguments: str) -> Container:
        command = [*UNSHARE, *python(MANAGE, "vtworker", "--no-reload", *arguments)]
        started.append(Running(command, environment(database), tmp_path / "log"))
        assert started[-1].wait_ready() == 1
        return Container(started[-1])

    yield start_container
    for running in started:
        if not running.ended():
            running.kill()  # --kill-child: the namespace goes with it


@pytest.mark.parametrize(("arguments", "number"), [(CHILDREN[0], signal.SIGTERM), (CHILDREN[1], signal.SIGINT)])
def test_process_one_stops_gracefully(
    database: Database,
    start_container: StartContainer,
    tmp_path: Path,
    arguments: tuple[str, ...],
    number: signal.Signals,
) -> None:
    """A signal from outside is obeyed: the running job is finished, the exit code is 0, and nothing is left behind."""
    worker = start_container(*arguments)
    job_id = begin(database, tmp_path)
    worker.stop(number)
    (tmp_path / "go").touch()
    assert worker.running.wait() == 0
    assert database.succeeded(job_id)
    assert database.workers() == []


@in_threads_and_children
def test_orphans_of_process_one(
    database: Database, start_container: StartContainer, arguments: tuple[str, ...]
) -> None:
    """What tasks leave running becomes process 1's child. Ended, it stays a zombie, which does the worker no harm.

    Only the task's own code could tell an orphan from a program that the task still waits for.
    """
    worker = start_container(*arguments)
    job_ids = [database.enqueue(tasks.leave_orphans, 20) for _ in range(5)]
    database.wait_for(*job_ids)
    wait_until(lambda: worker.zombies() == 100)
    again = database.enqueue(tasks.ignored_signals)
    database.wait_for(again)
    worker.stop(signal.SIGTERM)
    assert worker.running.wait() == 0
    assert "Traceback" not in worker.running.log
