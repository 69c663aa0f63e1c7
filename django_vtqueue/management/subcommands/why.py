"""``vtqueue why``: why a job is not running, or how it ended."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...inspection.why import why
from ..arguments import add_ids, read_at_once

HELP = "Says in one sentence why a job is not running, or how it ended."


def add_arguments(parser: ArgumentParser) -> None:
    add_ids(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Say it for each id; an unknown one is an error after the others."""
    missing = []
    for given in options["ids"]:
        if sentence := said_of(given, backend.database):
            yield sentence
        else:
            missing.append(given)
    if missing:
        raise CommandError(
            f"There is no job {', '.join(missing)}. Those that are done are kept for result_ttl, dead ones for "
            "dead_letter_ttl."
        )


def said_of(given: str, database: str) -> str:
    """Return the sentence for an id; "" if there is no such job."""
    with read_at_once(given, database) as (entry, limits, now):
        return f"{entry.task_path or entry.queue_name} {entry.pk}: {why(entry, now, limits)}" if entry else ""
