"""``vtqueue move`` between databases at work: workers on both sides, publishers, and moves that are killed.

``VTQUEUE_MOVES``: how many of them are killed each way.
"""

import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.models import QuerySet
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from django_vtqueue import Lease
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core import clock
from django_vtqueue.core.clock import SECOND
from django_vtqueue.models import DeadLetter, Job

from ..conftest import ALIAS, empty_tables, reached
from ..project.durable import note_family
from ..project.tasks import enqueue_note_amid, note
from ..waiting import wait_until
from .conftest import MANAGE, Start
from .database import Database
from .instance import terms
from .running import Running

OTHER = "other"
ALIASES = {"default": ALIAS, OTHER: OTHER}  # of the processes; here
ROUNDS = int(os.environ.get("VTQUEUE_MOVES", "3"))
FAMILIES, LINES = 20, 5  # one of so many jobs is a durable task with children, which write so many lines
SCHEDULED = 2000  # jobs that wait for tomorrow, so that a move takes a while


@pytest.fixture(params=["sqlite", "postgresql"])
def other(
    request: pytest.FixtureRequest,
    database: Database,
    empty_file: Path,
    tmp_path: Path,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[dict[str, Any]]:
    """Return the settings of an empty database beside that of the test, which is reached by an alias meanwhile."""
    if request.param == "sqlite":
        shutil.copy(empty_file, tmp_path / "other.sqlite3")
        given = {"NAME": str(tmp_path / "other.sqlite3")}
    else:
        given = request.getfixturevalue("migrated")
    with django_db_blocker.unblock(), reached(given, OTHER):
        if request.param == "postgresql":
            empty_tables(OTHER)
        yield given


class Sides:
    """Starts what works on either side."""

    def __init__(self, start: Start, start_worker: Start, database: Database, other: dict[str, Any]) -> None:
        self.start, self.start_worker, self.database = start, start_worker, database
        self.both = {"VTQUEUE_TEST_OTHER": json.dumps(other)}

    def worker(self, alias: str) -> Running:
        options = json.dumps({**self.database.options, "database": alias})
        return self.start_worker("--threads", "2", **self.both, VTQUEUE_TEST_OPTIONS=options)

    def move(self, source: str, target: str, *options: str) -> Running:
        return self.start(MANAGE, "vtqueue", "move", "--from", source, "--to", target, *options, **self.both)


@pytest.fixture
def sides(start: Start, start_worker: Start, database: Database, other: dict[str, Any]) -> Sides:
    return Sides(start, start_worker, database, other)


@contextmanager
def publishing(database: Database, path: Path) -> Iterator[Callable[[], int]]:
    """Publish without end from another thread, each job with a text of its own; yield how many lines there will be."""
    number, stop = 0, threading.Event()

    def publish() -> None:
        nonlocal number
        while not stop.wait(0.005):
            database.enqueue(note, str(path), f"live {number}")
            if number % FAMILIES == 0:
                database.enqueue(note_family, str(path), f"family {number}")
            number += 1
        connections.close_all()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield lambda: number + LINES * -(-number // FAMILIES)
    finally:
        stop.set()
        thread.join()


def for_tomorrow(database: Database) -> set[str]:
    """Publish many jobs that wait; return their ids."""
    tomorrow = note.using(run_after=timezone.now() + timedelta(days=1))
    return set(database.enqueue_many(tomorrow, [("-", "tomorrow")] * SCHEDULED))


def told(path: Path) -> Counter[str]:
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def unfinished(alias: str) -> "QuerySet[Job]":
    return Job.objects.using(alias).filter(finished_at=None).exclude(queue_name__startswith="move:")


def waiting(alias: str) -> list[str]:
    return [pk.hex for pk in unfinished(alias).values_list("pk", flat=True)]


def cut_off_amid(move: Running, source: str, target: str, chance: random.Random) -> None:
    """Kill a move at some moment after its first batch has arrived, or when there is little left to move."""
    before = unfinished(target).count()
    wait_until(
        lambda: unfinished(target).count() > before + 100 or unfinished(source).count() < 100 or move.ended(),
        every=0.005,
    )
    time.sleep(chance.uniform(0, 0.2))
    move.kill()


def test_killed_at_any_moment(sides: Sides, database: Database, other: dict[str, Any], tmp_path: Path) -> None:
    """Whenever moves are killed, there and back: each job is run once, and each that waits is there once.

    Workers of both sides run, and jobs are published, all the time; some have children, which are run in order.
    """
    path, chance = tmp_path / "told", random.Random(7)
    scheduled = for_tomorrow(database)
    workers = [sides.worker("default"), sides.worker(OTHER)]
    with publishing(database, path) as published:
        for source, target in (("default", OTHER), (OTHER, "default")):
            for _ in range(ROUNDS):
                move = sides.move(source, target, "--wait")
                cut_off_amid(move, ALIASES[source], ALIASES[target], chance)
            last = sides.move(source, target)
            assert last.wait() == 0, last.log
            assert "Moved " in last.log
            assert not scheduled.intersection(waiting(ALIASES[source]))
    wait_until(lambda: len(told(path)) == published())
    assert set(told(path).values()) == {1}
    wait_until(lambda: Counter([*waiting(ALIAS), *waiting(OTHER)]) == Counter(scheduled))
    assert not any(DeadLetter.objects.using(alias).exists() for alias in (ALIAS, OTHER))
    for worker in workers:
        assert worker.terminate() == 0, worker.log


def test_two_moves_at_once(sides: Sides, database: Database, other: dict[str, Any]) -> None:
    """Several moves of the same databases share the work: each job arrives once, and nothing of their way is left."""
    scheduled = for_tomorrow(database)
    moves = [sides.move("default", OTHER) for _ in range(3)]
    ends = [move.wait() for move in moves]
    assert 0 in ends, [move.log for move in moves]
    assert all(
        end == 0 or "Another run of this move has ended" in move.log for end, move in zip(ends, moves, strict=True)
    )
    last = sides.move("default", OTHER)
    assert last.wait() == 0, last.log
    assert sorted(waiting(OTHER)) == sorted(scheduled)
    assert not Job.objects.using(ALIAS).exists()


def test_wait(sides: Sides, database: Database, other: dict[str, Any], tmp_path: Path) -> None:
    """With ``--wait`` a move ends when nothing is left: it waits for what runs, and for leases of dead holders to end.

    So what a killed worker has held runs on the other side.
    """
    path = tmp_path / "told"
    held = database.enqueue(note, str(path), "held")
    database.write(
        "UPDATE vtqueue_job SET state = 'RUNNING', worker_id = 'gone:1:ab', claims = 1, attempts = 1,"
        " lease_us = 3000000, lease_until = ? WHERE id = ?",
        *(clock.now() + 2 * SECOND, held),
    )
    move = sides.move("default", OTHER, "--wait")
    assert move.wait() == 0, move.log
    assert not Job.objects.using(ALIAS).exists()
    sides.worker(OTHER)
    wait_until(lambda: told(path) == {"held": 1})


def test_a_leader_that_was_killed(sides: Sides, database: Database, other: dict[str, Any], tmp_path: Path) -> None:
    """Its row goes at once, for its death is proven; in the target the tokens go on."""
    leader = sides.start("-m", "tests.processes.instance", "import", "30", str(tmp_path / "terms"))
    wait_until(lambda: bool(terms(tmp_path / "terms")))
    leader.kill()
    move = sides.move("default", OTHER)
    assert move.wait() == 0, move.log
    assert "left" not in move.log
    with Lease("import", using=OTHER) as lease:
        assert lease.token == 2


def test_interrupted(sides: Sides, database: Database, other: dict[str, Any]) -> None:
    """Ctrl-C ends a move with one sentence, and no traceback; the same command goes on."""
    database.enqueue(note, "-", "held")
    database.write(
        "UPDATE vtqueue_job SET state = 'RUNNING', worker_id = 'a', claims = 1, lease_until = 1000000000000000000"
    )
    waits = database.enqueue(note.using(run_after=timezone.now() + timedelta(days=1)), "-", "waits")
    move = sides.move("default", OTHER, "--wait")
    wait_until(lambda: waiting(OTHER) == [waits])
    move.signal(signal.SIGINT)
    assert move.wait() == 130
    assert move.log == ("CommandError: Interrupted. What was moved stays moved; run the same command again to go on.\n")


def test_a_database_of_its_own(sides: Sides, database: Database, other: dict[str, Any], tmp_path: Path) -> None:
    """A worker serves a queue beside the default database; its task enqueues in a block there, after the commit."""
    path = tmp_path / "told"
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {**database.options, "database": OTHER}})
    backend.enqueue(enqueue_note_amid, (str(path), "then"), {})
    sides.worker(OTHER)
    wait_until(lambda: told(path) == {"not yet": 1, "then": 1})
    assert path.read_text().splitlines() == ["not yet", "then"]
    assert not Job.objects.using(ALIAS).exists()
