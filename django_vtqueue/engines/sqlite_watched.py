"""Who watches the statements that go through Django's cursor: where nobody does, they take the shorter way around it.

That cursor writes each statement anew for the driver, which takes as long as SQLite takes for one INSERT (measured).
"""

import sqlite3
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper


def watched(connection: BaseDatabaseWrapper) -> bool:
    """Return whether anybody may see what goes through the cursor of an open connection.

    That is Django's log of queries, an execute wrapper, a project's own database backend, or what error trackers and
    profilers put in the place of Django's cursor or of the driver's connection.
    """
    return (
        connection.queries_logged
        or bool(connection.execute_wrappers)
        or "cursor" in vars(connection)
        or type(connection.connection) is not sqlite3.Connection
        or not _djangos(type(connection).cursor, type(connection).create_cursor, CursorWrapper.execute)
    )


@lru_cache(maxsize=10)
def _djangos(*methods: Callable[..., Any]) -> bool:
    """Return whether these are Django's own; a wrapper bears their names, but not their globals."""
    return all(
        type(method) is FunctionType and method.__globals__["__name__"].startswith("django.") for method in methods
    )
