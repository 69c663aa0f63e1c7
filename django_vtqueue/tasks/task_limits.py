"""The limits that hold for a queue, for pages and commands, which show jobs of any backend; and those of a task."""

from contextlib import suppress

from ..engines import options_for
from ..queue.limits import Limits
from .lookup import find_task
from .task import loaded_options


def limits_for(queue_name: str, database: str | None = None, task_path: str = "") -> Limits:
    """Return the limits of the backend that serves a queue; ``database``: only of backends that use this alias.

    ``task_path``: a task whose limits are asked for, so that it is loaded.
    """
    limits = Limits(options_for(queue_name, database), loaded_options)
    if task_path:
        load_task(limits, task_path)
    return limits


def load_task(limits: Limits, path: str) -> None:
    """Import the module of a task for its limits; what is wrong with it is told by its jobs, which fail."""
    try:
        with suppress(Exception, SystemExit):
            find_task(path, limits.options.task_modules)
    finally:
        limits.imports.note_tried(path)
