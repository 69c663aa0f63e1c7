"""Doorbells between processes: a ring wakes, and a refusing bell proves a death."""

import errno
import os
import resource
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from pytest_django import Settings

from django_vtqueue import ClaimedJob, Queue
from django_vtqueue.queue import doorbell, proof_of_death
from django_vtqueue.queue.doorbell import Doorbell, _found, _sender, folder_of, ring
from django_vtqueue.queue.proof_of_death import proves_death
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import PATIENCE, wait_until
from .conftest import NEVER_LOOKS
from .database import Database
from .running import Running, Start

OWNER = """
import sys, time
import django
django.setup()
from pathlib import Path
from django_vtqueue.queue.doorbell import Doorbell
bell = Doorbell("default", Path(sys.argv[1]), "owner")
bell.listen(lambda asked: print("rung", flush=True))
print(bell.path, flush=True)
time.sleep(600)
"""


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open no more files or sockets; those that are open stay."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (1, usual[1])
    )  # with 0 there is no poll() either, by which psycopg waits
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


@pytest.fixture
def owner(database: Database, start: Start) -> tuple[Running, str]:
    """Return another process, and the path of the bell that it listens at."""
    process = start("-c", OWNER, database.options["doorbells"])
    wait_until(lambda: process.log.endswith("\n") or process.ended())
    return process, process.log.strip()


def test_a_ring_reaches_the_bell_of_another_process(database: Database, owner: tuple[Running, str]) -> None:
    """A publisher into a database file wakes the processes that wait at its bells, by the file's name alone.

    Ringing at a process that is stopped, far more often than its socket holds, neither blocks nor raises, and wakes it.
    """
    process, path = owner
    assert Path(path).exists()
    ring(ALIAS, database.options["doorbells"])
    process.wait_for("rung")
    process.stop()
    for _ in range(1000):
        ring(ALIAS, database.options["doorbells"])
    process.go_on()
    wait_until(lambda: process.log.count("rung") > 1)


def test_only_a_refusing_bell_proves_a_death(owner: tuple[Running, str], tmp_path: Path) -> None:
    """Alive, stopped and full prove nothing, nor does a bell that is not there; one that a killed process left does."""
    process, path = owner
    proves = partial(proves_death, alias=ALIAS, folder=Path(path).parent.parent)
    assert not proves(path)
    process.stop()
    assert not proves(path)
    process.go_on()
    assert not proves("")
    assert not proves(f"{path}-of-nobody")
    assert not proves(str(tmp_path / ("too long" * 30)))
    process.kill()
    assert proves(path)
    assert not proves_death(path, ALIAS, tmp_path)


