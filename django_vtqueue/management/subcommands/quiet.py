"""``vtqueue quiet``: workers finish what runs and claim nothing, until they are asked to work again."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from ...backend import VTQueueBackend
from ...queue.workers import QUIET, WORK
from ..arguments import add_workers, asked

HELP = "Asks workers to finish what they run and to claim nothing, until they are stopped or asked to work again."


def add_arguments(parser: ArgumentParser) -> None:
    add_workers(parser)
    parser.add_argument("--end", action="store_true", help="ask them to work again")


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Ask them; they obey within a second."""
    return asked(options["workers"], WORK if options["end"] else QUIET, backend.database)
