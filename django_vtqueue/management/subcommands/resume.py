"""``vtqueue resume``: end the pause of a queue."""

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from ...backend import VTQueueBackend
from ...engines import engine_for
from ...queue.pauses import paused, resume
from ..arguments import remark_on

HELP = "Ends the pause of a queue, and wakes the workers."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE")


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Resume the queue that the command line names; one that is not paused is as it should be."""
    name, database = options["queue"], backend.database
    remark = remark_on(backend, name)
    if resume(name, using=database):
        yield f"Queue {name!r} is resumed; the workers were woken."
        return
    yield f"Queue {name!r} was not paused. Paused queues: {', '.join(paused_now(database)) or 'none'}."
    if remark:
        yield remark


def paused_now(database: str) -> list[str]:
    """Return the names of the queues that are paused."""
    return list(paused(database, engine_for(database).now()))
