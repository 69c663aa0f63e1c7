"""``vtqueue stop``: workers stop as after SIGTERM, wherever they run."""

from collections.abc import Iterator
from typing import Any

from ...backend import VTQueueBackend
from ...queue.workers import STOP
from ..arguments import add_workers, asked

HELP = "Asks workers to stop as after SIGTERM: they finish what they run and exit."

add_arguments = add_workers


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Ask them; they obey within a second."""
    return asked(options["workers"], STOP, backend.database)
