"""Locks of rows on PostgreSQL: which renewals pass over them, and which one stands in the line."""

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.conf import parse
from django_vtqueue.core.clock import from_instant
from django_vtqueue.engines import Engine, Trouble, new_engine
from django_vtqueue.models import Job, WorkerProcess
from django_vtqueue.queue.limits import Limits
from django_vtqueue.worker import deaths
from django_vtqueue.worker.deaths import settle_what_it_held
from tests.fake_clock import at

from ..waiting import PATIENCE, wait_until
from .projects import ServerProject, enqueue
from .test_postgresql import claim, publish

ROW = "SELECT 1 FROM vtqueue_job WHERE id = %s FOR UPDATE"
SHORT = 0.05  # seconds


@pytest.fixture
def engine(postgresql_database: str) -> Engine:
    """Return an engine as a control loop has it."""
    return new_engine(postgresql_database, traced=False)


@contextmanager
def locked(engine: Engine, job_id: str) -> Iterator[None]:
    """Hold the lock of a row, by another connection."""
    other = connections[engine.alias].copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(ROW, [job_id])
        yield
        other.rollback()
    finally:
        other.close()


def test_a_renewal_passes_over_locked_rows(engine: Engine) -> None:
    """It waits for none, renews the others, and tells what is locked from what is lost."""
    publish(engine, 3)
    free, held, lost = claim(engine, Limits(parse({})), "w", 3)
    lost.claims += 1
    with locked(engine, held.id), engine.transaction():
        assert engine.renew_unlocked([free, held, lost], at(10)) == ({lost.key}, [held])
    with engine.transaction():
        assert engine.renew_unlocked([held], at(20)) == (set(), [])
    leases = [found.visible_at for job in (free, held) if (found := engine.find(job.id))]
    assert leases == [at(70), at(80)]


def test_a_job_of_the_dead_that_is_locked_keeps_no_other_waiting(engine: Engine) -> None:
    """It stays with its dead worker for now; the others go on at once, and the worker is forgotten with the last."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": engine.alias}})
    publish(engine, 2)
    free, held = claim(engine, Limits(parse({})), "w", 2)
    now = from_instant(engine.now())
    rows = WorkerProcess.objects.using(engine.alias)
    row = rows.create(worker_id="w", host="h", pid=1, slots=1, started_at=now, heartbeat_at=now)
    with locked(engine, held.id), engine.lock_timeout(0.001):
        assert [ending.job.id for ending in settle_what_it_held(engine, backend, row)] == [free.id]
        assert (rows.get().went_on, rows.get().died_at, engine.held_by("w")) == (1, None, [held])
    assert [ending.job.id for ending in settle_what_it_held(engine, backend, row)] == [held.id]
    assert (rows.get().went_on, rows.get().died_at is None) == (2, False)


def test_what_is_locked_is_to_blame_all_the_same(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two jobs whose tasks are unknown the one that ran longer was over its time, though only the other one ends."""
    monkeypatch.setattr(deaths, "was_over_time", lambda bell: True)
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": engine.alias}})
    publish(engine, 2)
    long, brief = claim(engine, Limits(parse({})), "w", 2)
    now = from_instant(engine.now())
    jobs = Job.objects.using(engine.alias)
    jobs.filter(pk=brief.id).update(started_at=now)
    jobs.filter(pk=long.id).update(started_at=now - timedelta(seconds=30))
    rows = WorkerProcess.objects.using(engine.alias)
    row = rows.create(worker_id="w", host="h", pid=1, slots=1, started_at=now, heartbeat_at=now)
    with locked(engine, long.id):
        [released] = settle_what_it_held(engine, backend, row)
    assert (released.job.id, released.failure) == (brief.id, None)
    [timed_out] = settle_what_it_held(engine, backend, row)
    assert (timed_out.job.id, timed_out.failure is None) == (long.id, False)


