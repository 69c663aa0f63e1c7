"""What ``vtqueue`` does with jobs and dead letters: cancel and requeue them."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Q

from ... import control
from ...backend import VTQueueBackend
from ...core import states
from ...core.ids import shown_worker
from ...core.names import is_reserved, refusal
from ...models import DeadLetter, Job
from ...queue import dead_letters
from ...queue.dead_letters import Criteria
from ...requeueing import queue_of_steps, start
from ..arguments import add_ids, entry_of, login, not_empty

NONE_SUCH = "There is no such dead letter."
MANY = ("queue_name", "task_path", "exception_class")


def cancel(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Cancel the jobs that the command line names: all of them are found, or none is cancelled."""
    database = backend.database
    jobs = {job.pk: job for job in (job_of(given, database) for given in options["ids"])}
    cancelled = control.cancel(jobs, using=database, by=login())
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
    if isinstance(entry, Job) and is_reserved(entry.queue_name):
        raise CommandError(refusal(entry.queue_name))
    if isinstance(entry, Job):
        return entry
    if entry:
        raise CommandError(f"{given} is a dead letter in queue {entry.queue_name!r}: no worker runs it.")
    raise CommandError(f"There is no job {given}; one that is done is kept for result_ttl.")


def requeue_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_ids(parser, "of a dead letter", nargs="*")
    add("--all", action="store_true", help="all, in the background")
    add("--queue", type=not_empty, dest="queue_name", metavar="NAME", help="all of this queue, in the background")
    add("--task", type=not_empty, dest="task_path", metavar="PATH", help="all of this task, in the background")
    add("--exception", type=not_empty, dest="exception_class", metavar="NAME", help="all of this class of exceptions")
    add("--rate", type=int, metavar="N", help="so many a minute (default: at once)")
    add("--canary", action="store_true", help="one first, the others only when it has succeeded")
    add("--dry-run", action="store_true", help="only say how many they are")


def requeue(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Requeue what the command line names, or begin to requeue all that it describes."""
    criteria = {name: options[name] for name in MANY if options[name] is not None}
    many = options["all"] or bool(criteria)
    if many == bool(options["ids"]):
        raise CommandError("Give either the IDs of dead letters, or --all, --queue, --task or --exception.")
    if not many and (options["rate"] is not None or options["canary"] or options["dry_run"]):
        raise CommandError("--rate, --canary and --dry-run are for --all, --queue, --task and --exception.")
    if "exception_class" in criteria:
        criteria["exception_class"] = path_of(criteria["exception_class"], backend.database)
    yield from in_background(backend, criteria, options) if many else named(backend, options)


def path_of(name: str, database: str) -> str:
    """Return the path of a class of exceptions of dead letters, of which the last part may be given."""
    of_class = Q(exception_class=name) | Q(exception_class__endswith=f".{name}")
    letters = DeadLetter.objects.using(database).filter(of_class)
    found = sorted(letters.values_list("exception_class", flat=True).distinct())
    if len(found) > 1:
        raise CommandError(f"--exception {name} may be {' or '.join(found)}.")
    return found[0] if found else name


def in_background(backend: VTQueueBackend, described: dict[str, Any], options: dict[str, Any]) -> Iterator[str]:
    """Begin to requeue all that are described so."""
    try:
        criteria = Criteria(**described)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if not (number := criteria.count(backend.database)):
        raise CommandError(NONE_SUCH)
    if options["dry_run"]:
        yield f"{counted(number, criteria)} would be requeued."
        return
    try:
        run = start(criteria, rate=options["rate"], canary=options["canary"], by=login(), using=backend.database)
    except ValueError as error:
        raise CommandError(str(error)) from error
    queue_name = queue_of_steps(run, backend.database)
    yield f"{counted(run.matched, criteria)} will be requeued by the workers of queue {queue_name!r}: run {run.pk}"


def counted(number: int, criteria: Criteria) -> str:
    """Return how many letters there are."""
    return f"{number}{' or more' * (number >= criteria.most_counted)} dead letter{'s' * (number != 1)}"


def named(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Move the letters with these ids: all of them are found, or none is moved."""
    letters = {letter.pk: letter for letter in (letter_of(given, backend.database) for given in options["ids"])}
    moved = dead_letters.requeue(letters, using=backend.database, by=login())
    for job_id in moved:
        yield f"requeued {letters[job_id].task_path or letters[job_id].queue_name} {job_id}"
    if left := [str(job_id) for job_id in letters if job_id not in moved]:
        raise CommandError(
            f"Not requeued: {', '.join(left)}. A job with its unique key is in the queue, or it is gone."
        )


def letter_of(given: str, database: str) -> DeadLetter:
    """Return the dead letter of an id; raise CommandError if there is none, UnclearId if there are several."""
    entry = entry_of(given, database)
    if isinstance(entry, DeadLetter):
        return entry
    if entry:
        raise CommandError(f"{given} is no dead letter but a job, {entry.state} in queue {entry.queue_name!r}.")
    raise CommandError(f"There is no dead letter {given}; it may have been requeued, discarded, or kept long enough.")
