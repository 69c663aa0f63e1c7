"""The limits that hold for a queue, for pages and commands, which show jobs of any backend."""

from contextlib import suppress

from ..engines import options_for
from ..queue.limits import Limits
from .task import find_task, loaded_options


def limits_for(queue_name: str, database: str | None = None, task_path: str = "") -> Limits:
    """Return the limits of the backend that serves a queue; ``database``: only of backends that use this alias.

    ``task_path``: a task whose limits are asked for, so that it is loaded.
    """
    options = options_for(queue_name, database)
    if task_path:
        with suppress(Exception):  # it is gone, or its module does not import: its limits are not known
            find_task(task_path, tuple(options.task_modules))
    return Limits(options, loaded_options)
