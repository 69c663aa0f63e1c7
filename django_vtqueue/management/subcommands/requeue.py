"""``vtqueue requeue``: send dead letters round again, by their ids or the ends of them that the log shows."""

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, TypeVar

from django.core.management.base import CommandError
from django.db.models import QuerySet

from ...backend import VTQueueBackend
from ...letters import requeue
from ...models import DeadLetter, Entry, Job

HELP = "Sends dead letters round again: the same id, a fresh budget of attempts, the history kept."
SHORTEST = 8  # digits of an id, as the log has them
SHOWN = 5  # ids of an error
E = TypeVar("E", bound=Entry)


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
    digits = re.sub(r"^…|^\.\.\.|-", "", given.lower())
    if not re.fullmatch(rf"[0-9a-f]{{{SHORTEST},32}}", digits):
        raise CommandError(f"{given!r} is no id: give all of it, or its last {SHORTEST} hexadecimal digits or more.")
    found = list(ending(DeadLetter.objects.using(database).all(), digits)[: SHOWN + 1])
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(str(letter.pk) for letter in found[:SHOWN]) + (", …" if found[SHOWN:] else "")
        raise CommandError(f"{given} is the end of several dead letters; give more digits: {ids}")
    if job := ending(Job.objects.using(database).all(), digits).first():
        raise CommandError(f"{given} is no dead letter but a job, {job.state} in queue {job.queue_name!r}.")
    raise CommandError(f"There is no dead letter {given}; it may have been requeued, discarded, or kept long enough.")


def ending(entries: QuerySet[E], digits: str) -> QuerySet[E]:
    return entries.filter(pk__endswith=digits).order_by("pk")
