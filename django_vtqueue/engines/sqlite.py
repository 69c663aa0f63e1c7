"""The queue on SQLite.

Rows go in as one JSON argument and come out as one JSON value: each step of a statement gives up Python's global
lock, and beside computing threads the write lock would be held for as long as it takes to get it back.
"""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.utils import InterfaceError, OperationalError, ProgrammingError

from .. import clock, states
from ..failures import Failure
from ..jobs import Due, HeldJob, Key, NewJobs, Place, Scope, Settlement, StoredJob
from .base import Engine, Trouble
from .sqlite_damage import MEND
from .sqlite_effects import effects
from .sqlite_file import File, FileExchanged
from .sqlite_lock import BUSY, code_of, own_patience, write_transaction
from .sqlite_sql import (
    AHEAD,
    BACKLOG,
    BEGIN,
    BURY,
    CHANGED,
    COUNT,
    DUE_ALL,
    DUE_NAMED,
    EARLIEST_ALL,
    EARLIEST_NAMED,
    EXTEND,
    FIND,
    HELD_BY,
    INSERT,
    INSERT_MANY,
    LEASE,
    LEVEL_BELOW,
    NOT_BURIED,
    NOT_HELD,
    NOT_SETTLED,
    PRUNABLE,
    PRUNE_JOBS,
    PRUNE_LETTERS,
    PURGE,
    READ,
    REMOVE_BURIED,
    REMOVE_EXPIRED,
    REMOVE_REQUEUED,
    RENEW,
    REQUEUE,
    REQUEUED,
    SET_RIGHT,
    SETTLE,
)
from .sqlite_texts import for_django, replacing_bad_bytes

SLICE = 5000  # rows of one statement: a lock is held for some 50 ms at the most
DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _guard(job: HeldJob) -> tuple[str, int, str]:
    """Return what a statement's GUARD compares."""
    return job.id, job.claims, job.worker_id


def _told(failure: Failure | None) -> tuple[str, str, str]:
    return (failure.exception_class, failure.message, failure.fingerprint) if failure else ("", "", "")


def _all(cursor: Any) -> list[tuple[Any, ...]]:
    return cast(list[tuple[Any, ...]], cursor.fetchall())