def test_what_is_no_bell_is_left_alone(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Whatever path stands in a worker's row: only a socket among the bells of this database proves a death, and only
    such a one is removed.
    """
    bells_of = Path(database.options["doorbells"])
    files = [tmp_path / "victim", bells_of / doorbell.name_of(ALIAS) / "victim"]
    dead = bells_of / doorbell.name_of(ALIAS) / "dead"
    dead.parent.mkdir(exist_ok=True)
    for file in files:
        file.touch()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_behind:
        left_behind.bind(str(dead))
    for path in (*files, dead):
        database.add_worker(str(path), time.time_ns() // 1000, str(path))
    start_worker()
    wait_until(lambda: not dead.exists())
    assert all(file.exists() for file in files)
    assert len(database.workers()) == 3


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vtq-") as folder:
        yield Path(folder)


def test_a_closed_bell_is_gone_and_its_listener_ends(database: Database, folder: Path) -> None:
    """Closing takes the socket out of the folder and ends the thread that waited at it."""
    before = set(threading.enumerate())
    bell = Doorbell(ALIAS, folder, "own")
    bell.listen(lambda asked: None)
    [listener] = set(threading.enumerate()) - before
    bell.close()
    listener.join(PATIENCE)
    assert not listener.is_alive()
    assert not any(path.is_socket() for path in folder.rglob("*"))
    assert not proves_death(bell.path, ALIAS, folder)


@pytest.fixture
def default_timeout(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Return a function that sets what a project may set for all sockets: how long they wait."""
    _sender.cache_clear()
    yield socket.setdefaulttimeout
    socket.setdefaulttimeout(None)
    _sender.cache_clear()


def test_a_bell_is_heard_whatever_timeout_sockets_have(
    database: Database, folder: Path, default_timeout: Callable[[float], None]
) -> None:
    """The end of such a timeout is not the end of the bell."""
    default_timeout(0.01)
    rung = threading.Event()
    bell = Doorbell(ALIAS, folder, "own")
    bell.listen(lambda asked: rung.set())
    began = time.monotonic()
    wait_until(lambda: time.monotonic() > began + 0.1)
    ring(ALIAS, str(folder))
    assert rung.wait(PATIENCE)
    bell.close()


@pytest.mark.parametrize(("verb", "heard"), [("ack", True), ("release", True), ("nack", True), ("extend", False)])
def test_what_is_settled_without_a_worker_rings(database: Database, settings: Settings, verb: str, heard: bool) -> None:
    """If it has made another job of its key due, workers are woken."""
    database.options["queue_options"] = {"raw": {"concurrency": 1}}
    backend = {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": []}
    settings.TASKS = {"default": backend | {"OPTIONS": {**database.options, "database": ALIAS}}}
    queue = Queue("raw", using=ALIAS)
    queue.publish_many([1, 2], concurrency_key=["a", "a"])
    [job] = queue.claim_many(2)
    rung = threading.Event()
    bell = Doorbell(ALIAS, folder_of(database.options["doorbells"]), "own")
    bell.listen(lambda asked: rung.set())
    _found.clear()
    getattr(job, verb)()
    assert rung.wait(PATIENCE if heard else 0.1) == heard
    bell.close()


@pytest.mark.parametrize(
    ("settle", "heard"),
    [
        (lambda job: job.nack(), True),
        (lambda job: job.nack(delay=3600), False),
        (lambda job: job.release(), True),
        (lambda job: job.release(0), True),
        (lambda job: job.release(3600), False),
        (lambda job: job.ack(), False),
    ],
)
def test_what_is_due_again_at_once_rings(
    database: Database, settings: Settings, settle: Callable[[ClaimedJob], None], heard: bool
) -> None:
    """A job that is given back wakes workers if it is due now, and only then."""
    backend = {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": []}
    settings.TASKS = {"default": backend | {"OPTIONS": {**database.options, "database": ALIAS}}}
    queue = Queue("raw", using=ALIAS)
    queue.publish(1)
    job = queue.claim()
    assert job
    rung = threading.Event()
    bell = Doorbell(ALIAS, folder_of(database.options["doorbells"]), "own")
    bell.listen(lambda asked: rung.set())
    _found.clear()
    settle(job)
    assert rung.wait(PATIENCE if heard else 0.1) == heard
    bell.close()


def test_to_ring_never_waits(database: Database, folder: Path, default_timeout: Callable[[float], None]) -> None:
    """Not at a bell that is full, for its owner is stopped: with the timeout of all sockets this would take hours."""
    default_timeout(PATIENCE)
    bell = Doorbell(ALIAS, folder, "own")
    for _ in range(1000):
        ring(ALIAS, str(folder))
        bell.ring()
    bell.close()


def test_without_a_temporary_folder_there_is_no_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the file system may be read-only, in a container say: nothing depends on bells."""

    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert folder_of(None) == Path(f"/tmp/vtqueue-{os.getuid()}")


def test_the_folder_is_made_whatever_the_umask_is(database: Database, folder: Path) -> None:
    """Its owner may enter it, and no one else."""
    before = os.umask(0o177)
    try:
        bell = Doorbell(ALIAS, folder / "bells", "own")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "bells").stat().st_mode) == 0o700
    bell.close()


def test_a_folder_of_others_is_not_used(database: Database, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that others may enter is refused, in words: there they could ring, or put sockets of their own."""
    folder.chmod(0o755)
    assert Doorbell(ALIAS, folder, "own").path == ""
    assert "is not this user's own with mode 0700" in caplog.text
    assert list(folder.iterdir()) == []


def test_a_publisher_wakes_an_idle_worker(database: Database, start_worker: Start) -> None:
    """A worker that would look by itself in an hour only gets a job at once: it was woken by its bell."""
    start_worker(constants=NEVER_LOOKS)
    for _ in range(3):
        job_id = database.enqueue(tasks.add, 1, 2)
        database.wait_for(job_id)


def test_a_publisher_that_cannot_ring_is_noticed(database: Database, start_worker: Start) -> None:
    """A job that came without a ring (another machine, another container) is found by the next look."""
    start_worker()
    database.options["doorbells"] = "/nonexistent"
    job_id = database.enqueue(tasks.add, 1, 2)
    database.wait_for(job_id)


def test_who_cannot_ring_has_published(database: Database) -> None:
    """An error after the commit would have the caller publish once more."""
    database.enqueue(tasks.add, 1, 2)
    doorbell._sender.cache_clear()  # as if it were the first to ring
    with no_descriptors():
        job_id = database.enqueue(tasks.add, 3, 4)
    assert database.job(job_id)["state"] == "READY"
    assert doorbell._sender.cache_info().currsize == 0


def test_the_bell_of_a_killed_worker_says_why(doorbells: str) -> None:
    """A mark that its job was over its time limit outlives the bell; where no bell can lie, nothing is raised."""
    path = Path(doorbells) / "bell"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(str(path))
        assert not proof_of_death.was_over_time(str(path))
        proof_of_death.mark_over_time(path)
        proof_of_death.declare_dead(path)
        assert proof_of_death.was_over_time(str(path))
        with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringer:
            ringer.connect(str(path))
    nowhere = Path(doorbells) / ("x" * 300)
    proof_of_death.mark_over_time(nowhere)
    proof_of_death.declare_dead(nowhere)
    assert not proof_of_death.was_over_time(str(nowhere))
