"""Enqueueing from forked processes, threads and async code."""

import asyncio
import json
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from django_vtqueue.exceptions import TaskTimeout
from tests.conftest import ALIAS
from tests.project.tasks import add

from ..processes.database import Database
from ..processes.running import Start
from .inside import Bell, as_another_limit_begins, own_worker_id, time_limit


def in_child(work: Callable[[], object]) -> Callable[[], object]:
    """Fork, as a web server does, and do something in the child; return what waits for what came of it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(work()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writer)

    def wait() -> object:
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        assert os.waitpid(pid, 0)[1] == 0
        return json.loads(text)

    return wait


@pytest.fixture
def bell(database: Database) -> Iterator[Bell]:
    """Return the doorbell of a worker of this database."""
    bell = Bell(ALIAS, Path(database.options["doorbells"]))
    yield bell
    bell.close()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_forked_children_enqueue(database: Database, start_worker: Start) -> None:
    """Children of a process that has enqueued, and has closed its connections before the fork, as gunicorn's
    ``--preload`` wants it: each has ids, a worker id and a ringer of its own, and its jobs run."""
    start_worker()
    first = database.enqueue(add, 0, 0)
    mine = own_worker_id()
    connections.close_all()

    def work() -> object:
        return [own_worker_id(), [database.enqueue(add, os.getpid(), number) for number in range(50)]]

    children = [in_child(work) for _ in range(4)]
    results = [wait() for wait in children]
    names = {result[0] for result in results} | {mine}  # type: ignore[index]
    ids = [job_id for result in results for job_id in result[1]]  # type: ignore[index]
    assert len(names) == 5
    assert len(set(ids)) == 200
    database.wait_for(first, *ids)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_rings_and_keeps_time_by_itself(database: Database, bell: Bell) -> None:
    """Nothing that a forked child needs is left to a thread or a lock of its parent."""
    with time_limit(60):
        database.enqueue(add, 1, 2)
        connections.close_all()

        def work() -> object:
            database.enqueue(add, 1, 2)
            try:
                with time_limit(0.05):
                    while True:
                        pass
            except TaskTimeout:
                return "in time"

        with as_another_limit_begins():
            child = in_child(work)
    assert child() == "in time"
    assert bell.rings() == 2


def test_threads_enqueue(database: Database) -> None:
    """Eight threads at once: all jobs are there, once."""
    ids: list[str] = []

    def work() -> None:
        try:
            ids.extend(database.enqueue(add, number, 1) for number in range(50))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 400
    assert database.unfinished() == 400


def test_async_code_enqueues(database: Database, bell: Bell) -> None:
    """As an async view does; many at once."""

    async def view() -> int:
        results = await asyncio.gather(*(database.backend.aenqueue(add, (number, 1), {}) for number in range(20)))
        return len({result.id for result in results})

    assert async_to_sync(view)() == 20
    assert database.unfinished() == 20
    assert bell.rings() > 0