class SQLiteEngine(Engine):
    """See Engine."""

    _file: File | None = None  # inside impatient()
    _version: int | None = None

    def now(self) -> int:
        return clock.now()

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.alias]

    def describe(self) -> str:
        name = Path(str(self.connection.settings_dict["NAME"])).name
        synchronous = ("off", "normal", "full", "extra")[self._value("PRAGMA synchronous", {})]
        return f"{name} ({self._value('PRAGMA journal_mode', {})}, {synchronous})"

    def path(self) -> str:
        return str(self._value("SELECT file FROM pragma_database_list WHERE name = 'main'", {}))

    def private(self) -> bool:
        return self.connection.in_atomic_block or self.connection.is_in_memory_db()  # type: ignore[attr-defined]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        connection = self._connected()
        if connection.in_atomic_block or not connection.get_autocommit():
            yield
            return
        raw = connection.connection
        waiting = nullcontext(0.0) if self._file else own_patience(raw)  # inside impatient() it is off already
        with connection.wrap_database_errors, waiting as patience, write_transaction(raw, patience):
            yield

    def effects(self, seconds: float) -> AbstractContextManager[None]:
        self.connection.ensure_connection()
        return effects(self.connection, seconds)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        mine = self.connection

        def opened(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
            if connection is mine:
                connection.connection.execute("PRAGMA busy_timeout = 0")
                self._version = None

        self._file = File(mine)  # looked at before the connection is opened, so that no exchange is missed
        mine.close()
        connection_created.connect(opened)
        try:
            yield
        finally:
            connection_created.disconnect(opened)
            self.disconnect()
            self._file = None

    def replaced(self) -> bool:
        self._connected()
        if self._file is None:
            return False
        self._file.check()
        replaced, self._file.exchanged = self._file.exchanged, False
        return replaced

    def disconnect(self) -> None:
        with suppress(Exception):
            self.connection.close()

    def insert(self, new: NewJobs) -> None:
        values = {
            "queue_name": new.queue_name,
            "task_path": new.task_path,
            "priority": new.priority,
            "max_attempts": new.max_attempts,
            "lease_us": new.lease_us,
            "enqueued_at": new.enqueued_at,
            "visible_at": new.visible_at,
        }
        with self.transaction():
            if len(new.jobs) == 1:
                self._run(INSERT, {"id": new.jobs[0][0], "payload": new.jobs[0][1], **values})
                return
            for start in range(0, len(new.jobs), SLICE):
                self._run(INSERT_MANY, {"jobs": json.dumps(new.jobs[start : start + SLICE]), **values})

    def earliest(self, scopes: Iterable[Scope]) -> int | None:
        found = [
            self._value(EARLIEST_ALL, {"raw": scope.raw})
            if scope.queues is None
            else self._value(EARLIEST_NAMED, {"raw": scope.raw, "names": json.dumps(scope.queues)})
            for scope in scopes
        ]
        return min((instant for instant in found if instant is not None), default=None)

    def due(self, scope: Scope, limit: int, now: int, resumed_at: int) -> list[Due]:
        values = {"raw": scope.raw, "now": now, "resumed_at": resumed_at, "limit": limit}
        if scope.queues is None:
            rows = self._list(DUE_ALL, values)
        else:
            rows = self._list(DUE_NAMED, {**values, "names": json.dumps(sorted(set(scope.queues)))})  # each row once
        return [Due(*row) for row in rows]

    def lease(self, rowids: Sequence[int], worker_id: str, now: int, lease_us: int | None, attempts: int = 1) -> None:
        values = {"worker_id": worker_id, "now": now, "lease_us": lease_us, "attempts": attempts}
        self._run(LEASE, {"rowids": json.dumps(rowids), **values})

    def begin(self, jobs: Sequence[HeldJob], now: int) -> None:
        self._run(BEGIN, {"held": json.dumps([_guard(job) for job in jobs]), "now": now})

    def mend(self, rowids: Sequence[int], worker_id: str) -> None:
        self._run(MEND, {"rowids": json.dumps(rowids), "worker_id": worker_id})

    def read(self, rowids: Sequence[int]) -> dict[int, HeldJob]:
        return {row[0]: HeldJob(*row[1:]) for row in self._rows(READ, {"rowids": json.dumps(rowids)})}

    def renew(self, jobs: Sequence[HeldJob], now: int) -> set[Key]:
        held = json.dumps([_guard(job) for job in jobs])
        if self._run(RENEW, {"held": held, "now": now}) == len(jobs):
            return set()
        return self._keys(NOT_HELD, {"held": held})

    def extend(self, job: HeldJob, now: int, lease_us: int) -> bool:
        values = {"id": job.id, "claims": job.claims, "worker_id": job.worker_id, "now": now, "lease_us": lease_us}
        with self.transaction():
            return self._run(EXTEND, values) == 1

    def settle(self, settlements: Sequence[Settlement]) -> set[Key]:
        staying = [item for item in settlements if item.state != states.FAILED]
        dying = [item for item in settlements if item.state == states.FAILED]
        return (self._settle(staying) if staying else set()) | (self._bury(dying) if dying else set())

    def _settle(self, settlements: Sequence[Settlement]) -> set[Key]:
        rows = json.dumps(
            [
                (*_guard(s.job), s.state, s.attempts, s.visible_at, s.finished_at, s.expires_at, s.result, s.history)
                for s in settlements
            ],
            ensure_ascii=False,
        )
        lost: set[Key] = set()
        if self._run(SETTLE, {"settlements": rows}) != len(settlements):
            lost = self._keys(NOT_SETTLED, {"settlements": rows})
        unkept = [s.job.id for s in settlements if s.expires_at is not None and s.expires_at == s.finished_at]
        if unkept:
            self._run(REMOVE_EXPIRED, {"ids": json.dumps(unkept)})
        return lost

    def _bury(self, settlements: Sequence[Settlement]) -> set[Key]:
        rows = json.dumps(
            [(*_guard(s.job), s.finished_at, s.expires_at, s.history, *_told(s.failure)) for s in settlements],
            ensure_ascii=False,
        )
        buried = self._run(BURY, {"settlements": rows})
        self._run(REMOVE_BURIED, {"settlements": rows})
        if buried == len(settlements):
            return set()
        return self._keys(NOT_BURIED, {"settlements": rows})

    def find(self, job_id: str) -> StoredJob | None:
        rows = self._rows(FIND, {"id": job_id})
        return StoredJob(*rows[0]) if rows else None

    def held_by(self, worker_id: str) -> list[HeldJob]:
        return [HeldJob(*row) for row in self._rows(HELD_BY, {"worker_id": worker_id})]

    def requeue(self, letter_ids: Sequence[str], now: int) -> set[str]:
        ids = {"ids": json.dumps(letter_ids)}
        with self.transaction():
            self._run(REQUEUE, {**ids, "now": now})
            moved = set(self._list(REQUEUED, ids))
            self._run(REMOVE_REQUEUED, ids)
        return moved

    def purge(self, queue_name: str, now: int) -> int:
        total = 0
        while True:
            with self.transaction():
                deleted = self._run(PURGE, {"queue_name": queue_name, "now": now, "limit": SLICE})
            total += deleted
            if deleted < SLICE:
                return total

    def prunable(self, now: int) -> bool:
        return bool(self._value(PRUNABLE, {"now": now}))

    def prune(self, now: int, limit: int) -> int:
        with self.transaction():
            values = {"now": now, "limit": limit}
            return self._run(PRUNE_JOBS, values) + self._run(PRUNE_LETTERS, values)

    def ahead(self, place: Place, now: int, limit: int) -> tuple[list[int], Place | None]:
        rows = self._list(AHEAD, {**place._asdict(), "now": now, "limit": limit})
        found = [rowid for rowid, _, stamped_ahead in rows if stamped_ahead]
        if len(rows) == limit:
            return found, place._replace(rowid=rows[-1][0], visible_at=rows[-1][1])
        below = self._value(LEVEL_BELOW, {"raw": place.raw, "priority": place.priority})
        if below is not None:
            return found, Place(place.raw, below)
        return found, Place(raw=False) if place.raw else None

    def set_right(self, rowids: Sequence[int], now: int) -> int:
        return self._run(SET_RIGHT, {"rowids": json.dumps(rowids), "now": now})

    def count(self, queue_name: str) -> int:
        return int(self._value(COUNT, {"queue_name": queue_name}))

    def backlog(self, scopes: Iterable[Scope], now: int) -> int:
        return sum(
            self._value(BACKLOG, {"raw": scope.raw, "now": now, "names": scope.queues and json.dumps(scope.queues)})
            for scope in scopes
        )

    def changed(self) -> bool:
        version = self._value(CHANGED, {})
        before, self._version = self._version, version
        return bool(version != before)

    def trouble(self, error: BaseException) -> Trouble | None:
        code = code_of(error)
        if code in BUSY:
            return Trouble.BUSY
        if code in DISK:
            return Trouble.DISK
        if code in DAMAGED:
            return Trouble.DAMAGED
        if code == sqlite3.SQLITE_ERROR and re.search("no such (table|column|index)|has no column", str(error)):
            return Trouble.SCHEMA
        if isinstance(error, FileExchanged):
            return Trouble.GONE
        if isinstance(error, InterfaceError | ProgrammingError | sqlite3.ProgrammingError) and "closed" in str(error):
            return Trouble.GONE
        return None

    def _connected(self) -> BaseDatabaseWrapper:
        """Return the connection, open. SQLite creates a file that is missing; a control loop waits for one."""
        connection = self.connection
        if connection.connection is None and self._file:
            self._file.open()
        connection.ensure_connection()
        return connection

    def _run(self, sql: str, values: Mapping[str, Any]) -> int:
        """Execute a statement that writes; return how many rows it changed."""
        return cast(int, self._execute(sql, values, lambda cursor: cursor.rowcount))

    def _rows(self, sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        try:
            return self._execute(sql, values, _all)  # type: ignore[no-any-return]
        except OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
            with replacing_bad_bytes(self.connection.connection):  # one damaged row must not hide the others
                return self._execute(sql, values, _all)  # type: ignore[no-any-return]

    def _value(self, sql: str, values: Mapping[str, Any]) -> Any:
        return self._execute(sql, values, lambda cursor: cursor.fetchone()[0])

    def _list(self, sql: str, values: Mapping[str, Any]) -> list[Any]:
        return cast(list[Any], json.loads(self._value(sql, values)))

    def _keys(self, sql: str, values: Mapping[str, Any]) -> set[Key]:
        return {(job_id, claims) for job_id, claims in self._list(sql, values)}

    def _execute(self, sql: str, values: Mapping[str, Any], outcome: Any) -> Any:
        connection = self.connection
        if self.traced:
            with connection.cursor() as cursor:
                cursor.execute(for_django(sql), values)
                return outcome(cursor)
        self._connected()
        with connection.wrap_database_errors:
            return outcome(connection.connection.execute(sql, values))
