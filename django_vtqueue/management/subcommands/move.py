"""``vtqueue move``: moves what a queue has stored to another database, while workers and publishers go on."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, connections

from ...backend import VTQueueBackend
from ...engines import engine_for
from ...moving.channel import MoveRefused, under_way
from ...moving.move import Move
from ...queue.schema import mismatch
from ...worker.progress_bar import progress_bar
from ..output import is_terminal, table

HELP = "Moves jobs, dead letters, schedules and all else to another database, while workers and publishers go on."
INTERRUPTED = "Interrupted. Moved rows stay moved; run the same command again to go on."
SHOWN = 20  # refusals


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", required=True, metavar="ALIAS", help="database alias to move from")
    parser.add_argument("--to", dest="target", required=True, metavar="ALIAS", help="database alias to move to")
    parser.add_argument("--wait", action="store_true", help="go on until no job and no dead letter is left that can go")
    parser.add_argument("--dry-run", action="store_true", help="only say how much there is, and how much would stay")


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Move what can be moved; say how much that was, and what stays."""
    source, target = options["source"], options["target"]
    for alias in (source, target):
        refuse_database(alias)
    try:
        yield from moved(Move(source, target), options)
    except MoveRefused as error:
        raise CommandError(str(error)) from None
    except DatabaseError as error:
        troubles = (engine_for(alias).trouble(error) for alias in (source, target))
        said = next((trouble.value for trouble in troubles if trouble), "a database refuses a statement")
        raise CommandError(f"Stopped: {said} ({error}). Nothing is lost; the same command goes on.") from error


def moved(move: Move, options: dict[str, Any]) -> Iterator[str]:
    """Move what can be moved; see run."""
    before = move.parts.numbers()
    if options["dry_run"]:
        yield from table([(f"{number:,}", name) for name, number in before.items()])
        yield from staying(move)
        return
    with progress_bar(lambda: sum(before.values()), "row", show=is_terminal(sys.stderr)) as grow:
        move.arrived = grow or move.arrived
        move.go(wait=options["wait"])
    yield f"Moved {move.moved:,} row{'s' * (move.moved != 1)} from {move.source!r} to {move.target!r}."
    yield from staying(move)
    if move.refusals:
        raise CommandError(f"Refused by {move.target!r}, and still in {move.source!r}: {len(move.refusals):,}.")


def refuse_database(alias: str) -> None:
    """Raise CommandError for a database from or to which nothing can be moved."""
    if alias not in connections:
        raise CommandError(f"There is no database {alias!r}; DATABASES has {', '.join(connections)}.")
    try:
        engine_for(alias)
        problem = mismatch(alias)
    except (ValueError, DatabaseError) as error:
        raise CommandError(f"{alias}: {error}") from None
    if problem:
        raise CommandError(f"{alias}: {problem}.")


def staying(move: Move) -> Iterator[str]:
    """Yield what stays in the source, and why."""
    for (one, many), number in zip(STAYING, move.parts.staying(), strict=True):
        if number:
            yield one if number == 1 else many.format(number)
    for name, why in list(move.refusals.items())[:SHOWN]:
        yield f"Stays: {name}: {why}"
    if (more := len(move.refusals) - SHOWN) > 0:
        yield f"… and {more:,} more."
    if rows := sum(under_way(move.source).values()):
        yield f"{rows:,} rows are under way, since a move was cut off; the next one lets them arrive first."
    if rows := sum(under_way(move.target).values()):
        yield (
            f"{rows:,} rows are under way from {move.target!r}, since a move from there was cut off: "
            f"run that one again (manage.py vtqueue move --from {move.target} --to ...)."
        )
    left = {
        "jobs and dead letters": move.parts.entries(),
        "rows of leases and time slots": move.parts.reserved().count(),
    }
    if any(left.values()):
        numbers = " and ".join(f"{number:,} {name}" for name, number in left.items() if number)
        yield f"{numbers} are left in {move.source!r}."


STAYING = (
    (
        "1 job runs: it goes, with its family, when it has ended.",
        "{:,} jobs run: they go, with their families, when they have ended.",
    ),
    (
        "1 requeue goes on: dead letters go when it has ended. Stop it in the admin if no worker is left here.",
        "{:,} requeues go on: dead letters go when they have ended. Stop them in the admin if no worker is left here.",
    ),
    (
        "1 lease or time slot is held: it goes when it is free, and no unfinished job is left.",
        "{:,} leases and time slots are held: they go when they are free, and no unfinished job is left.",
    ),
    (
        "1 lease or time slot was not renewed in time: --wait frees it when it has seen that its holder is gone.",
        "{:,} leases and time slots were not renewed in time: --wait frees them when it has seen that none is held.",
    ),
)
