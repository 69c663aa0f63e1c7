"""What a worker does with the jobs that it holds when it is to end at once."""

import faulthandler
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core.job import HeldJob, Scope
from django_vtqueue.core.settlement import Settlement, succeeded
from django_vtqueue.engines import Engine
from django_vtqueue.execution.outcomes import Outcome
from django_vtqueue.models import Job
from django_vtqueue.queue.claims import Claims, collect
from django_vtqueue.worker import work as settling
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.loop import Worker
from django_vtqueue.worker.options import WorkerOptions
from django_vtqueue.worker.shared_state import Departure
from django_vtqueue.worker.shutdown import end_jobs
from tests.project import tasks
from tests.waiting import wait_until


class Held:
    """A worker that has claimed some jobs, and that has no loop: a test says what becomes of them."""

    def __init__(self, alias: str, count: int, **options: Any) -> None:
        backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": alias, **options}})
        self.log = WorkerLog()
        self.worker = Worker(backend, WorkerOptions(threads=1), self.log)
        self.engine = self.worker.engine
        for _ in range(count):
            backend.enqueue(tasks.add, (1, 2), {})
        with self.engine.transaction():
            taken = Claims(self.engine).claim([Scope(None, raw=False)], count, self.worker.id, self.engine.now())
        self.jobs = collect(self.engine, taken)
        self.worker.work.in_flight.add(self.jobs, [60.0] * count, ())

    def outcome(self, job: HeldJob, ttl: int | None = None) -> Outcome:
        return Outcome(job, succeeded(job, "3", self.engine.now(), ttl), None, None, 0.1)

    def finish(self, job: HeldJob, ttl: int | None = None) -> None:
        self.worker.read(self.outcome(job, ttl))


@contextmanager
def ending(held: Held) -> Iterator[None]:
    """Keep the process of the tests from ending with the worker."""
    held.worker.pool.start()
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        held.worker.bell.close()


def test_only_results_are_in_hand(sqlite_file: str) -> None:
    """They are stored, announced and counted, and no code may still run: the end is that of a worker without jobs."""
    held = Held(sqlite_file, 1)
    held.finish(*held.jobs)
    with ending(held):
        assert not end_jobs(held.worker.turns, held.worker.read_mail, owns_process=True)
    assert Job.objects.using(sqlite_file).get().state == "SUCCESSFUL"
    assert held.log.ended == 1
    assert not held.worker.work.in_flight


def test_a_job_that_ends_at_the_last_moment(sqlite_file: str) -> None:
    """What came while the lock was waited for is settled, not released."""
    held = Held(sqlite_file, 1)
    with ending(held):
        held.worker.mailbox.put(held.outcome(*held.jobs))
        assert not end_jobs(held.worker.turns, held.worker.read_mail, owns_process=True)
    assert Job.objects.using(sqlite_file).get().state == "SUCCESSFUL"


def test_in_the_process_of_a_caller_what_has_finished_is_settled(
    sqlite_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What had not begun is released, too; what runs goes on, and keeps its lease until that ends by itself."""
    held = Held(sqlite_file, 3)
    done, running, waiting = held.jobs
    running.begin(held.engine.now())
    held.worker.work.next_transactional = waiting
    with ending(held):
        held.worker.mailbox.put(held.outcome(done))
        held.worker.leave()
    rows = {row.id.hex: row for row in Job.objects.using(sqlite_file)}
    assert [rows[job.id].state for job in (done, running, waiting)] == ["SUCCESSFUL", "RUNNING", "READY"]
    assert rows[waiting.id].history == []
    assert "too slow" not in caplog.text  # nobody has waited for the announcements


def test_a_child_that_is_too_large_has_just_claimed(sqlite_file: str) -> None:
    """It runs its first job before it leaves, though no thread has taken that when the memory is looked at."""
    held = Held(sqlite_file, 1)
    shutdown, work = held.worker.shutdown, held.worker.work
    shutdown.options = WorkerOptions(threads=1, supervised=True, max_memory=1)
    work.jobs_started = 1
    work.pool.run(held.jobs)
    shutdown.watch_memory()
    assert shutdown.departure() is Departure.NONE
    with ending(held):
        wait_until(lambda: not work.pool.undispatched())
        shutdown.watch_memory()
        end_jobs(held.worker.turns, held.worker.read_mail, owns_process=False)
    assert shutdown.departure() is Departure.REPLACED


def test_a_lost_job_is_not_said_to_be_given_back(sqlite_file: str, caplog: pytest.LogCaptureFixture) -> None:
    """Another worker holds it now."""
    caplog.set_level(logging.INFO, "django_vtqueue")
    held = Held(sqlite_file, 1)
    Job.objects.using(sqlite_file).update(claims=2, worker_id="another")
    with ending(held):
        end_jobs(held.worker.turns, held.worker.read_mail, owns_process=True)
    assert "gave back" not in caplog.text


def test_what_is_settled_alone_is_known_to_be_settled(sqlite_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the database is locked after the first of two, the second one alone is settled by the next turn."""
    held = Held(sqlite_file, 2, result_ttl=0)
    for job in held.jobs:
        held.finish(job, 0)
    settle, calls = settling.settle, 0

    def settle_the_first(engine: Engine, settlements: list[Settlement]) -> set[Any]:
        nonlocal calls
        calls += 1
        if calls > 1:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise OperationalError(*error.args) from error
        return settle(engine, settlements)

    monkeypatch.setattr(settling, "settle", settle_the_first)
    with ending(held):
        held.worker.turns.recover(ValueError("a turn failed"))
        monkeypatch.undo()
        assert [outcome.job for outcome in held.worker.work.outcomes] == held.jobs[1:]
        with held.engine.transaction():
            assert held.worker.work.settle(held.worker.work.outcomes, in_doubt=False) == set()


def test_a_worker_that_is_told_to_stop_before_it_has_begun(alias: str) -> None:
    """A child whose supervisor stops while the child still starts claims nothing."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": alias}})
    backend.enqueue(tasks.add, (1, 2), {})
    worker = Worker(backend, WorkerOptions(threads=1, owns_process=False), WorkerLog())
    worker.stop()
    worker.run()
    assert Job.objects.using(alias).get().claims == 0
