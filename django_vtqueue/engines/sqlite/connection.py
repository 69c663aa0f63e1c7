"""A connection to SQLite: its transactions, its file, and the execution of statements."""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any, TypeVar, cast

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.utils import OperationalError

from ...core import clock
from ...core.job import ClaimKey
from ...exceptions import StaleTransaction
from ..routing import shares_disk
from . import wal
from .cursor import execute
from .file import File, FileExchanged, never_created
from .file_checks import require_safe_file
from .lock import (
    BUSY,
    READING,
    WriteTransaction,
    alone,
    always,
    begun_fairly,
    beside,
    code_of,
    is_stale,
    patiently,
    writable,
)
from .mounts import MOST_SKEW, clock_offset
from .opened import check, check_unopened, in_doubt
from .task_transaction import task_transaction

Read = TypeVar("Read")
T = TypeVar("T")

_changed: Callable[[Any], int] = attrgetter("rowcount")
all_rows: Callable[[Any], list[tuple[Any, ...]]] = methodcaller("fetchall")
_first: Callable[[Any], tuple[Any, ...]] = methodcaller("fetchone")


class SQLiteConnection:
    """The connection of an engine; what it promises is said by Engine."""

    alias: str
    traced = True
    last_hold = longest_hold = 0.0

    _file: File | None = None  # inside without_lock_waits()
    _version: int | None = None
    _shortening: wal.Shortening | None = None

    def now(self) -> int:
        return clock.now() + clock.offset()

    def clock_error(self) -> float:
        if not shares_disk(self.alias):
            return 0.0
        offset = clock_offset(os.path.dirname(self.path()))
        return offset if abs(offset) > MOST_SKEW else 0.0

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.alias]

    def describe(self) -> str:
        name = Path(str(self.connection.settings_dict["NAME"])).name
        synchronous = ("off", "normal", "full", "extra")[self._value("PRAGMA synchronous", {})]
        return f"{name} ({self._value('PRAGMA journal_mode', {})}, {synchronous})"

    def path(self) -> str:
        return str(self._value("SELECT file FROM pragma_database_list WHERE name = 'main'", {}))

    def require_safe_file(self) -> None:
        require_safe_file(self.alias)

    def private(self) -> bool:
        return self.connection.in_atomic_block or self.connection.is_in_memory_db()  # type: ignore[attr-defined]

    def transaction(self) -> AbstractContextManager[object]:
        return self._transaction(self._connected(), always)

    def transaction_if(self, look: Callable[[float], T]) -> AbstractContextManager[T]:
        return self._transaction(self._connected(), look)

    @contextmanager
    def atomic(self) -> Iterator[None]:
        connection = self._connected()
        with ExitStack() as stack:
            block = transaction.atomic(using=self.alias)
            if connection.in_atomic_block or not connection.autocommit:
                stack.enter_context(block)
            else:
                stack.enter_context(writable(connection))
                with begun_fairly(self.connection):  # perhaps a second one, in the place of the first
                    stack.enter_context(block)
            yield
        if not connection.in_atomic_block:
            self._committed(connection)

    @contextmanager
    def snapshot(self) -> Iterator[int]:
        connection = self._connected()
        raw: sqlite3.Connection = connection.connection
        if connection.in_atomic_block or not connection.autocommit or raw.in_transaction:
            yield self.now()
            return
        end = "ROLLBACK"
        try:
            raw.execute("BEGIN")
            self._value(READING, {})  # from here on it sees nothing new
            yield self.now()
            end = "COMMIT"
        finally:
            if connection.connection is raw and raw.in_transaction:
                raw.execute(end)

    def beside_cursors(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except OperationalError as error:
            if not is_stale(error) or self.connection.in_atomic_block:
                raise
        with writable(self._connected()):
            return act()

    def _transaction(self, connection: BaseDatabaseWrapper, look: Callable[[float], T]) -> AbstractContextManager[T]:
        self._before_write(connection)
        if connection.in_atomic_block or not connection.autocommit:
            return nullcontext(look(0.0))
        held = self._held if self._file else None
        return WriteTransaction(connection, held, look, lambda: self._committed(connection))

    def _before_write(self, connection: BaseDatabaseWrapper) -> None:
        """Open the file that is there if it is another one than before; raise LogDeleted if only its log is gone.

        A control loop, which waits until that file has settled, and a transaction of the caller's get FileExchanged.
        """
        try:
            self._committed(connection)
        except FileExchanged:
            if self._file or connection.connection is not None:
                raise
            connection.ensure_connection()

    def _committed(self, connection: BaseDatabaseWrapper) -> None:
        """Raise LogDeleted, or FileExchanged, if no other connection can see what was committed just now."""
        try:
            check(connection)
        except FileExchanged:
            if connection.in_atomic_block or not connection.autocommit:
                connection.close_at = 0.0  # with the request: Django opens a new one for the next
            else:
                connection.close()
            raise

    def task_transaction(
        self, seconds: float, first: Callable[[], None] = lambda: None
    ) -> AbstractContextManager[None]:
        self.connection.ensure_connection()
        return task_transaction(self.connection, seconds, first)

    @contextmanager
    def without_lock_waits(self, *, pooled: bool = True) -> Iterator[None]:
        mine = self.connection

        def opened(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
            if connection is mine:
                connection.connection.executescript("PRAGMA busy_timeout = 0; PRAGMA wal_autocheckpoint = 0;")
                self._version = None

        self._file = File(mine)  # looked at before the connection is opened, so that no exchange is missed
        mine.close()
        connection_created.connect(opened)
        vars(mine)["get_connection_params"] = lambda: never_created(type(mine).get_connection_params(mine))
        try:
            yield
        finally:
            connection_created.disconnect(opened)
            with suppress(Exception):
                mine.close()
            vars(mine).pop("get_connection_params", None)
            self._file = None

    @contextmanager
    def lock_timeout(self, seconds: float) -> Iterator[None]:
        raw = self._connected().connection
        usual = raw.execute("PRAGMA busy_timeout").fetchone()[0]
        raw.execute(f"PRAGMA busy_timeout = {int(min(usual, max(seconds * 1000, 0)))}")
        try:
            yield
        finally:
            with suppress(sqlite3.ProgrammingError):  # it was closed
                raw.execute(f"PRAGMA busy_timeout = {usual}")

    def replaced(self) -> bool:
        self._connected()
        if self._file is None:
            return False
        self._file.check()
        check(self.connection)
        replaced, self._file.exchanged = self._file.exchanged, False
        return replaced

    def changed(self) -> bool:
        version = self._value("PRAGMA data_version", {})
        before, self._version = self._version, version
        return bool(version != before)

    def tidy(self, *, early: bool) -> int | None:
        if not self._file or (size := self._file.log_size()) < (wal.LONG_EARLY if early else wal.LONG):
            return None
        if size <= wal.SLOW:
            return wal.shorten(self._connected().connection, size)
        self._shortening = self._shortening or wal.Shortening(self.path())
        return self._shortening.begin(size)

    def _held(self, seconds: float) -> None:
        self.last_hold = seconds
        self.longest_hold = max(self.longest_hold, seconds)

    def _connected(self) -> BaseDatabaseWrapper:
        """Return the connection of this thread, open; for a control loop a missing file is an error."""
        connection = self.connection
        if connection.connection is None and self._file:
            self._file.open()
        try:
            connection.ensure_connection()
        except OperationalError:
            check_unopened(connection)
            raise
        connection.validate_thread_sharing()
        return connection

    def _run(self, sql: str, values: Mapping[str, Any]) -> int:
        """Execute a statement that writes; return how many rows it changed."""
        return int(self._change(self._connected(), sql, values))

    def _write(
        self,
        connection: BaseDatabaseWrapper,
        sql: str,
        values: Mapping[str, Any],
        outcome: Callable[[Any], Any] = _changed,
    ) -> Any:
        """Execute one statement that writes, in the caller's transaction or in one of its own; see _run."""
        if connection.in_atomic_block or not connection.autocommit:
            self._before_write(connection)
            return self._change(connection, sql, values, outcome)
        if in_doubt(connection):
            self._before_write(connection)
        try:
            return self._write_alone(connection, sql, values, outcome)
        except FileExchanged:
            if self._file:
                raise
            return self._write_alone(self._connected(), sql, values, outcome)  # no process reads the old file

    def _write_alone(
        self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any], outcome: Callable[[Any], Any]
    ) -> Any:
        """Execute one statement in a transaction of its own; raise what _committed does."""
        try:
            done = alone(connection, lambda: self._execute(connection, sql, values, outcome))
        except OperationalError as error:
            if not is_stale(error):
                self._committed(connection)  # of a deleted log: another process has fenced it
                raise
            stale = error.__cause__
            with closing(beside(connection, stale)) as second:
                done = alone(second, lambda: self._execute(second, sql, values, outcome))
                self._committed(second)
            return done
        self._committed(connection)
        return done

    def _change(
        self,
        connection: BaseDatabaseWrapper,
        sql: str,
        values: Mapping[str, Any],
        outcome: Callable[[Any], Any] = _changed,
    ) -> Any:
        """Execute a statement that writes in a transaction that is open; raise StaleTransaction where it cannot."""
        try:
            return self._execute(connection, sql, values, outcome)
        except OperationalError as error:
            if not is_stale(error):
                raise
            raise StaleTransaction from error.__cause__

    def _rows(self, sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._read(sql, values, all_rows)

    def _read(self, sql: str, values: Mapping[str, Any], outcome: Callable[[Any], Read]) -> Read:
        connection = self._connected()
        try:
            return self._execute(connection, sql, values, outcome)
        except OperationalError as error:
            if self._file and code_of(error) in BUSY:
                return patiently(lambda: self._execute(connection, sql, values, outcome))
            if "decode to UTF-8" not in str(error):
                raise
        raw: sqlite3.Connection = connection.connection
        usual, raw.text_factory = raw.text_factory, lambda text: text.decode(errors="replace")
        try:  # one damaged row must not hide the others
            return self._execute(connection, sql, values, outcome)
        finally:
            raw.text_factory = usual

    def _value(self, sql: str, values: Mapping[str, Any]) -> Any:
        return self._read(sql, values, _first)[0]

    def _list(self, sql: str, values: Mapping[str, Any]) -> list[Any]:
        return cast(list[Any], json.loads(self._value(sql, values)))

    def _keys(self, sql: str, values: Mapping[str, Any]) -> set[ClaimKey]:
        return {(job_id, claims) for job_id, claims in self._list(sql, values)}

    def _execute(
        self, connection: BaseDatabaseWrapper, sql: str, values: Mapping[str, Any], outcome: Callable[[Any], Read]
    ) -> Read:
        return execute(connection, sql, values, outcome, traced=self.traced)
