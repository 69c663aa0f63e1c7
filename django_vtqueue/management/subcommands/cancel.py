"""``vtqueue cancel``: cancel jobs by their ids, or by the last digits that the log shows."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...control import cancel
from ...core import states
from ...core.ids import shown_worker
from ...models import Job
from ..arguments import add_ids, login
from .why import entry_of

HELP = "Cancels jobs: one that waits becomes a dead letter, one that runs is asked to stop."


def add_arguments(parser: ArgumentParser) -> None:
    add_ids(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Cancel the jobs that the command line names: all of them are found, or none is cancelled."""
    database = backend.database
    jobs = {job.pk: job for job in (job_of(given, database) for given in options["ids"])}
    cancelled = cancel(jobs, using=database, by=login())
    running = {job.pk: job for job in Job.objects.using(database).filter(pk__in=cancelled)}
    for job_id in cancelled:
        yield outcome(jobs[job_id], running.get(job_id))
    if left := [str(job_id) for job_id in jobs if job_id not in cancelled]:
        raise CommandError(f"Not cancelled: {', '.join(left)}. It is done, or was asked to stop before.")


def outcome(job: Job, running: Job | None) -> str:
    """Return what became of a job; ``running``: its row, if it is still there."""
    name = f"{job.task_path or job.queue_name} {job.pk}"
    if running and running.state == states.RUNNING:
        return f"asked to stop {name}, held by {shown_worker(running.worker_id)}"
    return f"asked to stop {name}, which was just done" if running else f"cancelled {name}"


def job_of(given: str, database: str) -> Job:
    """Return the job of an id; raise CommandError if there is none, UnclearId if there are several."""
    entry = entry_of(given, database)
    if isinstance(entry, Job):
        return entry
    if entry:
        raise CommandError(f"{given} is a dead letter in queue {entry.queue_name!r}: no worker runs it.")
    raise CommandError(f"There is no job {given}; one that is done is kept for result_ttl.")
