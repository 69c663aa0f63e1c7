"""``Queue.run`` in a process of its own."""

from pathlib import Path

import pytest

from django_vtqueue import Queue
from django_vtqueue.queue.doorbell import ring
from tests.project.forks import CODES

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import LOCKED, Database
from .held import lines
from .running import Running, Start


@pytest.fixture
def consumer(database: Database, start: Start, tmp_path: Path) -> Running:
    """Return a consumer of the queue ``raw``, which is not patient with locks, and has its bell."""
    process = start("-m", "tests.processes.consumer", str(tmp_path), VTQUEUE_TEST_TIMEOUT="0.5")
    wait_until(database.bells)
    return process


def publish(payload: str) -> str:
    return Queue("raw", using=ALIAS).publish(payload).hex


def test_a_locked_database_is_waited_out(database: Database, consumer: Running, tmp_path: Path) -> None:
    """A consumer that finds the database locked when it settles says so once, and settles later: nothing runs twice."""
    job_id = publish("held")
    wait_until((tmp_path / "held-1").exists)
    with database.locked():
        (tmp_path / "go").touch()
        database.wait_until_blocked(consumer)
        assert not consumer.ended()
    database.wait_for(job_id)
    assert not (tmp_path / "held-2").exists()
    assert consumer.log.count(LOCKED) <= 1


def test_the_bell_of_a_dead_consumer_is_removed(database: Database, consumer: Running) -> None:
    """No worker looks for it: a publisher that rings in vain takes it away."""
    consumer.kill()
    assert len(database.bells()) == 1

    def rung() -> bool:
        ring(ALIAS, database.options["doorbells"])
        return database.bells() == set()

    wait_until(rung)


def test_a_forked_process_that_leaves_the_handler_ends(database: Database, start: Start, tmp_path: Path) -> None:
    """However it does, it ends there: it settles nothing, and claims nothing more."""
    consumer = start("-m", "tests.processes.consumer", str(tmp_path), "tests.project.forks.handle")
    names = {f"{how}{number}": how for how in CODES for number in range(5)}
    ids = [publish(f"{how} {tmp_path / name}") for name, how in names.items()]
    database.wait_for(*ids)
    assert {name: lines(tmp_path / name) for name in names} == {name: [str(CODES[how])] for name, how in names.items()}
    assert all(database.history(job_id) == [] for job_id in ids)
    assert "lost" not in consumer.log
