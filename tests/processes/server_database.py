"""As a database file, a database on a PostgreSQL server; a file of its own, for not everyone has psycopg."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.adapt import Buffer, Loader

from ..postgresql import USER, Server
from ..waiting import wait_until
from .database import Database
from .running import Running

TRANSACTIONS = """
SELECT pid, xact_start FROM pg_stat_activity
WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"""
BLOCKED = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND clock_timestamp() > query_start + interval '1 s'"""


class HexLoader(Loader):
    """Reads a UUID as SQLite has it."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode().replace("-", "")


class Row(dict[Any, Any]):
    """A row as SQLite gives it: its values by name or by number."""

    def __getitem__(self, key: Any) -> Any:
        return [*self.values()][key] if isinstance(key, int) else super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())


def row_factory(cursor: "psycopg.Cursor[Any]") -> Any:
    names = [column.name for column in cursor.description or ()]
    return lambda values: Row(zip(names, values, strict=True))


def rows(connection: "psycopg.Connection[Any]", sql: str, values: tuple[Any, ...]) -> list[Any]:
    """Execute a statement; return its rows."""
    cursor = connection.execute(sql, values or None)
    return cursor.fetchall() if cursor.description else []


class Kept:
    """A connection in autocommit, made when it is used first, and anew when the server has ended it."""

    def __init__(self, connect: "Callable[[], psycopg.Connection[Any]]") -> None:
        self._connect, self._lock = connect, Lock()
        self._connection: psycopg.Connection[Any] | None = None

    def execute(self, sql: str, *values: Any) -> list[Any]:
        """Execute a statement; return its rows."""
        with self._lock:
            if self._connection and not self._connection.closed:
                try:
                    return rows(self._connection, sql, values)
                except psycopg.OperationalError:
                    if not self._connection.closed:
                        raise
            self._connection = self._connect()
            return rows(self._connection, sql, values)

    def close(self) -> None:
        if self._connection:
            self._connection.close()


class ServerDatabase(Database):
    """A database of a server. ``folder``: for files beside it."""

    def __init__(self, server: Server, folder: Path, doorbells: str) -> None:
        super().__init__(folder / "database", doorbells)
        self.server, self.name = server, f"test_{uuid4().hex}"
        self._kept = Kept(self._connected)

    @contextmanager
    def copied(self, other: str) -> Iterator[None]:
        """Be a copy of another database, to which nothing is connected, in the block."""
        self.server.session.close()
        with self._connected("template1") as connection:
            connection.execute(f"CREATE DATABASE {self.name} TEMPLATE {other}")
            try:
                yield
            finally:
                self._kept.close()
                connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")

    def settings(self, application_name: str = "") -> dict[str, Any]:
        """Return what DATABASES say of it to a process that the server shall know by a name."""
        return {**self.server.settings(self.name), "OPTIONS": {"application_name": application_name}}

    @property
    def variables(self) -> dict[str, str]:
        """See Database."""
        return {"VTQUEUE_TEST_SERVER": json.dumps(self.server.settings(self.name))}

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """See Database."""
        return self._kept.execute(sql.replace("?", "%s"), *values)

    def write(self, sql: str, *values: Any) -> None:
        """See Database."""
        self._kept.execute(sql.replace("?", "%s"), *values)

    def on(self, name: str, event: str, condition: str, statement: str, *, at_commit: bool = False) -> None:
        """See Database."""
        kind, when = ("CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED") if at_commit else ("TRIGGER", "")
        self.write(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statement}; RETURN NULL; END $$;"
            f"CREATE {kind} {name} AFTER {event} {when} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION {name}()"
        )

    def refuse(self, name: str, event: str, condition: str, words: str) -> None:
        """See Database."""
        self.on(name, event, condition, f"RAISE EXCEPTION '{words}'")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all others from writing to jobs, as an ALTER TABLE or a foreign program would."""
        with self._connected() as connection, connection.transaction():
            connection.execute("LOCK TABLE vtqueue_job IN EXCLUSIVE MODE")
            yield

    def is_locked(self) -> bool:
        """See Database."""
        until, begun = time.monotonic() + 1, self._transactions()
        while begun := begun & self._transactions():
            if time.monotonic() > until:
                return True
            time.sleep(0.01)
        return False

    def _transactions(self) -> set[tuple[int, datetime]]:
        return {(row["pid"], row["xact_start"]) for row in self.rows(TRANSACTIONS)}

    def wait_until_blocked(self, *workers: Running) -> None:
        """See Database; here they say nothing."""
        wait_until(lambda: self.rows(BLOCKED)[0][0] >= len(workers))

    def _connected(self, name: str = "") -> "psycopg.Connection[Row]":
        connection = psycopg.connect(
            host=str(self.server.folder),
            user=USER,
            dbname=name or self.name,
            application_name="test",
            autocommit=True,
            prepare_threshold=None,
            row_factory=row_factory,
        )
        connection.adapters.register_loader("uuid", HexLoader)
        return connection
