"""What a test of ``vtqueue move`` has: two databases, with workers, moves and publishers."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connections
from django.db.models import QuerySet
from django.utils import timezone

from django_vtqueue.models import Job

from ..conftest import ALIAS
from ..project.durable import note_family
from ..project.tasks import note
from .database import Database
from .running import MANAGE, Running, Start

OTHER = "other"
ALIASES = {"default": ALIAS, OTHER: OTHER}  # of the processes; here
FAMILIES, LINES = 20, 5  # one of so many jobs is a durable task with children, which write so many lines
SCHEDULED = 2000  # jobs that wait for tomorrow, so that a move takes a while


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
