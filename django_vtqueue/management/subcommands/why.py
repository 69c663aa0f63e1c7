"""``vtqueue why``: why a job is not running, or what became of it."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...engines import engine_for
from ...inspection.why import why
from ...models import DeadLetter, Job
from ...queue.lookup import digits_of, only, some
from ...tasks.limits import limits_for
from ..arguments import add_ids

HELP = "Says in one sentence why a job is not running, or what became of it."


def add_arguments(parser: ArgumentParser) -> None:
    add_ids(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Say it for each id; an unknown one is an error after the others."""
    missing = []
    for given in options["ids"]:
        if entry := entry_of(given, backend.database):
            name = f"{entry.task_path or entry.queue_name} {entry.pk}"
            limits = limits_for(entry.queue_name, backend.database, entry.task_path)
            yield f"{name}: {why(entry, engine_for(backend.database).now(), limits)}"
        else:
            missing.append(given)
    if missing:
        raise CommandError(
            f"There is no job {', '.join(missing)}. Those that are done are kept for result_ttl, dead ones for "
            "dead_letter_ttl."
        )


def entry_of(given: str, database: str) -> Job | DeadLetter | None:
    """Return the job or dead letter of an id, or of its last digits; None if there is none. Raise UnclearId."""
    digits = digits_of(given)
    jobs, letters = Job.objects.using(database), DeadLetter.objects.using(database)
    found: list[Job | DeadLetter] = [*some(jobs, digits), *some(letters, digits)]
    now = {entry.pk: entry for entry in found}  # one that has died or was requeued just now may be there twice
    return only(list(now.values()) or some(jobs, digits), given)
