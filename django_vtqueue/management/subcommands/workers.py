"""What ``vtqueue`` asks workers to do, wherever they run: to be quiet, to work again, and to stop."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...control import ask
from ...core.ids import shown_worker
from ...queue.workers import GO_ON, QUIET, STOP, undead

WORDS = {QUIET: "be quiet", STOP: "stop", GO_ON: "work"}


def stop_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("workers", nargs="+", metavar="WORKER", help="as the log names it: web1:4711")


def stop(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Ask workers to stop; they obey within a second."""
    return asked(options["workers"], STOP, backend.database)


def quiet_arguments(parser: ArgumentParser) -> None:
    stop_arguments(parser)
    parser.add_argument("--end", action="store_true", help="ask them to work again")


def quiet(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Ask workers to be quiet, or to work again; they obey within a second."""
    return asked(options["workers"], GO_ON if options["end"] else QUIET, backend.database)


def asked(names: Sequence[str], to: str, database: str) -> Iterator[str]:
    """Ask workers to do something; yield who was asked. All of them are found, or none is asked."""
    present = sorted(undead(database).values_list("pk", flat=True))
    if unknown := [name for name in names if name not in {*present, *map(shown_worker, present)}]:
        there = ", ".join(map(shown_worker, present)) or "none"
        raise CommandError(f"There is no worker {', '.join(unknown)}. Workers: {there}.")
    for worker_id in ask([pk for pk in present if {pk, shown_worker(pk)} & set(names)], to, using=database):
        yield f"asked {shown_worker(worker_id)} to {WORDS[to]}"
