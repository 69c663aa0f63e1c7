"""How a statement is executed: through Django's cursor where something watches that, else around it.

That cursor writes each statement anew for the driver, which takes as long as SQLite takes for one INSERT (measured).
"""

import re
import sqlite3
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import FunctionType
from typing import Any, TypeVar

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.backends.utils import CursorWrapper

T = TypeVar("T")


def execute(
    connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any], outcome: Callable[[Any], T], *, traced: bool
) -> T:
    """Execute a statement on an open connection and return its ``outcome``; ``traced``: query logs may see it."""
    if traced and watched(connection):
        with connection.cursor() as cursor:
            cursor.execute(for_django(sql), values)
            return outcome(cursor)
    if traced:
        connection.validate_no_broken_transaction()  # as that cursor does
    try:
        cursor = connection.connection.execute(sql, values)
        try:
            return outcome(cursor)
        finally:
            cursor.close()  # one that fails half-way, on text that is none, would stay open, and read on
    except sqlite3.Error:
        with connection.wrap_database_errors:
            raise


@lru_cache(maxsize=100)
def for_django(sql: str) -> str:
    """Return a statement with its parameters as Django's cursor wants them."""
    return re.sub(r":(\w+)", r"%(\1)s", sql)


def watched(connection: BaseDatabaseWrapper) -> bool:
    """Return whether something may see what goes through the cursor of an open connection.

    That is: Django's log of queries; its warning of queries that come too early; an execute wrapper; a database backend
    of the project; or what an error tracker, a profiler or a mock has put in the place of the ``cursor`` of connections
    or of this one, of ``CursorWrapper.execute``, or of the driver's connection.
    """
    cursor, execute = _usual()
    return (
        type(connection) is not DatabaseWrapper
        or connection.queries_logged
        or bool(connection.execute_wrappers)
        or "cursor" in vars(connection)
        or type(connection.connection) is not sqlite3.Connection
        or not apps.ready
        or DatabaseWrapper.cursor is not cursor  # not !=: proxies equal what they wrap
        or CursorWrapper.execute is not execute
    )


@lru_cache
def _usual() -> tuple[Any, ...]:
    """Return these two methods as they are at the first statement; None for what is not Django's own."""
    methods = DatabaseWrapper.cursor, CursorWrapper.execute
    return tuple(method if _is_djangos(method) else None for method in methods)


def _is_djangos(method: Any) -> bool:
    """Return whether a function, and all that it wraps, is Django's; a wrapper bears its names, but not its globals."""
    if type(method) is not FunctionType or not method.__globals__.get("__name__", "").startswith("django."):
        return False
    inner = getattr(method, "__wrapped__", None)
    return inner is None or _is_djangos(inner)


def has_open_cursor(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a connection has an open cursor; that is interrupted then, and ends with its next row.

    SQLite interrupts what begins after ``interrupt()`` if, and only if, another statement has not ended.
    """
    raw = connection.connection
    if not isinstance(raw, sqlite3.Connection):
        return False
    raw.interrupt()
    try:
        raw.execute("SELECT 1").close()
    except sqlite3.OperationalError:
        return True
    return False