def test_a_wait_in_the_line_has_an_end(engine: Engine) -> None:
    """A lock that stays is waited for as long as is said, and the next statement waits as usual."""
    publish(engine, 1)
    [job] = claim(engine, Limits(parse({})), "w", 1)
    with locked(engine, job.id):
        began = time.monotonic()
        with pytest.raises(OperationalError) as caught, engine.transaction():
            engine.wait_in_line(job, 4 * SHORT)
        assert time.monotonic() - began >= 4 * SHORT
        assert engine.trouble(caught.value) is Trouble.BUSY
    with connections[engine.alias].cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


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
                time.sleep(SHORT)
                other.commit()
        finally:
            other.close()

    with ThreadPoolExecutor(3) as pool:
        lockers = [pool.submit(lock_again_and_again) for _ in range(3)]
        try:
            with engine.transaction():
                engine.wait_in_line(job, PATIENCE)
                assert engine.renew_unlocked([job], at(10)) == (set(), [])
        finally:
            over.set()
    assert [locker.result() for locker in lockers] == [None] * 3
    found = engine.find(job.id)
    assert found
    assert found.visible_at == at(70)


HOLD = """
import time
from pathlib import Path
from django_vtqueue import task

@task
def hold():
    Path("runs").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""


def test_a_statement_timeout_is_waited_out(tmp_path: Path, migrated: dict[str, Any], engine: Engine) -> None:
    """A success is stored when the lock of its row is gone, though the project's statement_timeout is over before."""
    project = ServerProject(tmp_path, {**migrated, "OPTIONS": {"options": "-c statement_timeout=200"}}, tasks=HOLD)
    enqueue(engine.alias, task="shop.tasks.hold")
    job = Job.objects.using(engine.alias).get()
    with project.started("-m", "django", "vtworker") as worker:
        wait_until(lambda: (tmp_path / "runs").exists() or worker.ended())
        with locked(engine, job.id.hex):
            (tmp_path / "go").touch()
            wait_until(lambda: "waiting" in worker.log or "lost  " in worker.log or worker.ended())
        wait_until(lambda: "ok  " in worker.log or "lost  " in worker.log or worker.ended())
    job.refresh_from_db()
    assert (job.state, job.claims, job.attempts, job.history) == ("SUCCESSFUL", 1, 1, []), worker.log


WAITS_FOR_A_LOCK = """
from django.db import connection
from django_vtqueue import task

@task(transactional=True)
def waits():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(7)")

@task
def noop():
    pass
"""
STANDS_IN_LINE = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def rows(engine: Engine, statement: str) -> list[Any]:
    with connections[engine.alias].cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def test_the_server_goes_on_with_the_transaction_of_a_task_that_was_killed(
    tmp_path: Path, migrated: dict[str, Any], engine: Engine
) -> None:
    """As long as that waits for a lock, its own row is locked: the jobs of a worker that lives go on meanwhile."""
    enqueue(engine.alias, task="shop.tasks.waits")
    waiting = Job.objects.using(engine.alias).get()
    lock = connections[engine.alias].copy()
    with closing(lock), tempfile.TemporaryDirectory(prefix="vtq-") as doorbells:
        settings = f"TASKS['default']['OPTIONS']['doorbells'] = {doorbells!r}"
        project = ServerProject(tmp_path, migrated, settings, tasks=WAITS_FOR_A_LOCK)
        with lock.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(7)")
        with project.started("-m", "django", "vtworker", log="killed") as killed:
            wait_until(lambda: rows(engine, STANDS_IN_LINE) or killed.ended())
        with project.started("-m", "django", "vtworker") as worker:
            worker.wait_ready()
            for _ in range(30):  # some seconds, for a worker looks at the dead once a second
                enqueue(engine.alias)
                time.sleep(SHORT * 2)
            wait_until(lambda: worker.log.count("ok  ") == 30 or worker.ended())
            assert WorkerProcess.objects.using(engine.alias).filter(died_at=None).count() == 2
            lock.close()
            wait_until(lambda: worker.log.count("ok  ") == 31 or worker.ended())
    waiting.refresh_from_db()
    assert (waiting.state, waiting.claims) == ("SUCCESSFUL", 2), worker.log
