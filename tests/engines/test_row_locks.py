"""Locks of rows on PostgreSQL: what passes over them, and what waits for them, and for how long."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from pytest_django import Settings

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.conf import parse
from django_vtqueue.core.clock import SECOND, from_instant
from django_vtqueue.core.gaps import NOTICEABLE, GapWatch
from django_vtqueue.engines import Engine, Trouble, new_engine
from django_vtqueue.engines.postgresql import connection
from django_vtqueue.models import Job, Schedule, WorkerProcess
from django_vtqueue.queue.doorbell import folder_of, path_of
from django_vtqueue.queue.limits import Limits
from django_vtqueue.worker.deaths import OtherWorkers
from django_vtqueue.worker.leases import renewed_in_line
from django_vtqueue.worker.recurring import Recurring
from tests.conftest import reached
from tests.fake_clock import at
from tests.project import tasks

from .test_postgresql import claim, publish

PATIENCE = 0.2  # seconds
ROW = "SELECT 1 FROM vtqueue_job WHERE id = %s FOR UPDATE"


@pytest.fixture
def engine(postgresql_database: str) -> Engine:
    """Return an engine as a control loop has it."""
    engine = new_engine(postgresql_database, traced=False)
    engine.patience = PATIENCE
    return engine


@contextmanager
def locked(engine: Engine, statement: str, *values: Any) -> Iterator[BaseDatabaseWrapper]:
    """Hold what a statement locks, by another connection."""
    other = connections[engine.alias].copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(statement, values)
        yield other
        other.rollback()
    finally:
        other.close()


def test_a_renewal_stands_in_the_line(engine: Engine) -> None:
    """A row that others lock one after the other, never free between them, is renewed when its turn has come."""
    publish(engine, 1)
    [job] = claim(engine, Limits(parse({})), "w", 1)
    over = threading.Event()

    def lock_again_and_again() -> None:
        other = connections[engine.alias].copy()
        try:
            other.set_autocommit(False)
            while not over.is_set():
                with other.cursor() as cursor:
                    cursor.execute(ROW, [job.id])
                time.sleep(PATIENCE / 4)
                other.commit()
        finally:
            other.close()

    with ThreadPoolExecutor(3) as pool:
        lockers = [pool.submit(lock_again_and_again) for _ in range(3)]
        try:
            engine.patience = 100.0
            assert renewed_in_line(engine, job)
        finally:
            over.set()
    assert [locker.result() for locker in lockers] == [None] * 3


def test_a_wait_in_the_line_has_an_end(engine: Engine) -> None:
    """A lock that stays is waited for as long as the patience lasts; the job is not lost."""
    publish(engine, 1)
    [job] = claim(engine, Limits(parse({})), "w", 1)
    with locked(engine, ROW, job.id):
        assert not renewed_in_line(engine, job)
    assert renewed_in_line(engine, job)


def test_a_renewal_passes_over_locked_rows(engine: Engine) -> None:
    """It waits for none, renews the others, and tells what is locked from what is lost."""
    publish(engine, 3)
    free, held, lost = claim(engine, Limits(parse({})), "w", 3)
    lost.claims += 1
    with locked(engine, ROW, held.id), engine.transaction():
        assert engine.renew_unlocked([free, held, lost], at(10)) == ({lost.key}, {held.key})
    with engine.transaction():
        assert engine.renew_unlocked([held], at(20)) == (set(), set())
    leases = [found.visible_at for job in (free, held) if (found := engine.find(job.id))]
    assert leases == [at(70), at(80)]


def test_a_lock_is_waited_for_in_vain(engine: Engine) -> None:
    """A transaction of a control loop waits for as long as it is patient; the error is no outage of the server."""
    publish(engine, 1)
    [job] = claim(engine, Limits(parse({})), "w", 1)
    with locked(engine, ROW, job.id):
        began = time.monotonic()
        with pytest.raises(OperationalError) as caught, engine.transaction():
            engine.renew([job], at(10))
        assert time.monotonic() - began >= PATIENCE
        assert engine.waited_in_vain(caught.value)
        assert engine.trouble(caught.value) is Trouble.BUSY
        assert not engine.table_is_locked()
    assert not engine.waited_in_vain(ValueError())


@pytest.mark.parametrize("patience", [None, PATIENCE])
def test_a_transaction_says_once_how_long_it_waits(engine: Engine, patience: float | None) -> None:
    """There is one statement for this before those of the queue; it holds for the transaction only."""
    engine.patience = patience
    statements: list[str] = []

    def note(execute: Any, sql: str, *given: Any) -> Any:
        statements.append(sql)
        return execute(sql, *given)

    def lock_timeout() -> Any:
        with connections[engine.alias].cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            return cursor.fetchone()[0]

    with connections[engine.alias].execute_wrapper(note), engine.transaction():
        assert lock_timeout() == ("200ms" if patience else "0")
    assert len(statements) == 2
    assert lock_timeout() == "0"


def test_a_lock_of_the_whole_table_is_told_apart(engine: Engine) -> None:
    """While it lasts no holder can renew, so it is an outage, and a claim waits for its end before all else."""
    with locked(engine, "LOCK TABLE vtqueue_job IN EXCLUSIVE MODE"):
        assert engine.table_is_locked()
        with pytest.raises(OperationalError), engine.transaction():
            engine.await_table()
    assert not engine.table_is_locked()
    with engine.transaction():
        engine.await_table()


def test_the_limits_that_others_have_locked(engine: Engine) -> None:
    """A claim that does not wait learns which they are, and has locked the others."""
    other = new_engine(engine.alias, traced=False)
    with locked(engine, "SELECT pg_advisory_xact_lock(hashtextextended('a', 7190003))"), engine.transaction():
        assert engine.locked_queues(["a", "b"], ["queue:a"]) == {"a"}
    with locked(engine, "SELECT pg_advisory_xact_lock(hashtextextended('queue:a', 7190002))"), other.transaction():
        assert other.locked_queues(["a", "b"], ["queue:a"]) == {"queue:a"}


def test_a_wait_in_vain_is_no_gap() -> None:
    """Whoever claims does not take the time for one in which no holder could renew."""
    gaps = GapWatch()
    gaps.look(time.time_ns() // 1000)
    time.sleep(PATIENCE)
    gaps.locked_in_vain(PATIENCE)
    assert gaps.look(time.time_ns() // 1000) < NOTICEABLE


def test_a_server_that_gives_no_answer_is_seldom_asked_for_its_clock(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control loop needs the instant dozens of times a turn, and each try to connect takes seconds."""
    engine.now()
    known = connection._measured[engine.alias]
    monkeypatch.setitem(connection._measured, engine.alias, known._replace(at=known.at - 2 * connection.LOOK_OF_WORKER))
    with TemporaryDirectory(prefix="vtq-") as folder, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(Path(folder) / ".s.PGSQL.5432"))
        silent.listen()
        silent.settimeout(0.1)
        dead = {**connections[engine.alias].settings_dict, "HOST": folder, "OPTIONS": {"connect_timeout": 2}}
        with reached(dead, "silent"):
            cut_off = new_engine("silent", traced=False)
            monkeypatch.setitem(connection._measured, "silent", connection._measured[engine.alias])
            instants = [cut_off.now() for _ in range(3)]
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()
    assert instants[-1] - instants[0] < SECOND


