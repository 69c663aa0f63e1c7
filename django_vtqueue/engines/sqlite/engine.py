"""The queue on SQLite.

Rows go in as one JSON argument and come out as one JSON value: each step of a statement gives up Python's global
lock, and beside computing threads the write lock would be held for as long as it takes to get it back.
"""

import json
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, cast

from ...core import history, states
from ...core.clock import SECOND
from ...core.expiry import GRACE, REST, Patience
from ...core.ids import first_id
from ...core.job import Due, Expired, Handle, HeldJob, Key, NewJobs, Progress, Scope, StoredJob
from ..base import Engine
from .due import (
    DUE_ALL,
    DUE_NAMED,
    DUE_OF_ONE,
    DUE_UNPAUSED,
    EARLIEST_ALL,
    EARLIEST_NAMED,
    EARLIEST_UNPAUSED,
    EXPIRED,
    FIRST_EXPIRY,
    PRUNE_PAUSES,
)
from .lock import always
from .settling import SQLiteSettling
from .statements import (
    ASK,
    ASKED,
    ASKED_NOW,
    BEGIN,
    CLOCK_WAS_AHEAD,
    COUNT,
    EXTEND,
    FIND,
    HELD_BY,
    INSERT,
    INSERT_MANY,
    LEASE,
    NOT_HELD,
    NOTE_PROGRESS,
    PRUNABLE,
    PRUNE_JOBS,
    PRUNE_LETTERS,
    PURGE,
    READ,
    REMOVE_REQUEUED,
    RENEW,
    REQUEUE,
    REQUEUED,
    SET_RIGHT,
    SHOW,
    STAMPED_AHEAD,
    guard,
)
from .values import MEND

SLICE = 5000  # rows of one statement: a lock is held for some 50 ms at the most
FIRST = 4  # rows that are read as one value, before it is known how large they are
PIECE = 2_000_000  # characters of such a value, about


def _leases(scope: Scope) -> dict[str, Any]:
    """Return what the statements about leases are given of a scope."""
    return {"raw": scope.raw, "names": None if scope.queues is None else json.dumps(_names(scope))}


def _names(scope: Scope) -> list[str]:
    """Return the names of a scope, each once."""
    return sorted(set(scope.queues or ()))


