"""Queues as a command line names them."""

from django.core.management.base import CommandError

from ..backend import VTQueueBackend
from ..engines import engine_for
from ..pauses import paused


def remark_on(backend: VTQueueBackend, name: str) -> str:
    """Return what to say of a name that may be mistyped: neither jobs nor settings have it; "" if one of them does.

    Raise CommandError where the settings say which queues there are.
    """
    engine = engine_for(backend.database)
    there = engine.queue_names()
    known = backend.settings.queues | backend.settings.queue_options.keys()
    if name in {*known, *there, *paused(backend.database, engine.now())}:
        return ""
    if backend.settings.queues:
        raise CommandError(f"There is no queue {name!r}. There are: {', '.join(sorted({*known, *there}))}.")
    return f"No job of {name!r} is there. Queues with unfinished jobs: {', '.join(there) or 'none'}."
