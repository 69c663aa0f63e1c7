"""What dead processes leave on a disk: a proof of their death as long as that counts, at no cost for the living."""

import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.project import tasks

from ..waiting import PATIENCE, wait_until
from . import inside
from .database import Database
from .held import begin, executions
from .running import Start

MANY = 300

# Leaves as many bells as it is told, each of another owner.
DYING = """
import os, resource, signal, sys
import django
django.setup()
from tests.processes import inside
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
bells = inside.bells("default", sys.argv[1], int(sys.argv[2]))
assert all(bell.path for bell in bells)
os.kill(os.getpid(), signal.SIGKILL)
"""

WAITING = """
import django
django.setup()
from django_vtqueue import wait_for_result
from tests.project import tasks
wait_for_result(tasks.add.using(queue_name="of-nobody").enqueue(1, 2))
"""


@pytest.fixture
def left(database: Database, start: Start) -> set[Path]:
    """Return the bells that processes have left that were killed, of a database that was made anew meanwhile."""
    start("-c", DYING, database.options["doorbells"], str(MANY)).wait()
    found = database.bells()
    assert len(found) == MANY
    return found


def test_a_bell_of_the_dead_is_rung_once(database: Database, left: set[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again by the same process, and not by another one: publishing costs what it would without them."""
    rung, counts = inside.count_rings(monkeypatch), []
    with inside.listening(database):
        for _ in range(3):
            inside.ring(database)
            counts.append(rung())
            inside.forget_bells()  # as another process, or this one a second later
    assert counts == [MANY + 1, 1, 1]


def test_a_death_is_proven_after_publishers_have_rung(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A publisher that nobody answers takes no proof away: what a killed worker held goes on at once elsewhere."""
    database.options["visibility_timeout"] = 600
    killed = start_worker("--threads", "1")
    job_id = begin(database, tmp_path)
    killed.kill()
    for _ in range(3):
        database.enqueue(tasks.add, 1, 2)
        inside.forget_bells()
    start_worker()
    wait_until(lambda: len(executions(tmp_path)) == 2)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert database.outcomes(job_id) == ["worker died"]


def test_what_no_row_names_is_taken_away(database: Database, left: set[Path], start_worker: Start) -> None:
    """A worker removes the bells of the dead that prove nothing, however many there are; its own stays."""
    worker = start_worker()
    wait_until(lambda: not left & database.bells())
    [own] = wait_until(database.workers)
    assert database.bells() == {Path(own["doorbell"])}
    assert worker.terminate() == 0
    assert database.bells() == set()


def test_bells_of_other_databases_are_not_looked_at(database: Database, left: set[Path], tmp_path: Path) -> None:
    """A database has a folder of its own: what lies in those of others is not even listed."""
    assert {path.parent for path in left} == {inside.bells_of(database)}


def test_the_bell_of_a_waiter_whose_job_has_ended_is_taken_away(
    database: Database, start: Start, start_worker: Start, tmp_path: Path
) -> None:
    """A process that was killed while it waited leaves a bell: the next job that ends, whichever it is, removes it."""
    waiter = start("-c", WAITING)
    wait_until(lambda: database.bells())
    waiter.kill()
    start_worker("--queues", "default")
    database.wait_for(database.enqueue(tasks.add, 1, 2))
    [own] = database.workers()
    wait_until(lambda: database.bells() == {Path(own["doorbell"])})


def test_a_waiter_among_the_dead_is_woken(database: Database, start: Start, start_worker: Start) -> None:
    """However many have died waiting, who lives is woken by a bell."""
    start_worker("--queues", "default")
    inside.waiter(database, "0" * 32).close()
    place = inside.bells_of(database, waiters=True)
    for number in range(MANY):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
            bell.bind(f"{place}/{number:016}.0000")
    for _ in range(3):
        job_id = database.enqueue(tasks.add, 1, 2, run_after=timedelta(seconds=0.3))
        living = inside.waiter(database, job_id)
        began = time.monotonic()
        living.wait_for(PATIENCE)
        assert time.monotonic() - began < PATIENCE
        living.close()