class SQLiteEngine(SQLiteSettling, Engine):
    """See Engine."""

    def insert(self, new: NewJobs) -> bool:
        connection = self._connected()
        values = {
            "queue_name": new.queue_name,
            "task_path": new.task_path,
            "priority": new.priority,
            "max_attempts": new.max_attempts,
            "lease_us": new.lease_us,
            "enqueued_at": new.enqueued_at,
            "due_at": new.due_at,
        }
        if len(new.jobs) == 1:
            self._write(connection, INSERT, {"id": new.jobs[0][0], "payload": new.jobs[0][1], **values})
        else:
            with self._transaction(connection, always):
                for start in range(0, len(new.jobs), SLICE):
                    self._run(INSERT_MANY, {"jobs": json.dumps(dict(new.jobs[start : start + SLICE])), **values})
        return not connection.in_atomic_block

    def earliest(self, scopes: Iterable[Scope]) -> int | None:
        found = [look(scope) for scope in scopes for look in (self._earliest, self._first_expiry)]
        return min((instant for instant in found if instant is not None), default=None)

    def _first_expiry(self, scope: Scope) -> int | None:
        return cast(int | None, self._value(FIRST_EXPIRY, {**_leases(scope), "grace": GRACE}))

    def expired(self, scope: Scope, limit: int, now: int, patience: Patience) -> list[Expired]:
        values = {**_leases(scope), **patience._asdict(), "rest": REST, "now": now, "limit": limit}
        return [Expired(*row) for row in self._list(EXPIRED, values)]

    def show(self, handles: Sequence[Handle]) -> None:
        self._run(SHOW, {"rowids": json.dumps(handles)})

    def _earliest(self, scope: Scope) -> int | None:
        values: dict[str, Any] = {"raw": scope.raw}
        if scope.queues is None:
            found, each = self._value(EARLIEST_ALL, values), EARLIEST_UNPAUSED
        else:
            found, each = -inf, EARLIEST_NAMED
            values["names"] = json.dumps(_names(scope))
        return cast(int | None, self._value(each, values) if found == -inf else found)

    def due(self, scope: Scope, limit: int, now: int) -> list[Due]:
        values: dict[str, Any] = {"raw": scope.raw, "now": now, "limit": limit}
        if scope.queues is None:
            found, each = self._value(DUE_ALL, values), DUE_UNPAUSED
        elif len(names := _names(scope)) == 1:
            found = self._value(DUE_OF_ONE, {**values, "name": names[0]}) or "[]"
        else:
            found, each = None, DUE_NAMED
            values["names"] = json.dumps(names)
        if found is None:
            found = self._value(each, values)
        return [Due(*row) for row in json.loads(found)]

    def lease(
        self, handles: Sequence[Handle], worker_id: str, now: int, lease_us: int | None, attempts: int = 1
    ) -> None:
        values = {"worker_id": worker_id, "now": now, "lease_us": lease_us, "attempts": attempts}
        self._run(LEASE, {"rowids": json.dumps(handles), **values})

    def begin(self, jobs: Sequence[HeldJob], now: int, *, waited: bool = False) -> int:
        return self._run(BEGIN, {"held": json.dumps([guard(job) for job in jobs]), "now": now, "waited": waited})

    def mend(self, handles: Sequence[Handle], worker_id: str) -> None:
        self._run(MEND, {"rowids": json.dumps(handles), "worker_id": worker_id})

    def read(self, handles: Sequence[Handle]) -> dict[Handle, HeldJob]:
        jobs: dict[Handle, HeldJob] = {}
        start, count = 0, FIRST
        while start < len(handles):
            [(rows,)] = self._rows(READ, {"rowids": json.dumps(handles[start : start + count])})
            jobs.update((rowid, HeldJob(*row)) for rowid, *row in json.loads(rows))
            start, count = start + count, max(PIECE * count // len(rows), 1)
        return jobs

    def renew(self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False) -> set[Key]:
        held = json.dumps([guard(job) for job in jobs])
        if self._run(RENEW, {"held": held, "now": now, "afresh": afresh}) == len(jobs):
            return set()
        return self._keys(NOT_HELD, {"held": held})

    def extend(self, job: HeldJob, now: int, until: int, *, lengthen: bool = False) -> bool:
        held = {"id": job.id, "claims": job.claims, "worker_id": job.worker_id}
        return self._write(self._connected(), EXTEND, {**held, "now": now, "until": until, "lengthen": lengthen}) == 1

    def ask(self, job_ids: Sequence[str], now: int, by: str) -> tuple[set[str], list[HeldJob]]:
        values = {"ids": json.dumps(job_ids), "now": now}
        self._run(ASK, {**values, "by": by})
        asked = self._list(ASKED_NOW, values)
        waiting = [rowid for _, rowid, state in asked if state == states.READY]
        return {job_id for job_id, _, _ in asked}, list(self.read(waiting).values()) if waiting else []

    def asked(self, jobs: Sequence[HeldJob]) -> dict[Key, str]:
        [(found,)] = self._rows(ASKED, {"held": json.dumps([guard(job) for job in jobs])})
        return {(job_id, claims): by for job_id, claims, by in json.loads(found)}

    def note_progress(self, said: Sequence[tuple[HeldJob, Progress]]) -> None:
        self._run(NOTE_PROGRESS, {"said": json.dumps([(*guard(job), *progress) for job, progress in said])})

    def find(self, job_id: str) -> StoredJob | None:
        rows = self._rows(FIND, {"id": job_id})
        return StoredJob(*rows[0]) if rows else None

    def held_by(self, worker_id: str) -> list[HeldJob]:
        return [HeldJob(*row) for row in self._rows(HELD_BY, {"worker_id": worker_id})]

    def requeue(
        self,
        letter_ids: Sequence[str],
        now: int,
        by: str = "",
        *,
        queue_name: str | None = None,
        priority: int | None = None,
    ) -> set[str]:
        ids = {"ids": json.dumps(letter_ids)}
        entry = json.dumps(history.requeued(by, now))
        with self.transaction():
            self._run(REQUEUE, {**ids, "now": now, "entry": entry, "queue_name": queue_name, "priority": priority})
            moved = set(self._list(REQUEUED, ids))
            self._run(REMOVE_REQUEUED, ids)
        return moved

    def purge(self, queue_name: str, now: int) -> int:
        total = 0
        while True:
            values = {"queue_name": queue_name, "now": now, "limit": SLICE}
            deleted = self._write(self._connected(), PURGE, values)
            total += deleted
            if deleted < SLICE:
                return total

    def prunable(self, now: int) -> bool:
        return bool(self._value(PRUNABLE, {"now": now}))

    def prune(self, now: int, limit: int) -> int:
        with self.transaction():
            values = {"now": now, "limit": limit}
            return sum(self._run(prune, values) for prune in (PRUNE_JOBS, PRUNE_LETTERS, PRUNE_PAUSES))

    def clock_was_ahead(self, now: int) -> bool:
        return bool(self._value(CLOCK_WAS_AHEAD, {"now": now, "first_id": first_id(now + SECOND)}))

    def stamped_ahead(self, after: Handle, now: int, limit: int) -> tuple[list[Handle], Handle | None]:
        rows = self._list(STAMPED_AHEAD, {"after": after, "now": now, "limit": limit})
        return [rowid for rowid, ahead in rows if ahead], rows[-1][0] if len(rows) == limit else None

    def set_right(self, handles: Sequence[Handle], now: int) -> int:
        return self._run(SET_RIGHT, {"rowids": json.dumps(handles), "now": now})

    def count(self, queue_name: str) -> int:
        return int(self._value(COUNT, {"queue_name": queue_name}))
