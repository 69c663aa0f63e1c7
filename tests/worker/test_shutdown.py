"""What a worker does with the jobs that it holds when it is to end at once."""

import faulthandler

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core.job import Scope
from django_vtqueue.core.settlement import succeeded
from django_vtqueue.execution.outcomes import Outcome
from django_vtqueue.models import Job
from django_vtqueue.queue.claims import Claims, collect
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.loop import Worker
from django_vtqueue.worker.options import WorkerOptions
from django_vtqueue.worker.shutdown import end_jobs
from tests.project import tasks


def test_only_results_are_in_hand(sqlite_file: str) -> None:
    """They are stored, announced and counted, and no code may still run: the end is that of a worker without jobs."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": sqlite_file}})
    worker = Worker(backend, WorkerOptions(threads=1), log := WorkerLog())
    worker.pool.start()
    backend.enqueue(tasks.add, (1, 2), {})
    with worker.engine.transaction():
        taken = Claims(worker.engine).claim([Scope(None, raw=False)], 1, worker.id, worker.engine.now())
    [job] = collect(worker.engine, taken)
    worker.work.in_flight.add([job], [60.0], ())
    worker.work.in_flight.finish(job.key)
    worker.work.outcomes.append(Outcome(job, succeeded(job, "3", worker.engine.now(), None), None, None, 0.1))
    try:
        assert not end_jobs(worker.turns, (), owns_process=True)
    finally:
        faulthandler.cancel_dump_traceback_later()  # else the process of the tests would end
        worker.bell.close()
    assert Job.objects.using(sqlite_file).get().state == "SUCCESSFUL"
    assert log.ended == 1
    assert not worker.work.in_flight
