"""Connections between jobs, as between requests."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from ..engines import ENGINES, Engine
from ..engines.deadline import Deadline

LONGEST_IDLE = 0.1  # seconds

_looked = threading.local()


@contextmanager
def beginning_fairly() -> Iterator[None]:
    """Have each connection that is opened in this process meanwhile begin its transactions fairly."""

    def opened(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
        ENGINES.get(connection.vendor, Engine).begin_fairly(connection)

    connection_created.connect(opened)
    try:
        yield
    finally:
        connection_created.disconnect(opened)


def refresh_connections(*, inline: bool) -> None:
    """Do ``close_leftovers`` before a job, if its thread has been idle: between two in a row nothing grows old."""
    if time.monotonic() - getattr(_looked, "at", 0.0) > LONGEST_IDLE:
        close_leftovers(inline=inline)


def close_leftovers(*, inline: bool) -> None:
    """Close those of this thread's connections that are too old, broken, in a transaction, or on a replaced file.

    Each on its own, so that one that fails keeps none of the others open. ``inline``: the caller may be inside an
    atomic block of its own (a TestCase), which is left alone. In a thread of a worker an open transaction can only be
    one that the task did not leave, and would keep the write lock: it is rolled back. A deadline is left where
    TaskTimeout, which strikes at any call, ended the transaction before the deadline was taken away. An open cursor
    there is one that the task has kept. A tenant's schema is left as a request leaves it.
    """
    for connection in connections.all(initialized_only=True):
        if not inline:
            connection.queries_log.clear()  # with DEBUG; a request does so at its beginning
        engine = ENGINES.get(connection.vendor, Engine)
        try:
            if not inline and hasattr(connection, "set_schema_to_public"):  # of django-tenants, which does so, too
                connection.set_schema_to_public()
            if connection.in_atomic_block or any(isinstance(each, Deadline) for each in connection.execute_wrappers):
                if not inline:
                    connection.close()
                    del connections[connection.alias]
            elif connection.connection is None:
                continue  # never opened, or closed: most often the case, and quickly seen
            elif _is_busy(connection.connection) and connection.get_autocommit():
                connection.close()  # a BEGIN that Django knows nothing of, or a statement that TaskTimeout has left
            elif not inline and engine.has_open_cursor(connection):
                connection.close()  # while its cursor is open, it cannot write once another connection has
            else:
                if not inline and engine.kept_open and connection.settings_dict["CONN_MAX_AGE"] == 0:
                    connection.close_at = None
                connection.close_if_unusable_or_obsolete()
                if connection.connection is not None and engine.outdated(connection):
                    connection.close()
        except Exception:
            del connections[connection.alias]
    _looked.at = time.monotonic()


def _is_busy(raw: Any) -> bool:
    """Return whether a driver's connection is in a transaction, or, of psycopg, in the middle of a statement."""
    status = getattr(getattr(raw, "info", None), "transaction_status", None)
    return bool(getattr(raw, "in_transaction", False) if status is None else status)
