"""Who watches the statements that go through Django's cursor: where nobody does, they take the shorter way around it.

That cursor writes each statement anew for the driver, which takes as long as SQLite takes for one INSERT (measured).
"""

import sqlite3
from functools import lru_cache
from types import FunctionType
from typing import Any

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

CURSORS = {"cursor", "_cursor", "_prepare_cursor", "create_cursor", "make_cursor", "make_debug_cursor"}


def watched(connection: BaseDatabaseWrapper) -> bool:
    """Return whether anybody may see what goes through the cursor of an open connection.

    That is Django's log of queries, its warning of those that come too early, an execute wrapper, a project's own
    database backend, or what error trackers, profilers and mocks put in the place of ``connection.cursor``, of
    ``CursorWrapper.execute`` or of the driver's connection.
    """
    kind: Any = type(connection)
    return (
        connection.queries_logged
        or bool(connection.execute_wrappers)
        or not CURSORS.isdisjoint(vars(connection))
        or type(connection.connection) is not sqlite3.Connection
        or not apps.ready
        or not _backend_is_djangos(kind)
        or _replaced(kind.cursor)
        or _replaced(CursorWrapper.execute)
    )


@lru_cache(maxsize=10)
def _backend_is_djangos(kind: type[BaseDatabaseWrapper]) -> bool:
    return all(base.__module__.startswith("django.") for base in kind.__mro__ if base is not object)


def _replaced(method: Any) -> bool:
    """Return whether this is no function of Django's; proxies are asked each time, for they equal what they wrap."""
    return type(method) is not FunctionType or not _is_djangos(method)


@lru_cache(maxsize=10)
def _is_djangos(function: FunctionType) -> bool:
    """Return whether a function, and all that it wraps, is Django's; a wrapper bears its names, but not its globals."""
    inner = getattr(function, "__wrapped__", None)
    return function.__globals__.get("__name__", "").startswith("django.") and (inner is None or not _replaced(inner))
