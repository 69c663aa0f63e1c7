"""Workers as a command line names them, by host and pid as in the log; and what is asked of them."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence

from django.core.management.base import CommandError

from ..control import ask
from ..ids import shown_worker
from ..presence import QUIET, STOP, WORK, undead

WORDS = {QUIET: "be quiet", STOP: "stop", WORK: "work"}


def add_workers(parser: ArgumentParser) -> None:
    """Add the argument that names them."""
    parser.add_argument("workers", nargs="+", metavar="WORKER", help="as the log names it: web1:4711")


def asked(names: Sequence[str], to: str, database: str) -> Iterator[str]:
    """Ask workers to do something; yield who was asked. All of them are found, or none is asked."""
    present = sorted(undead(database).values_list("pk", flat=True))
    if unknown := [name for name in names if name not in {*present, *map(shown_worker, present)}]:
        there = ", ".join(map(shown_worker, present)) or "none"
        raise CommandError(f"There is no worker {', '.join(unknown)}. Workers: {there}.")
    for worker_id in ask([pk for pk in present if {pk, shown_worker(pk)} & set(names)], to, using=database):
        yield f"asked {shown_worker(worker_id)} to {WORDS[to]}"
