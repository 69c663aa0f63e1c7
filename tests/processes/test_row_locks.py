"""PostgreSQL: a transaction of a caller's own that stays open holds up what it has locked, and nothing else.

Each case has queues, a worker and files of its own in one database, and waits in a thread of its own, so that their
locks are held side by side. One more worker, the rival, serves queues of all cases: it takes each lease that ends.
"""

import signal
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
from django_vtqueue.tasks.compat import Task
from tests.project import durable, limited, tasks, writers

from ..conftest import ALIAS, reached
from ..postgresql import Server
from ..waiting import PATIENCE, PROMPT, wait_until
from .conftest import MANAGE, environment
from .database import Database
from .held import executions, lines
from .running import Running, python

LEASE, LONG_LEASE = 3, 60  # seconds
LOCKED = 3 * LEASE + 1  # seconds for which a lock is held
SOON = 2 * LEASE  # seconds, on a busy machine: what waits for the lock takes longer
PACE = 0.25  # seconds between two jobs that are published meanwhile
SHORT = 0.1  # seconds for which a short transaction holds a lock


class Site:
    """The database, the workers of all cases, and the moment at which all of them begin to lock."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self.folder = database, folder
        self.workers: list[Running] = []
        self.prepared = threading.Barrier(len(CASES), self.start_rival)

    def start_worker(self, name: str, queues: str, *arguments: str) -> Running:
        command = python(MANAGE, "vtworker", "--no-reload", "--queues", queues, *arguments)
        worker = Running(command, environment(self.database), self.folder / f"log-{name}")
        self.workers.append(worker)
        worker.wait_ready()
        return worker

    def start_rival(self) -> None:
        self.start_worker("rival", ",".join(f"{name},{name}-long" for name in CASES), "--threads", "40")


class Case:
    """One case. Of its queues the rival serves NAME and NAME-long, whose leases are long, but not NAME-own."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.database, self.name = site, site.database, name
        self.folder = site.folder / name
        self.folder.mkdir()
        self.published = 0

    def start_worker(self, *arguments: str, name: str = "") -> Running:
        queues = f"{self.name},{self.name}-long,{self.name}-own"
        return self.site.start_worker(f"{self.name}{name}", queues, *(arguments or ("--threads", "6")))

    def enqueue(self, task: Task, *args: Any, to: str = "") -> str:
        return self.database.enqueue(task.using(queue_name=f"{self.name}{to}"), *args)

    def begin(self, name: str, to: str = "") -> str:
        """Have a job begun that runs until it is told to end; return its id."""
        job_id = self.enqueue(tasks.hold, str(self.folder), f"{name}-", to=to)
        wait_until(lambda: executions(self.folder, f"{name}-"))
        return job_id

    def end(self, name: str) -> None:
        (self.folder / f"{name}-go").touch()

    def started(self, name: str) -> int:
        return len(executions(self.folder, f"{name}-"))

    def claims(self, job_id: str) -> int:
        return int(self.database.job(job_id)["claims"])

    @contextmanager
    def open(self, act: Callable[[], object], *, commit: bool = True) -> Iterator[None]:
        """Act in a transaction of another connection, which stays open for the block."""
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

        with ThreadPoolExecutor(1) as pool:
            transacted = pool.submit(run)
            try:
                assert acted.wait(PATIENCE)
                assert not transacted.done() or transacted.result()
                yield
            finally:
                over.set()
            transacted.result()

    def go_on(self, seconds: float = LOCKED) -> None:
        """For so many seconds publish jobs for this worker alone; each is done at once."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.published += 1
            job_id = self.enqueue(tasks.note, str(self.folder / "noted"), str(self.published), to="-own")
            wait_until(lambda job_id=job_id: self.database.succeeded(job_id), timeout=SOON)  # type: ignore[misc]
            time.sleep(PACE)

    def check(self) -> None:
        """Check that each job that was published meanwhile has run once."""
        assert lines(self.folder / "noted") == [str(number + 1) for number in range(self.published)]


def cancelling(job_id: str) -> Callable[[], object]:
    return lambda: control.cancel([UUID(job_id)], using=ALIAS)


def running(case: Case) -> None:
    """Running jobs are locked: one is cancelled, one has that taken back, and one is sent an event."""
    worker = case.start_worker()
    first, second, *locked = [
        *(case.begin(name) for name in ("first", "second")),
        *(case.begin(f"locked-{number}", to="-long") for number in range(3)),
    ]
    case.site.prepared.wait(PATIENCE)
    with (
        case.open(cancelling(locked[0])),
        case.open(cancelling(locked[1]), commit=False),
        case.open(lambda: send_event(UUID(locked[2]), "paid", using=ALIAS)),
    ):
        case.go_on(LEASE)
        case.end("first")
        for number in range(3):
            case.end(f"locked-{number}")
        wait_until(lambda: case.database.succeeded(first), timeout=SOON)
        case.go_on(LOCKED - LEASE)
        assert {case.database.job(job_id)["state"] for job_id in locked} == {"RUNNING"}
    wait_until(lambda: case.database.succeeded(*locked), timeout=PROMPT)
    case.end("second")
    case.database.wait_for(second)
    assert [bool(case.database.job(job_id)["cancelled_at"]) for job_id in locked] == [True, False, False]
    assert {case.claims(job_id) for job_id in (first, second, *locked)} == {1}
    assert {case.started(name) for name in ("first", "second", "locked-0", "locked-1", "locked-2")} == {1}
    case.check()
    assert "Traceback" not in worker.log
    assert "waiting" not in worker.log


def no_heartbeat(case: Case) -> None:
    """A running job is locked whose lease is not renewed, so that no renewal finds it."""
    case.start_worker()
    first, locked = case.begin("first"), case.begin("locked", to="-long")
    case.site.prepared.wait(PATIENCE)
    with case.open(cancelling(locked)):
        case.end("locked")
        case.go_on()
        case.end("first")
        wait_until(lambda: case.database.succeeded(first), timeout=SOON)
        assert case.database.job(locked)["state"] == "RUNNING"
    case.database.wait_for(locked)
    assert [case.claims(job_id) for job_id in (first, locked)] == [1, 1]
    assert [case.started(name) for name in ("first", "locked")] == [1, 1]
    case.check()


def beyond_its_lease(case: Case) -> None:
    """A job is locked for longer than its own lease: it may run again, but it ends once, and no other job suffers."""
    case.start_worker()
    first, locked = case.begin("first"), case.begin("locked")
    case.site.prepared.wait(PATIENCE)
    with case.open(cancelling(locked), commit=False):
        case.go_on()
    case.end("locked")
    case.end("first")
    case.database.wait_for(first, locked)
    assert (case.started("first"), case.claims(first)) == (1, 1)
    assert case.started("locked") <= 2
    case.check()


def short_locks(case: Case) -> None:
    """A running job is locked by one short transaction after the other, never free between them: it keeps its lease."""
    case.start_worker()
    first, locked = case.begin("first"), case.begin("locked")
    case.site.prepared.wait(PATIENCE)
    over = threading.Event()

    def lock() -> None:
        while not over.is_set():
            with transaction.atomic(using=ALIAS):
                assert Job.objects.using(ALIAS).select_for_update().filter(pk=locked).exists()
                over.wait(SHORT)
        connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        lockers = [pool.submit(lock) for _ in range(2)]
        try:
            case.go_on()
            case.end("locked")
            wait_until(lambda: case.database.succeeded(locked))
        finally:
            over.set()
        assert [locker.result() for locker in lockers] == [None, None]
    case.end("first")
    case.database.wait_for(first)
    assert [case.claims(job_id) for job_id in (first, locked)] == [1, 1]
    assert [case.started(name) for name in ("first", "locked")] == [1, 1]
    case.check()


def limit(case: Case) -> None:
    """A caller has claimed from a limited queue: its other jobs wait, and none else."""
    case.start_worker()
    first = case.begin("first", to="-own")
    Queue(case.name, using=ALIAS).publish("claimed by hand")
    case.site.prepared.wait(PATIENCE)
    with case.open(Queue(case.name, using=ALIAS).claim):
        waiting = [case.enqueue(tasks.note, str(case.folder / "waited"), str(number)) for number in range(3)]
        case.go_on()
        assert not lines(case.folder / "waited")
    case.database.wait_for(*waiting)
    case.end("first")
    case.database.wait_for(first)
    assert sorted(lines(case.folder / "waited")) == ["0", "1", "2"]
    assert (case.started("first"), case.claims(first)) == (1, 1)
    case.check()


def key(case: Case) -> None:
    """A job that waits is cancelled, which locks its concurrency key: only what ends of that key is stored later."""
    case.start_worker()
    journal = str(case.folder / "journal")
    running = [case.enqueue(limited.two, journal, None) for _ in range(2)]
    wait_until(lambda: lines(case.folder / "journal").count("start") == 2)
    first, waiting = case.begin("first"), case.enqueue(limited.two, journal, 0)
    case.site.prepared.wait(PATIENCE)
    with case.open(cancelling(waiting)):
        (case.folder / "journal.go").touch()
        case.go_on()
        case.end("first")
        wait_until(lambda: case.database.succeeded(first), timeout=SOON)
    case.database.wait_for(*running)
    assert case.database.letter(waiting)
    assert [case.claims(job_id) for job_id in (first, *running)] == [1, 1, 1]
    assert lines(case.folder / "journal").count("start") == 2
    case.check()


def parent(case: Case) -> None:
    """An event is sent to a job that waits for its child: only the end of that child is stored later."""
    case.start_worker()
    first = case.begin("first")
    waiting = case.enqueue(durable.wait_for_child, str(case.folder), f"{case.name}-long")
    wait_until(lambda: case.started("child") and case.database.job(waiting)["state"] == "READY")
    case.site.prepared.wait(PATIENCE)
    with case.open(lambda: send_event(UUID(waiting), "paid", using=ALIAS)):
        case.end("child")
        case.go_on()
        case.end("first")
        wait_until(lambda: case.database.succeeded(first), timeout=SOON)
        assert case.database.rows(UNFINISHED, f"{case.name}-long")[0][0] == 1
    case.database.wait_for(waiting)
    assert [case.started(name) for name in ("first", "child")] == [1, 1]
    case.check()


def transactional_task(case: Case) -> None:
    """Of transactional jobs that wait for their turn one is locked: the others have theirs."""
    case.start_worker()
    first = case.begin("first")
    running = case.enqueue(writers.hold, str(case.folder), to="-own")
    wait_until(lambda: executions(case.folder))
    locked, behind = [case.enqueue(writers.append, f"{case.name} {n}", to="-long") for n in range(2)]
    wait_until(lambda: [case.database.job(job_id)["state"] for job_id in (locked, behind)] == ["RUNNING"] * 2)
    case.site.prepared.wait(PATIENCE)
    with case.open(cancelling(locked), commit=False):
        case.go_on(LOCKED - LEASE)
        (case.folder / "go").touch()
        case.database.wait_for(running)
        wait_until(lambda: case.database.succeeded(behind), timeout=SOON)
        case.go_on(LEASE)
    case.end("first")
    case.database.wait_for(first, locked)
    made = case.database.rows("SELECT name FROM project_effect WHERE name LIKE ?", f"{case.name} %")
    assert sorted(row["name"] for row in made) == [f"{case.name} 0", f"{case.name} 1"]
    assert [case.claims(job_id) for job_id in (first, running, behind)] == [1, 1, 1]
    assert len(executions(case.folder)) == 1
    case.check()


def claimed_ahead(case: Case) -> None:
    """A job is locked that waits in the worker for a free slot: those around it are done, and it is, after that."""
    case.start_worker("--threads", "2")
    noted, count = case.folder / "ahead", 1500
    first = case.begin("first")
    call = tasks.note.using(queue_name=f"{case.name}-long")
    case.database.enqueue_many(call, [(str(noted), str(number)) for number in range(count)])
    locked: list[Any] = []

    def lock() -> None:
        with connections[ALIAS].cursor() as cursor:
            while not locked:
                cursor.execute(AHEAD, [call.queue_name])
                locked.extend(cursor.fetchall())

    with case.open(lock):
        [[job_id]] = locked
        case.site.prepared.wait(PATIENCE)
        wait_until(lambda: case.database.rows(UNFINISHED, call.queue_name)[0][0] == 1, every=0.5)
        case.go_on()
        assert case.database.rows(UNFINISHED, call.queue_name)[0][0] == 1
    case.database.wait_for(job_id.hex)
    case.end("first")
    case.database.wait_for(first)
    assert sorted(lines(noted), key=int) == [str(number) for number in range(count)]
    assert (case.started("first"), case.claims(first)) == (1, 1)
    case.check()


AHEAD = """
SELECT id FROM vtqueue_job WHERE queue_name = %s AND state = 'RUNNING' AND attempts = 0
LIMIT 1 FOR UPDATE SKIP LOCKED"""
UNFINISHED = "SELECT count(*) FROM vtqueue_job WHERE queue_name = ? AND finished_at IS NULL"


def several_workers(case: Case) -> None:
    """Rows of several workers are locked by one transaction: each of them goes on with the rest."""
    jobs: dict[str, str] = {}
    for number in range(2):
        case.start_worker("--threads", "2", name=str(number))
        jobs |= {f"{number}": case.begin(f"{number}"), f"{number}-locked": case.begin(f"{number}-locked", to="-long")}
    locked = [jobs[name] for name in jobs if "locked" in name]
    assert len({case.database.job(job_id)["worker_id"] for job_id in jobs.values()}) == 2
    case.site.prepared.wait(PATIENCE)
    with case.open(lambda: control.cancel(list(map(UUID, locked)), using=ALIAS)):
        for name in jobs:
            if "locked" in name:
                case.end(name)
        time.sleep(LOCKED)
        assert {case.database.job(job_id)["state"] for job_id in jobs.values()} == {"RUNNING"}
    case.database.wait_for(*locked)
    for name in jobs:
        case.end(name)
    case.database.wait_for(*jobs.values())
    assert {(case.started(name), case.claims(job_id)) for name, job_id in jobs.items()} == {(1, 1)}


def stopped(case: Case) -> None:
    """A worker that is told to stop ends its other jobs, and waits for the lock with what is left."""
    worker = case.start_worker()
    first, locked = case.begin("first"), case.begin("locked", to="-long")
    case.site.prepared.wait(PATIENCE)
    with case.open(cancelling(locked)):
        worker.signal(signal.SIGTERM)
        time.sleep(LOCKED - LEASE)
        case.end("locked")
        case.end("first")
        wait_until(lambda: case.database.succeeded(first), timeout=SOON)
        time.sleep(LEASE)
        assert not worker.ended()
    assert worker.wait() == 0
    assert case.database.succeeded(locked)
    assert [case.claims(job_id) for job_id in (first, locked)] == [1, 1]
    assert [case.started(name) for name in ("first", "locked")] == [1, 1]
    assert "Traceback" not in worker.log


def stopped_in_time(case: Case) -> None:
    """A worker with no time left gives its other jobs back; the locked one goes on elsewhere, after the lock."""
    worker = case.start_worker("--threads", "6", "--shutdown-timeout", "1")
    first, locked = case.begin("first"), case.begin("locked", to="-long")
    case.site.prepared.wait(PATIENCE)
    with case.open(cancelling(locked), commit=False):
        time.sleep(LEASE)
        worker.signal(signal.SIGTERM)
        worker.wait()
        wait_until(lambda: case.started("first") == 2, timeout=PROMPT)
        assert case.database.outcomes(first) == ["released"]
        time.sleep(LOCKED - LEASE)
        assert case.started("locked") == 1
    wait_until(lambda: case.started("locked") == 2)
    case.end("locked")
    case.end("first")
    case.database.wait_for(first, locked)
    assert [case.claims(job_id) for job_id in (first, locked)] == [2, 2]


CASES: dict[str, Callable[[Case], None]] = {
    case.__name__.replace("_", "-"): case
    for case in (running, no_heartbeat, beyond_its_lease, short_locks, limit, key, parent, transactional_task,
                 claimed_ahead, several_workers, stopped, stopped_in_time)
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(
    server: Server, migrated: dict[str, Any], django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, "Future[None]"]]:
    """Begin all cases; yield what becomes of each."""
    from .server_database import ServerDatabase

    with tempfile.TemporaryDirectory(prefix="vtq-") as name, django_db_blocker.unblock():
        database = ServerDatabase(server, Path(name), name)
        long: dict[str, dict[str, Any]] = {f"{case}-long": {"visibility_timeout": LONG_LEASE} for case in CASES}
        database.options |= {"visibility_timeout": LEASE, "task_modules": ["tests.project.writers"]}
        long["no-heartbeat-long"]["heartbeat"] = False
        database.options["queue_options"] = {**long, "limit": {"concurrency": 50}}
        backend = {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": []}
        backend["OPTIONS"] = {**database.options, "database": ALIAS}

        def run(case: str) -> None:
            try:
                CASES[case](Case(site, case))
            except BaseException as error:
                site.prepared.abort()  # if others wait for this one
                error.add_note("\n".join(worker.log for worker in site.workers if f"log-{case}" in str(worker._log)))
                raise
            finally:
                connections.close_all()

        with (
            database.copied(migrated["NAME"]),
            reached(database.settings("test")),
            override_settings(TASKS={"default": backend}),
            ThreadPoolExecutor(len(CASES)) as pool,
        ):
            site = Site(database, Path(name))
            try:
                begun = {case: pool.submit(run, case) for case in CASES}
                yield begun
                for future in begun.values():
                    future.exception()
            finally:
                for worker in site.workers:
                    worker.clean_up()


@pytest.mark.parametrize("case", CASES)
def test_an_open_transaction_holds_up_only_what_it_has_locked(outcomes: dict[str, "Future[None]"], case: str) -> None:
    """See the function of the case. Each other job starts once, goes on meanwhile, and none is lost."""
    outcomes[case].result()
