"""How Python's logging is set up while a worker runs: who writes its lines, and which records nobody reads."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import OutputWrapper
from django.utils.log import RequireDebugTrue

from ..runtime.aside import LAST_LINES, log_writer, logging_aside
from ..tasks.compat import FRAMEWORK_LOGGER

logger = logging.getLogger("django_vtqueue")


@contextmanager
def log_lines(stream: Any, verbosity: int) -> Iterator[None]:
    """Write the log lines to the command's stderr during the block, unless the project's LOGGING handles them.

    A log that cannot be written costs its lines, and holds nothing up: a thread of its own writes them, and those that
    the Tasks framework makes of each job.
    """
    framework = logging.getLogger(FRAMEWORK_LOGGER)
    with _own_handler(stream, verbosity), log_writer.writing_for(framework), logging_aside():
        try:
            yield
        finally:
            log_writer.finish(LAST_LINES)


@contextmanager
def _own_handler(stream: Any, verbosity: int) -> Iterator[None]:
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler(stream)
    if isinstance(stream, OutputWrapper):
        handler.terminator = ""  # it ends lines itself
    handler.setFormatter(logging.Formatter("%(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbosity else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


# -- log records without a reader, which are not made while a worker runs ----------------------------------------------
#
# Django's Tasks framework makes two records for each job, at INFO. With Django's logging settings no handler writes
# them; with DEBUG the console does, where the worker has a line of its own for each job. To make them takes as long as
# all the rest that runs a no-op job (measured).


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
