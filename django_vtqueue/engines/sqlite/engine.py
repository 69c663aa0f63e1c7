"""The queue on SQLite.

Rows go in as one JSON argument and come out as one JSON value, so that a statement takes one step. Each step gives up
Python's global lock; beside threads that compute it takes long to get that back, with the write lock held meanwhile.
"""

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField
from django.db.models.expressions import RawSQL

from ...core import history
from ...core.job import ClaimKey, Handle, HeldJob, NewJobs, Progress, StoredJob
from ..base import Engine
from ..portable import parts
from . import statements as sql
from .connection import all_rows
from .cursor import has_open_cursor
from .due import SQLiteDue
from .limits import SQLiteLimits
from .lock import always, replace_begin
from .opened import outdated
from .overflow import SQLiteOverflow
from .settling import SQLiteSettling
from .statements import guard
from .steps import SQLiteSteps
from .trouble import trouble

NO_KEY = (None,)
FIRST = 4  # rows that are read as one value, before it is known how large they are
PIECE = 2_000_000  # characters of such a value, about


def _common(new: NewJobs) -> dict[str, Any]:
    """Return what all jobs that are published together have in common."""
    return {
        "queue_name": new.queue_name,
        "task_path": new.task_path,
        "priority": new.priority,
        "max_attempts": new.max_attempts,
        "lease_us": new.lease_us,
        "enqueued_at": new.enqueued_at,
        "due_at": new.due_at,
    }


def _moments(new: NewJobs) -> dict[str, Any]:
    """Return the moments of new jobs beside ``due_at``, those that they have."""
    moments = {} if new.start_by is None else {"start_by": new.start_by}
    return moments if new.wake_at is None else {**moments, "wake_at": new.wake_at}


def _options(new: NewJobs) -> dict[str, Any]:
    """Return the options of the only new job, those that it has."""
    options: dict[str, Any] = _moments(new)
    if new.unique_keys and new.unique_keys[0] is not None:
        options |= {"unique_key": new.unique_keys[0], "unique_until": new.unique_until}
    if new.concurrency_keys or new.rate_keys or new.parent_id:
        keys = (new.concurrency_keys or NO_KEY)[0], (new.rate_keys or NO_KEY)[0]
        options |= {"concurrency_key": keys[0], "rate_key": keys[1], "parent_id": new.parent_id}
        if new.ordered:
            options["ordered"] = 1
    return options


