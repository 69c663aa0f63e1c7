"""PostgreSQL: a transaction of a caller's own that stays open ends no lease of another job.

Each case has a queue, a worker and files of its own in one database, and waits in a thread of its own, so that their
locks are held side by side. One more worker, the rival, serves the queues of all cases: it takes each lease that ends.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connections, transaction
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from django_vtqueue import Queue, control, send_event
from django_vtqueue.models import Job
from tests.project import limited, tasks, transactional

from ..conftest import ALIAS, reached
from ..postgresql import Server
from ..processes.conftest import environment
from ..processes.database import Database
from ..processes.held import executions, lines
from ..processes.running import MANAGE, Running, python
from ..waiting import PATIENCE, wait_until
from .inside import Task

LEASE, LONG_LEASE = 3, 60  # seconds
LOCKED = 3 * LEASE  # seconds for which a lock is held
SHORT = 0.1  # seconds for which a short transaction holds a lock


class Case:
    """One case: its queue NAME has short leases, NAME-long has long ones; the rival does not serve NAME-own."""

    def __init__(self, database: Database, name: str, folder: Path, ready: threading.Barrier) -> None:
        self.database, self.name, self.folder, self.ready = database, name, folder / name, ready
        self.folder.mkdir()
        self.workers: list[Running] = []

    def start_worker(self, *arguments: str) -> Running:
        queues = f"{self.name},{self.name}-long,{self.name}-own"
        self.workers.append(start_worker(self.database, self.folder / "log", queues, "--threads", "6", *arguments))
        return self.workers[-1]

    def enqueue(self, task: Task, *args: Any, to: str = "") -> str:
        return self.database.enqueue(task.using(queue_name=f"{self.name}{to}"), *args)

    def begin(self, name: str, to: str = "") -> str:
        """Have a job begun that runs until it is told to end; return its id."""
        job_id = self.enqueue(tasks.hold, str(self.folder), f"{name}-", to=to)
        wait_until(lambda: executions(self.folder, f"{name}-"))
        return job_id

    def end(self, *names: str) -> None:
        for name in names:
            (self.folder / f"{name}-go").touch()

    @contextmanager
    def open(self, act: Callable[[], object], *, commit: bool = True) -> Iterator[None]:
        """Act in a transaction of another connection, which stays open for the block; wait for the other cases."""
        acted, over = threading.Event(), threading.Event()

        def run() -> None:
            try:
                with transaction.atomic(using=ALIAS):
                    act()
                    acted.set()
                    over.wait(PATIENCE)
                    transaction.set_rollback(not commit, using=ALIAS)
            finally:
                acted.set()
                connections.close_all()

        self.ready.wait(PATIENCE)
        with ThreadPoolExecutor(1) as pool:
            transacted = pool.submit(run)
            try:
                assert acted.wait(PATIENCE)
                assert not transacted.done() or transacted.result()
                yield
            finally:
                over.set()
            transacted.result()

    def check(self, **ids: str) -> None:
        """Have jobs end; check that each was claimed, and has begun, once."""
        self.end(*ids)
        self.database.wait_for(*ids.values())
        assert {name: self.database.job(job_id)["claims"] for name, job_id in ids.items()} == dict.fromkeys(ids, 1)
        assert {name: len(executions(self.folder, f"{name}-")) for name in ids} == dict.fromkeys(ids, 1)


def cancelling(job_id: str) -> Callable[[], object]:
    return lambda: control.cancel([UUID(job_id)], using=ALIAS)


def cancelled(case: Case) -> None:
    """A job that runs is cancelled; the worker has its lease and those of the others to renew."""
    case.start_worker()
    first, second, locked = case.begin("first"), case.begin("second"), case.begin("locked", to="-long")
    with case.open(cancelling(locked)):
        time.sleep(LOCKED)
    case.check(first=first, second=second, locked=locked)


def child_process(case: Case) -> None:
    """The same, for a worker that a supervisor looks after."""
    case.start_worker("--processes", "2")
    first, locked = case.begin("first"), case.begin("locked", to="-long")
    with case.open(lambda: send_event(UUID(locked), "paid", using=ALIAS)):
        time.sleep(LOCKED)
    case.check(first=first, locked=locked)


def ended(case: Case) -> None:
    """A job ends whose row is locked: the worker waits, with the leases of the others, to store that."""
    case.start_worker()
    first, second, locked = case.begin("first"), case.begin("second"), case.begin("locked", to="-long")
    with case.open(cancelling(locked)):
        case.end("locked")
        time.sleep(LOCKED)
        assert case.database.job(locked)["state"] == "RUNNING"
    case.check(first=first, second=second, locked=locked)


def short_locks(case: Case) -> None:
    """A row is locked by one short transaction after the other, and never free between them: it keeps its lease."""
    case.start_worker()
    first, locked = case.begin("first"), case.begin("locked")
    over = threading.Event()

    def lock() -> None:
        while not over.is_set():
            with transaction.atomic(using=ALIAS):
                assert Job.objects.using(ALIAS).select_for_update().filter(pk=locked).exists()
                over.wait(SHORT)
        connections.close_all()

    case.ready.wait(PATIENCE)
    with ThreadPoolExecutor(2) as pool:
        lockers = [pool.submit(lock) for _ in range(2)]
        try:
            time.sleep(LOCKED)
        finally:
            over.set()
        assert [locker.result() for locker in lockers] == [None, None]
    case.check(first=first, locked=locked)


def limit(case: Case) -> None:
    """A caller has claimed from a limited queue: the worker waits to claim from it."""
    case.start_worker()
    first, second = case.begin("first"), case.begin("second")
    limited_queue = Queue(f"{case.name}-own", using=ALIAS)
    limited_queue.publish("claimed by hand")
    with case.open(limited_queue.claim, commit=False):
        noted = str(case.folder / "waited")
        waiting = [case.enqueue(tasks.note, noted, str(number), to="-own") for number in range(3)]
        time.sleep(LOCKED)
        assert not lines(case.folder / "waited")
    case.database.wait_for(*waiting)
    assert sorted(lines(case.folder / "waited")) == ["0", "1", "2"]
    case.check(first=first, second=second)


def key(case: Case) -> None:
    """A waiting job is cancelled, which locks its concurrency key: the worker waits to store the ends of others."""
    case.start_worker()
    journal = str(case.folder / "journal")
    running = [case.enqueue(limited.two, journal, None, to="-own") for _ in range(2)]
    wait_until(lambda: lines(case.folder / "journal").count("start") == 2)
    first, waiting = case.begin("first"), case.enqueue(limited.two, journal, 0, to="-own")
    with case.open(cancelling(waiting)):
        (case.folder / "journal.go").touch()
        time.sleep(LOCKED)
    case.database.wait_for(*running)
    assert lines(case.folder / "journal").count("start") == 2
    case.check(first=first)


def transactional_task(case: Case) -> None:
    """The transaction of a task has its own row locked for as long as it runs: longer than a lease of another job."""
    case.start_worker()
    first = case.begin("first")
    case.ready.wait(PATIENCE)
    case.database.wait_for(case.enqueue(transactional.take_long, "long", 1.5 * LEASE, to="-long"))
    case.check(first=first)


CASES: dict[str, Callable[[Case], None]] = {
    case.__name__.replace("_", "-"): case
    for case in (cancelled, child_process, ended, short_locks, limit, key, transactional_task)
}


def start_worker(database: Database, log: Path, queues: str, *arguments: str) -> Running:
    command = python(MANAGE, "vtworker", "--no-reload", "--queues", queues, *arguments)
    worker = Running(command, environment(database), log)
    worker.wait_ready()
    return worker


@pytest.fixture(scope="module")
def outcomes(
    server: Server, migrated: dict[str, Any], django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, "Future[None]"]]:
    """Begin all cases; yield what becomes of each."""
    from ..processes.server_database import ServerDatabase

    with tempfile.TemporaryDirectory(prefix="vtq-") as name, django_db_blocker.unblock():
        database = ServerDatabase(server, Path(name), name)
        long = {f"{case}-long": {"visibility_timeout": LONG_LEASE} for case in CASES}
        database.options |= {
            "visibility_timeout": LEASE,
            "queue_options": {**long, "limit-own": {"concurrency": 50}},
        }
        backend = {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": []}
        backend["OPTIONS"] = {**database.options, "database": ALIAS}
        cases: list[Case] = []
        rivals: list[Running] = []

        def start_rival() -> None:
            queues = ",".join(f"{name},{name}-long" for name in CASES)
            rivals.append(start_worker(database, Path(name) / "rival", queues, "--threads", "40"))

        ready = threading.Barrier(len(CASES), start_rival)

        def run(case: Case) -> None:
            try:
                CASES[case.name](case)
            except BaseException as error:
                ready.abort()  # if others wait for this one
                error.add_note("\n".join(worker.log for worker in case.workers))
                raise
            finally:
                connections.close_all()

        with (
            database.copied(migrated["NAME"]),
            reached(database.settings("test")),
            override_settings(TASKS={"default": backend}),
            ThreadPoolExecutor(len(CASES)) as pool,
        ):
            cases += [Case(database, case, Path(name), ready) for case in CASES]
            try:
                begun = {case.name: pool.submit(run, case) for case in cases}
                yield begun
                for future in begun.values():
                    future.exception()
            finally:
                for worker in [*rivals, *(worker for case in cases for worker in case.workers)]:
                    worker.clean_up()


@pytest.mark.parametrize("case", CASES)
def test_a_lock_ends_no_lease(outcomes: dict[str, "Future[None]"], case: str) -> None:
    """See the function of the case. No job but the locked one is claimed again, and none is lost."""
    outcomes[case].result()
