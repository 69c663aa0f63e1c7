"""``vtqueue requeue``: send dead letters round again, by their ids or the ends of them that the log shows."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...letters import requeue
from ...models import DeadLetter, Job
from ..entries import SHORTEST, digits_of, ending, only, some

HELP = "Sends dead letters round again: the same id, a fresh budget of attempts, the history kept."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help=f"of a dead letter, or its last {SHORTEST} digits or more")


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Move the letters that the command line names: all of them are found, or none is moved."""
    letters = {letter.pk: letter for letter in (letter_of(given, backend.database) for given in options["ids"])}
    moved = requeue(letters, using=backend.database)
    for job_id in moved:
        yield f"requeued {letters[job_id].task_path or letters[job_id].queue_name} {job_id}"
    if left := [str(job_id) for job_id in letters if job_id not in moved]:
        raise CommandError(
            f"Not requeued: {', '.join(left)}. A job with its unique key is in the queue, or it is gone."
        )


def letter_of(given: str, database: str) -> DeadLetter:
    """Return the one dead letter that is meant; raise CommandError if there is none, or more than one."""
    digits = digits_of(given)
    if letter := only(some(DeadLetter.objects.using(database), digits), given, "dead letters"):
        return letter
    if job := ending(Job.objects.using(database), digits).first():
        raise CommandError(f"{given} is no dead letter but a job, {job.state} in queue {job.queue_name!r}.")
    raise CommandError(f"There is no dead letter {given}; it may have been requeued, discarded, or kept long enough.")
