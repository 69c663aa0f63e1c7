"""The limits that hold for a queue, for pages and commands, which show jobs of any backend."""

from ..engines import options_for
from ..queue.limits import Limits
from .task import loaded_options


def limits_for(queue_name: str, database: str | None = None) -> Limits:
    """Return the limits of the backend that serves a queue; ``database``: only of backends that use this alias."""
    return Limits(options_for(queue_name, database), loaded_options)
