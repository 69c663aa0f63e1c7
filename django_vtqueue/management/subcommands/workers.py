"""What ``vtqueue`` asks workers to do, wherever they run: to be quiet, to work again, and to stop."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...control import ASKED_TO
from ...core.ids import names_of_workers, shown_worker
from ...queue.workers import GO_ON, QUIET, STOP, undead

WORDS = {QUIET: "be quiet", STOP: "stop", GO_ON: "work"}


def stop_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("workers", nargs="+", metavar="WORKER", help="as vtqueue status and the log name it: web1:4711")


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
    """Ask workers to do something; yield who was asked. All of them are found, or none is asked.

    A name without a random end stands for all workers that have it: one, or its successors in a restarted container.
    """
    shown = names_of_workers(sorted(undead(database).values_list("pk", flat=True)))
    if unknown := [name for name in names if name not in {*shown, *map(shown_worker, shown)}]:
        raise CommandError(f"There is no worker {', '.join(unknown)}. Workers: {', '.join(shown.values()) or 'none'}.")
    meant = [pk for pk in shown if {pk, shown_worker(pk)} & set(names)]
    for worker_id in ASKED_TO[to](meant, using=database):
        yield f"asked {shown[worker_id]} to {WORDS[to]}"
