"""The shorter way around Django's cursor, for statements that nothing watches.

That cursor writes each statement anew for the driver, which takes as long as SQLite takes for one INSERT (measured).
"""

import sqlite3
from functools import lru_cache
from operator import attrgetter, is_
from types import FunctionType
from typing import Any

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import SQLiteCursorWrapper
from django.db.backends.utils import CursorWrapper

CURSORS = ("cursor", "_cursor", "_prepare_cursor", "create_cursor", "make_cursor", "make_debug_cursor")
_of_connection = attrgetter(*CURSORS)
_of_cursor = attrgetter("__init__", "execute", "_execute", "_execute_with_wrappers")


def watched(connection: BaseDatabaseWrapper) -> bool:
    """Return whether something may see what goes through the cursor of an open connection.

    That is Django's log of queries, its warning of those that come too early, an execute wrapper, a project's own
    database backend, or what error trackers, profilers and mocks put in the place of a method on the way of a statement
    through Django, or of the driver's connection.
    """
    kind: Any = type(connection)
    usual = _usual(kind)
    return (
        connection.queries_logged
        or bool(connection.execute_wrappers)
        or not vars(connection).keys().isdisjoint(CURSORS)
        or type(connection.connection) is not sqlite3.Connection
        or not apps.ready
        or not usual
        or not all(map(is_, _methods(kind), usual))  # not ==: proxies equal what they wrap
    )


def _methods(kind: type[BaseDatabaseWrapper]) -> tuple[Any, ...]:
    """Return the methods through which a statement goes, as they are now."""
    return *_of_connection(kind), *_of_cursor(CursorWrapper), SQLiteCursorWrapper.execute


@lru_cache(maxsize=10)
def _usual(kind: type[BaseDatabaseWrapper]) -> tuple[Any, ...]:
    """Return these methods if all of them are Django's own; none if they are not, or were not when first asked for."""
    methods = _methods(kind)
    own = all(base.__module__.startswith("django.") for base in kind.__mro__ if base is not object)
    return methods if own and all(map(_is_djangos, methods)) else ()


def _is_djangos(method: Any) -> bool:
    """Return whether a function, and all that it wraps, is Django's; a wrapper bears its names, but not its globals."""
    if type(method) is not FunctionType or not method.__globals__.get("__name__", "").startswith("django."):
        return False
    inner = getattr(method, "__wrapped__", None)
    return inner is None or _is_djangos(inner)
