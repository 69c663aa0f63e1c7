"""``vtqueue why``: why a job is not running, or what became of it."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...engines import engine_for
from ...inspection.state import limits_for
from ...inspection.why import why
from ..arguments import add_ids, entry_of

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