@pytest.fixture
def backend(engine: Engine, settings: Settings) -> VTQueueBackend:
    options = {"database": engine.alias}
    settings.TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": options}}
    backend = tasks.add.get_backend()
    assert isinstance(backend, VTQueueBackend)
    return backend


def test_a_locked_schedule_holds_up_no_other(engine: Engine, backend: VTQueueBackend) -> None:
    """The others publish what is due; it does so, too, when the lock is gone."""
    given = {"task_path": tasks.add.module_path, "expression": "every 60", "payload": {"args": [1, 2], "kwargs": {}}}
    for number in range(3):
        row = Schedule(name=f"s{number}", **given, next_at=from_instant(engine.now() - SECOND + number))
        row.save(using=engine.alias)
    worker = WorkerProcess(worker_id="w", host="web", pid=1, slots=1)
    part = Recurring(engine, backend, worker)
    published = Job.objects.using(engine.alias)
    with locked(engine, "SELECT 1 FROM vtqueue_schedule WHERE name = 's0' FOR UPDATE"):
        part.keep()
        assert published.count() == 2
    part.forget()
    part.keep()
    assert published.count() == 3


def test_a_locked_job_of_a_dead_worker_holds_up_no_other_dead_worker(engine: Engine, backend: VTQueueBackend) -> None:
    """What the others held is settled at once; the locked one's, when the lock is gone."""
    folder = folder_of(backend.settings.doorbells)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = {}
    for name in ("a", "b", "c"):
        publish(engine, 1, tasks.add.module_path)
        [held[name]] = claim(engine, Limits(parse({})), name, 1)
        bell = path_of(engine.alias, folder, name)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_behind:
            left_behind.bind(str(bell))
        now = from_instant(engine.now())
        row = WorkerProcess(worker_id=name, host="web", pid=1, slots=1, started_at=now, heartbeat_at=now)
        row.doorbell = str(bell)
        row.save(using=engine.alias)
    others = OtherWorkers(engine, backend, "me")
    with locked(engine, ROW, held["a"].id):
        assert {ending.job.worker_id for ending in others.settle_for_the_dead()} == {"b", "c"}
    assert [ending.job.worker_id for ending in others.settle_for_the_dead()] == ["a"]
