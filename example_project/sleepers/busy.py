"""Counts each time that SQLite refuses a lock to this process (SQLITE_BUSY), in all of its connections."""

import sqlite3
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created


def count_busy(met: Callable[[], None]) -> None:
    """Call `met` at each refusal. No connection waits for a lock meanwhile, so that none is hidden."""

    def look(error: BaseException) -> None:
        cause = error.__cause__ or error
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            met()

    class Connection(sqlite3.Connection):
        """What is executed without a cursor of Django's: the queue's own transactions."""

        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            try:
                return super().execute(*arguments)
            except sqlite3.Error as error:
                look(error)
                raise

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except Exception as error:
            look(error)
            raise

    def created(connection: Any, **kwargs: Any) -> None:
        if wrapper not in connection.execute_wrappers:
            connection.execute_wrappers.append(wrapper)

    connections.settings["default"]["OPTIONS"].update(factory=Connection, timeout=0)
    connection_created.connect(created, weak=False)
