"""Log records without a reader, which are not made while a worker runs.

Django's Tasks framework makes two records for each job, at INFO. With Django's logging settings no handler writes
them; with DEBUG the console does, where the worker has a line of its own for each job. To make them takes as long as
all the rest that runs a no-op job (measured), so they are left out. They are those of ``django.tasks.signals``.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.utils.log import RequireDebugTrue

from ..tasks.compat import FRAMEWORK_LOGGER


@contextmanager
def without_unread_records() -> Iterator[None]:
    """For the block, have the framework make no record below WARNING, if it has no reader.

    A level that the project has given to its logger stands.
    """
    framework = logging.getLogger(FRAMEWORK_LOGGER)
    if framework.level != logging.NOTSET or heard(framework, logging.INFO):
        yield
        return
    framework.setLevel(logging.WARNING)
    try:
        yield
    finally:
        framework.setLevel(logging.NOTSET)


def heard(logger: logging.Logger, level: int) -> bool:
    """Return whether a record of this level may reach something: a handler, a filter, or a hook into logging."""
    hooks = type(logger).handle, type(logger).callHandlers, logging.getLogRecordFactory()
    if logger.filters or any(hook.__module__ != logging.__name__ for hook in hooks):
        return True
    handlers = list(_handlers(logger)) or ([logging.lastResort] if logging.lastResort else [])
    return any(handler.level <= level and not _silent(handler) for handler in handlers)


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Give the handlers of a logger, and of those that it propagates to."""
    above: logging.Logger | None = logger
    while above:
        yield from above.handlers
        above = above.parent if above.propagate else None


def _silent(handler: logging.Handler) -> bool:
    """Return whether it is Django's own handler for the console: it has nothing to add to the worker's lines."""
    return any(isinstance(item, RequireDebugTrue) for item in handler.filters)
