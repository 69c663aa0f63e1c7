"""What the control loop and the thread of a job do in the same instant."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core.clock import NEVER
from django_vtqueue.execution.time_limits import TransactionBegun, TransactionWaits
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.loop import Worker
from django_vtqueue.worker.options import WorkerOptions
from tests.project import tasks

from ..runtime.test_timeouts import PATIENCE, held_job

TIMES = 1000


@pytest.fixture
def worker(transactional_db: None) -> Iterator[Worker]:
    """Return a worker that does not run; the test does what its threads do."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"hard_timeout": 5}})
    worker = Worker(backend, WorkerOptions(threads=1), WorkerLog())
    yield worker
    worker.bell.close()


@contextmanager
def repeated(do: Callable[[], None]) -> Iterator[threading.Barrier]:
    """Do something in another thread, each time from one passing of the barrier to the next."""
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def work() -> None:
        for _ in range(TIMES):
            barrier.wait()
            do()
            barrier.wait()

    thread = threading.Thread(target=work)
    thread.start()
    yield barrier
    thread.join(PATIENCE)


def test_an_attempt_is_counted_once(worker: Worker, restless: None) -> None:
    """Also where a worker that leaves finds a job which its thread is about to begin."""
    jobs = [held_job(tasks.add) for _ in range(TIMES)]
    for job in jobs:
        job.started_at, job.attempts = None, 0
    there, here = iter(jobs), iter(jobs)
    with repeated(lambda: worker.pool.begin(next(there))) as barrier:
        for job in here:
            barrier.wait()
            worker.pool.begin(job)
            barrier.wait()
    assert {job.attempts for job in jobs} == {1}


def test_the_supervisor_knows_the_time_limit_that_a_job_has_now(worker: Worker, restless: None) -> None:
    """The loop does not write over it what it has read a moment before: the task may keep the interpreter now."""
    job, others = held_job(tasks.add), [held_job(tasks.add) for _ in range(1000)]
    worker.work.in_flight.add([job, *others], [NEVER] * 1001, ())
    missed = 0
    with repeated(worker.work.tell_supervisor) as barrier:
        for _ in range(TIMES):
            worker.take_notice(TransactionWaits(job.key))
            worker.work.tell_supervisor()
            barrier.wait()
            worker.take_notice(TransactionBegun(job.key))
            barrier.wait()
            missed += worker.state.ends_at == NEVER
    assert not missed
