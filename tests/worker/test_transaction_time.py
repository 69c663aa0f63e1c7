"""When the time of a transactional job runs."""

from time import monotonic

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core.clock import NEVER
from django_vtqueue.core.job import HeldJob
from django_vtqueue.execution.time_limits import TransactionBegun, TransactionWaits
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.loop import Worker
from django_vtqueue.worker.options import WorkerOptions


def test_the_time_limit_holds_however_late_the_loop_reads(transactional_db: None) -> None:
    """A job that waits for its transaction has no time limit, and has it once that has begun, read or not."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"hard_timeout": 5}})
    worker = Worker(backend, WorkerOptions(threads=1), WorkerLog())
    job = HeldJob("0" * 32, "q", "", 0, 100, 1, 1, 3, "w", 60, 0, 5, "1", "[]", 0)
    worker.work.in_flight.add([job], [5.0], ())
    worker.bell.close()
    worker.take_notice(TransactionWaits(job.key))
    assert worker.work.in_flight.next_end() == NEVER
    worker.take_notice(TransactionBegun(job.key))
    worker.read_mail(0)
    assert worker.work.in_flight.next_end() - monotonic() < 6
