"""``vtqueue requeue``: dead letters become jobs again: a few by their ids, or many by what they have in common."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...models import DeadLetter
from ...queue.dead_letters import Criteria, requeue
from ...requeueing import start
from ..arguments import add_ids
from .why import entry_of

WHO = "manage.py vtqueue"  # for the history
MANY = ("queue_name", "task_path", "exception_class")
HELP = "Requeues dead letters: they keep their ids and histories, and have all their attempts again."


def add_arguments(parser: ArgumentParser) -> None:
    add_ids(parser, "of a dead letter", nargs="*")
    parser.add_argument("--all", action="store_true", help="all, in the background")
    parser.add_argument("--queue", dest="queue_name", metavar="NAME", help="all of this queue, in the background")
    parser.add_argument("--task", dest="task_path", metavar="PATH", help="all of this task, in the background")
    parser.add_argument("--exception", dest="exception_class", metavar="PATH", help="all of this class of exceptions")
    parser.add_argument("--rate", type=int, metavar="N", help="so many a minute (default: at once)")
    parser.add_argument("--canary", action="store_true", help="one first, the others only when it has succeeded")
    parser.add_argument("--dry-run", action="store_true", help="only say how many they are")


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Requeue what the command line names, or begin to requeue all that it describes."""
    criteria = {name: options[name] for name in MANY if options[name] is not None}
    many = options["all"] or bool(criteria)
    if many == bool(options["ids"]):
        raise CommandError("Give the IDs of dead letters, or --all, --queue, --task or --exception, not both.")
    if not many and (options["rate"] is not None or options["canary"] or options["dry_run"]):
        raise CommandError("--rate, --canary and --dry-run are for --all, --queue, --task and --exception.")
    yield from in_background(backend, Criteria(**criteria), options) if many else named(backend, options)


def in_background(backend: VTQueueBackend, criteria: Criteria, options: dict[str, Any]) -> Iterator[str]:
    """Begin to requeue all that meet criteria."""
    if options["dry_run"]:
        yield f"{counted(criteria.count(backend.database), criteria)} would be requeued."
        return
    try:
        run = start(criteria, rate=options["rate"], canary=options["canary"], by=WHO, using=backend.database)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if not run.matched:
        raise CommandError("There is no such dead letter.")
    yield f"{counted(run.matched, criteria)} will be requeued by the workers of queue {run.queue_name!r}: {run.pk}"


def counted(number: int, criteria: Criteria) -> str:
    """Return how many letters there are."""
    return f"{number}{' or more' * (number >= criteria.most_counted)} dead letter{'s' * (number != 1)}"


def named(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Move the letters with these ids: all of them are found, or none is moved."""
    letters = {letter.pk: letter for letter in (letter_of(given, backend.database) for given in options["ids"])}
    moved = requeue(letters, using=backend.database, by=WHO)
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