class SQLiteEngine(SQLiteDue, SQLiteSettling, SQLiteOverflow, SQLiteLimits, SQLiteSteps, Engine):
    """See Engine."""

    kept_open = True  # to open it anew takes 0.3 ms
    outdated = staticmethod(outdated)
    trouble = staticmethod(trouble)
    begin_fairly = staticmethod(replace_begin)
    has_open_cursor = staticmethod(has_open_cursor)

    def insert(self, new: NewJobs) -> BaseDatabaseWrapper | None:
        connection, values = self._connected(), _common(new)
        if len(new.jobs) == 1:
            [(values["id"], values["payload"])] = new.jobs
            options = _moments(new)
            self._write(connection, sql.insert_with((*options,)), values | options)
        else:
            values |= {"start_by": new.start_by, "wake_at": new.wake_at, "state": new.state}
            with self._transaction(connection, always):
                for _, some in parts(new.jobs, itemgetter(1)):
                    self._run(sql.INSERT_MANY, {"jobs": json.dumps(dict(some)), **values})
        return connection if connection.in_atomic_block else None

    def insert_with_keys(self, new: NewJobs) -> dict[int, tuple[str, str]]:
        return self._insert_one(new) if len(new.jobs) == 1 else self._insert_many(new)

    def _insert_one(self, new: NewJobs) -> dict[int, tuple[str, str]]:
        connection, options = self._connected(), _options(new)
        values = _common(new) | options
        [(values["id"], values["payload"])] = new.jobs
        if self._write(connection, sql.insert_with((*options,), sql.SKIP_IF_TAKEN), values):
            return {}
        values["replace"] = new.replace
        [(job_id, _, task_path)] = self._write(
            connection, sql.insert_with((*options,), sql.UPDATE_IF_TAKEN), values, all_rows
        )
        return {0: (job_id, task_path)} if job_id != values["id"] else {}

    def _insert_many(self, new: NewJobs) -> dict[int, tuple[str, str]]:
        options = {"start_by": new.start_by, "unique_until": new.unique_until, "parent_id": new.parent_id}
        options |= {"wake_at": new.wake_at, "state": new.state}
        values = {**_common(new), **options, "ordered": int(new.ordered), "replace": new.replace}
        none: list[str | None] = [None] * len(new.jobs)
        keys = (new.unique_keys or none, new.concurrency_keys or none, new.rate_keys or none)
        rows: list[Any] = [(job_id, *each, payload) for (job_id, payload), *each in zip(new.jobs, *keys, strict=True)]
        duplicates = {}
        with self._transaction(self._connected(), always):
            for start, some in parts(rows, itemgetter(-1)):
                given = {"jobs": json.dumps(some), **values}
                returned = self._change(self._connected(), sql.INSERT_MANY_WITH_OPTIONS, given, all_rows)
                of_key = {key: (job_id, task_path) for job_id, key, task_path in returned}
                for index, (job_id, key, *_) in enumerate(some, start):
                    if key is not None and of_key[key][0] != job_id:
                        duplicates[index] = of_key[key]
        return duplicates

    def depth(self, queue_name: str, limit: int) -> int:
        return int(self._value(sql.DEPTH, {"name": queue_name, "now": self.now(), "limit": limit}))

    def pauses(self) -> dict[str, int | None]:
        return dict(self._rows(sql.PAUSES, {}))

    def lease(
        self, handles: Sequence[Handle], worker_id: str, now: int, lease_us: int | None, attempts: int = 1
    ) -> dict[Handle, HeldJob]:
        values = {"worker_id": worker_id, "now": now, "lease_us": lease_us, "attempts": attempts}
        self._run(sql.LEASE, {"rowids": json.dumps(handles), **values})
        return {}

    def start_attempts(self, jobs: Sequence[HeldJob], now: int) -> int:
        return self._run(sql.START_ATTEMPTS, {"held": json.dumps([guard(job) for job in jobs]), "now": now})

    def read(self, handles: Sequence[Handle]) -> dict[Handle, HeldJob]:
        jobs: dict[Handle, HeldJob] = {}
        start, count = 0, FIRST
        while start < len(handles):
            [(rows,)] = self._rows(sql.READ, {"rowids": json.dumps(handles[start : start + count])})
            jobs.update((rowid, HeldJob(*row)) for rowid, *row in json.loads(rows))
            start, count = start + count, max(PIECE * count // len(rows), 1)
        return jobs

    def renew(self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False) -> set[ClaimKey]:
        held = json.dumps([guard(job) for job in jobs])
        if self._run(sql.RENEW, {"held": held, "now": now, "afresh": afresh}) == len(jobs):
            return set()
        return self._keys(sql.NOT_HELD, {"held": held})

    def extend(self, job: HeldJob, now: int, until: int, *, lengthen: bool = False) -> bool:
        held = {"id": job.id, "claims": job.claims, "worker_id": job.worker_id}
        extended = self._write(
            self._connected(), sql.EXTEND, {**held, "now": now, "until": until, "lengthen": lengthen}
        )
        return bool(extended)

    def request_cancel(self, job_ids: Sequence[str], now: int, by: str) -> tuple[set[str], list[HeldJob]]:
        values = {"ids": json.dumps(job_ids), "now": now}
        self._run(sql.REQUEST_CANCEL, {**values, "by": by})
        changed = self._list(sql.CANCEL_REQUESTED_NOW, values)
        waiting = [rowid for _, rowid, waits in changed if waits]
        return {job_id for job_id, _, _ in changed}, list(self.read(waiting).values()) if waiting else []

    def cancel_requests(self, jobs: Sequence[HeldJob]) -> dict[ClaimKey, str]:
        [(found,)] = self._rows(sql.CANCEL_REQUESTS, {"held": json.dumps([guard(job) for job in jobs])})
        return {(job_id, claims): by for job_id, claims, by in json.loads(found)}

    def write_progress(self, unsaved: Sequence[tuple[HeldJob, Progress]]) -> None:
        self._run(sql.NOTE_PROGRESS, {"unsaved": json.dumps([(*guard(job), *progress) for job, progress in unsaved])})

    def find_all(self, job_ids: Sequence[str]) -> dict[str, StoredJob]:
        return {row[0]: StoredJob(*row) for row in self._rows(sql.FIND, {"ids": json.dumps(job_ids)})}

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
        entry = {"entry": json.dumps(history.requeued(by, now)), "orphan": history.PARENT_WENT_ON}
        with self.transaction():
            self._run(sql.REQUEUE, {**ids, "now": now, **entry, "queue_name": queue_name, "priority": priority})
            moved = set(self._list(sql.REQUEUED, ids))
            self._run(sql.REMOVE_REQUEUED, ids)
        return moved

    def handle(self) -> RawSQL:
        return RawSQL("vtqueue_job.rowid", (), BigIntegerField())

    def by_index(self, table: str, index: str) -> str:
        # Where ANALYZE has found a few rows all of them are walked over from then on, however many there are now.
        return f" INDEXED BY {index or f'sqlite_autoindex_{table}_1'}"

    def prune(self, now: int, limit: int) -> int:
        values = {"now": now, "limit": limit}
        if not self._value(sql.PRUNABLE, values):
            return 0
        with self.transaction():
            return sum(self._run(prune, values) for prune in (sql.PRUNE_JOBS, sql.PRUNE_LETTERS, sql.PRUNE_PAUSES))
