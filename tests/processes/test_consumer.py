"""``Queue.run`` in a process of its own."""

import signal
from pathlib import Path

import pytest

from django_vtqueue import Queue
from tests.project.forks import CODES

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import LOCKED, Database
from .held import lines
from .inside import ring
from .running import Running, Start


@pytest.fixture
def consumer(database: Database, start: Start, tmp_path: Path) -> Running:
    """Return a consumer of the queue ``raw``, which is not patient with locks, and has its bell."""
    process = start("-m", "tests.processes.consumer", str(tmp_path), VTQUEUE_TEST_TIMEOUT="0.5")
    wait_until(database.bells)
    return process


# Ends at SIGTERM as the documentation shows it: by sys.exit, in a handler of each kind of callable.
ENDING = """
import functools, signal, sys
from pathlib import Path
import django
django.setup()
from django_vtqueue import Queue
from tests.project.tasks import wait_for_file
class Handlers:
    def method(self, *_):
        sys.exit(7)
    __call__ = method
def leave(code, *_):
    sys.exit(code)
signal.signal(signal.SIGTERM, {handler})
def handle(job):
    open(f"{{sys.argv[1]}}/{{job.payload}}-{{job.claim_number}}", "w").close()
    if job.payload == "exits":
        sys.exit(3)
    wait_for_file(Path(sys.argv[1], "go"))
Queue("raw", max_attempts=1).run(handle)
"""
HANDLERS = ["lambda *_: sys.exit(7)", "Handlers().method", "Handlers()", "functools.partial(leave, 7)"]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_signal_that_exits_gives_the_job_back(database: Database, start: Start, tmp_path: Path, handler: str) -> None:
    """The process ends with the code of the handler, and the job has all of its attempts."""
    job_id = Queue("raw", using=ALIAS, max_attempts=1).publish("held").hex
    consumer = start("-c", ENDING.format(handler=handler), str(tmp_path))
    wait_until((tmp_path / "held-1").exists)
    consumer.signal(signal.SIGTERM)
    assert consumer.wait() == 7, consumer.log
    row = database.job(job_id)
    assert (row["state"], row["attempts"], row["claims"]) == ("READY", 0, 1)


def test_a_job_that_exits_has_failed(database: Database, start: Start, tmp_path: Path) -> None:
    """Else it would end each consumer, and never use an attempt up; the consumer goes on."""
    queue = Queue("raw", using=ALIAS, max_attempts=1)
    job_id, other = (queue.publish(payload).hex for payload in ("exits", "held"))
    (tmp_path / "go").touch()
    consumer = start("-c", ENDING.format(handler=HANDLERS[0]), str(tmp_path))
    database.wait_for(other)
    assert not consumer.ended()
    assert [entry["exception_class"] for entry in database.history(job_id)] == ["builtins.SystemExit"]


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
        ring(database)
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
