"""Doorbells between processes: who publishes or settles wakes those who wait."""

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pytest_django import Settings

from django_vtqueue import ClaimedJob, Queue
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import PATIENCE, wait_until
from . import inside
from .database import Database
from .inside import NEVER_LOOKS
from .running import Start


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


def test_what_is_no_bell_is_left_alone(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Whatever path stands in a worker's row: only a socket among the bells of this database proves a death, and only
    such a one is removed.
    """
    bells = inside.bells_of(database)
    files = [tmp_path / "victim", bells / "victim"]
    dead = bells / "dead"
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


@pytest.mark.parametrize(("verb", "heard"), [("ack", True), ("release", True), ("nack", True), ("extend", False)])
def test_what_is_settled_without_a_worker_rings(database: Database, settings: Settings, verb: str, heard: bool) -> None:
    """If it has made another job of its key due, workers are woken."""
    database.options["queue_options"] = {"raw": {"concurrency": 1}}
    settings.TASKS = database.tasks
    queue = Queue("raw", using=ALIAS)
    queue.publish_many([1, 2], concurrency_key=["a", "a"])
    [job] = queue.claim_many(2)
    with inside.listening(database) as rung:
        getattr(job, verb)()
        assert rung.wait(PATIENCE if heard else 0.1) == heard


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
    settings.TASKS = database.tasks
    queue = Queue("raw", using=ALIAS)
    queue.publish(1)
    job = queue.claim()
    assert job
    with inside.listening(database) as rung:
        settle(job)
        assert rung.wait(PATIENCE if heard else 0.1) == heard


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
    inside.forget_ringer()  # as if it were the first to ring
    with no_descriptors():
        job_id = database.enqueue(tasks.add, 3, 4)
    assert database.job(job_id)["state"] == "READY"
    assert not inside.has_a_ringer()
