"""``Queue.run`` in a process of its own."""

from pathlib import Path

import pytest

from django_vtqueue import Queue
from django_vtqueue.queue.doorbell import ring
from tests.project.forks import CODES

from ..conftest import ALIAS
from ..waiting import wait_until
from .conftest import ROOT, Start
from .database import Database
from .running import PATIENCE, Running

CONSUMER = str(ROOT / "tests" / "processes" / "consumer.py")


@pytest.fixture
def consumer(database: Database, start: Start, tmp_path: Path) -> Running:
    """Return a consumer of the queue ``consumed``, which is not patient with locks, and has its bell."""
    process = start(CONSUMER, str(tmp_path), VTQUEUE_TEST_TIMEOUT="0.05")
    wait_until(lambda: bells(database), PATIENCE)
    return process


def bells(database: Database) -> list[Path]:
    return list(Path(database.options["doorbells"]).iterdir())


def publish(database: Database, payload: str) -> str:
    return Queue("consumed", using=ALIAS).publish(payload).hex


def test_a_locked_database_is_waited_out(database: Database, consumer: Running, tmp_path: Path) -> None:
    """A consumer that finds the database locked when it settles says so once, and settles later: nothing runs twice."""
    job_id = publish(database, "hold")
    wait_until(lambda: (tmp_path / "handled").exists(), PATIENCE)
    with database.locked():
        (tmp_path / "go").touch()
        consumer.wait_for("the database is locked by another process; waiting. Nothing is lost.")
        assert not consumer.ended()
    wait_until(lambda: database.succeeded(job_id), PATIENCE)
    assert (tmp_path / "handled").read_text() == "hold\n"
    assert consumer.log.count("Nothing is lost.") == 1


def test_the_bell_of_a_dead_consumer_is_removed(database: Database, consumer: Running) -> None:
    """Nobody else looks for it, so whoever rings in vain takes it away."""
    consumer.kill()
    assert len(bells(database)) == 1

    def rung() -> bool:
        ring(ALIAS, database.options["doorbells"])
        return bells(database) == []

    wait_until(rung, PATIENCE)


def test_a_forked_process_that_leaves_the_handler_ends(database: Database, consumer: Running, tmp_path: Path) -> None:
    """However it does, it ends there: it settles nothing, and claims nothing more."""
    forking = [publish(database, f"fork {how}") for how in CODES]
    others = [publish(database, f"{number}") for number in range(20)]
    wait_until(lambda: database.succeeded(*forking, *others), PATIENCE)
    assert {how: int((tmp_path / how).read_text()) for how in CODES} == CODES
    handled = (tmp_path / "handled").read_text().splitlines()
    assert sorted(handled) == sorted([*(f"fork {how}" for how in CODES), *map(str, range(20))])
    assert all(database.history(job_id) == [] for job_id in forking)
    assert "lost" not in consumer.log
