"""The queue on PostgreSQL."""

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import UUIDField
from django.db.models.expressions import RawSQL
from django.db.utils import OperationalError

from ...core import history
from ...core.job import ClaimKey, Handle, HeldJob, NewJobs, Progress, StoredJob
from ..base import Engine
from ..portable import parts
from ..trouble import Trouble
from . import statements as sql
from .due import PostgreSQLDue
from .limits import OF_QUEUE, PostgreSQLLimits
from .listening import PostgreSQLListening
from .overflow import PostgreSQLOverflow
from .settling import PostgreSQLSettling
from .statements import HELD, guard, uuids
from .steps import PostgreSQLSteps
from .trouble import trouble


class HandleField(UUIDField):
    """An id as the handle of its row: 32 hexadecimal digits."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else value.hex


def _common(new: NewJobs) -> dict[str, Any]:
    """Return what all jobs that are published together have in common."""
    names = ("queue_name", "task_path", "priority", "max_attempts", "lease_us", "enqueued_at", "due_at")
    return {name: getattr(new, name) for name in (*names, "wake_at", "state", "start_by")}


class PostgreSQLEngine(
    PostgreSQLDue,
    PostgreSQLSettling,
    PostgreSQLOverflow,
    PostgreSQLLimits,
    PostgreSQLSteps,
    PostgreSQLListening,
    Engine,
):
    """See Engine."""

    largest_result = 16_000_000  # it writes a larger one for so long that nothing else is settled or renewed meanwhile
    countable = 20_000  # each is looked at in the table: the index does not say to the planner that it has all columns
    shortest_wait = 1.0  # who takes the same row is waited for, with the commits of all that ask meanwhile
    looks_first = False
    locks_rows = True
    trouble = staticmethod(trouble)

    def lock_queue(self, queue_name: str) -> None:
        self._lock(OF_QUEUE, [queue_name])

    def insert(self, new: NewJobs) -> BaseDatabaseWrapper | None:
        values = _common(new)
        if len(new.jobs) == 1:
            [(values["id"], values["payload"])] = new.jobs
            self._run(sql.INSERT, values)
        else:
            with self.transaction():
                for _, some in parts(new.jobs, itemgetter(1)):
                    ids, payloads = zip(*some, strict=True)
                    values |= {"ids": uuids(ids), "payloads": f"[{','.join(payloads)}]"}
                    self._run(sql.INSERT_MANY, values)
        connection = self.connection
        return connection if connection.in_atomic_block else None

    def insert_with_keys(self, new: NewJobs) -> dict[int, tuple[str, str]]:
        none: list[str | None] = [None] * len(new.jobs)
        keys = (new.unique_keys or none, new.concurrency_keys or none, new.rate_keys or none)
        names = ("id", "payload", "unique_key", "concurrency_key", "rate_key")
        rows = [dict(zip(names, (*job, *each), strict=True)) for job, *each in zip(new.jobs, *keys, strict=True)]
        places: Sequence[int] = range(len(rows))
        if new.unique_keys:  # all take keys in one order, else two of them may wait for each other
            places = sorted(places, key=lambda index: rows[index]["unique_key"] or "")
        values = {**_common(new), "unique_until": new.unique_until, "parent_id": new.parent_id, "replace": new.replace}
        values["ordered"] = new.ordered
        if len(rows) == 1 and self._is_stored_alone({"jobs": json.dumps(rows, ensure_ascii=False), **values}):
            return {}
        duplicates = {}
        with self.transaction():
            for _, some in parts(places, lambda index: str(rows[index]["payload"])):
                once = _once_each([rows[index] for index in some], new.replace)
                given = {"jobs": json.dumps(once, ensure_ascii=False), **values}
                of_key = {key: (job_id, path) for job_id, key, path in self._rows(sql.UPDATE_IF_TAKEN, given)}
                for index in some:
                    row = rows[index]
                    if (key := row["unique_key"]) is not None and of_key[key][0] != row["id"]:
                        duplicates[index] = of_key[key]
        return dict(sorted(duplicates.items()))

    def _is_stored_alone(self, values: dict[str, Any]) -> bool:
        """Store one job by one statement, unless its key is taken, or is being taken at REPEATABLE READ."""
        try:
            return bool(self._run(sql.SKIP_IF_TAKEN, values))
        except OperationalError as error:
            if self._in_transaction or self.trouble(error) is not Trouble.BUSY:
                raise
            return False

    def depth(self, queue_name: str, limit: int) -> int:
        return int(self._value(sql.DEPTH, {"name": queue_name, "now": self.now(), "limit": limit}))

    def pauses(self) -> dict[str, int | None]:
        return dict(self._rows(sql.PAUSES))

    def lease(
        self, handles: Sequence[Handle], worker_id: str, now: int, lease_us: int | None, attempts: int = 1
    ) -> dict[Handle, HeldJob]:
        values = {"worker_id": worker_id, "now": now, "lease_us": lease_us, "attempts": attempts}
        return _by_handle(self._rows(sql.LEASE, {"ids": uuids(handles), **values}))

    def start_attempts(self, jobs: Sequence[HeldJob], now: int) -> int:
        return self._run(sql.START_ATTEMPTS, {**HELD.given(jobs), "now": now})

    def read(self, handles: Sequence[Handle]) -> dict[Handle, HeldJob]:
        if not handles:
            return {}
        rows = self._rows(sql.READ_LOCKED if self._in_transaction else sql.READ, {"ids": uuids(handles)})
        return _by_handle(rows)

    def renew(self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False) -> set[ClaimKey]:
        held = HELD.given(jobs)
        if self._run(sql.RENEW, {**held, "now": now, "afresh": afresh}) == len(jobs):
            return set()
        return self._keys(sql.NOT_HELD, held)

    def renew_unlocked(
        self, jobs: Sequence[HeldJob], now: int, *, afresh: bool = False
    ) -> tuple[set[ClaimKey], list[HeldJob]]:
        held = HELD.given(jobs)
        renewed = self._keys(sql.RENEW_UNLOCKED, {**held, "now": now, "afresh": afresh})
        lost = self._keys(sql.NOT_HELD, held) if len(renewed) < len(jobs) else set()
        return lost, [job for job in jobs if job.key not in renewed and job.key not in lost]

    def wait_in_line(self, job: HeldJob, seconds: float) -> None:
        self.set_lock_timeout(seconds)
        self._rows(sql.WAIT_IN_LINE, {"id": job.id})

    def extend(self, job: HeldJob, now: int, until: int, *, lengthen: bool = False) -> bool:
        return bool(self._run(sql.EXTEND, {**guard(job), "now": now, "until": until, "lengthen": lengthen}))

    def request_cancel(self, job_ids: Sequence[str], now: int, by: str) -> tuple[set[str], list[HeldJob]]:
        changed = self._rows(sql.REQUEST_CANCEL, {"ids": list(job_ids), "now": now, "by": by})
        waiting = [job_id for job_id, waits in changed if waits]
        return {job_id for job_id, _ in changed}, list(self.read(waiting).values())

    def cancel_requests(self, jobs: Sequence[HeldJob]) -> dict[ClaimKey, str]:
        rows = self._rows(sql.CANCEL_REQUESTS, HELD.given(jobs))
        return {(job_id, claims): by for job_id, claims, by in rows}

    def write_progress(self, unsaved: Sequence[tuple[HeldJob, Progress]]) -> None:
        rows = [{**guard(job), "progress": part, "progress_text": text} for job, (part, text) in unsaved]
        ids = [job.id for job, _ in unsaved]
        self._run(sql.NOTE_PROGRESS, {"mine": json.dumps(rows, ensure_ascii=False), "ids": ids})

    def find_all(self, job_ids: Sequence[str]) -> dict[str, StoredJob]:
        return {row[0]: StoredJob(*row) for row in self._rows(sql.FIND, {"ids": uuids(job_ids)})}

    def requeue(
        self,
        letter_ids: Sequence[str],
        now: int,
        by: str = "",
        *,
        queue_name: str | None = None,
        priority: int | None = None,
    ) -> set[str]:
        ids, entry = {"ids": list(letter_ids)}, history.requeued(by, now)
        orphaned = {**entry, "message": history.PARENT_WENT_ON}
        entries = {"entry": json.dumps(entry), "orphaned": json.dumps(orphaned)}
        with self.transaction():
            self._run(sql.REQUEUE, {**ids, "now": now, **entries, "queue_name": queue_name, "priority": priority})
            return {job_id for (job_id,) in self._rows(sql.REMOVE_REQUEUED, ids)}

    def handle(self) -> RawSQL:
        return RawSQL("vtqueue_job.id", (), HandleField())

    def prune(self, now: int, limit: int) -> int:
        values = {"now": now, "limit": limit}
        if not self._value(sql.PRUNABLE, values):
            return 0
        with self.transaction():
            return sum(self._run(prune, values) for prune in (sql.PRUNE_JOBS, sql.PRUNE_LETTERS, sql.PRUNE_PAUSES))


def _by_handle(rows: Sequence[tuple[Any, ...]]) -> dict[Handle, HeldJob]:
    return {row[0]: HeldJob(*row) for row in rows}


def _once_each(rows: Sequence[dict[str, Any]], replace: bool) -> list[dict[str, Any]]:
    """Return rows of which no two have one unique key: ON CONFLICT changes no row twice in a statement.

    Of several with one key the first is stored; with ``replace`` the values of the last take its place.
    """
    once: dict[Any, dict[str, Any]] = {}
    for row in rows:
        key = row["id"] if row["unique_key"] is None else (row["unique_key"],)
        if key not in once:
            once[key] = row
        elif replace:
            once[key] = {**row, "id": once[key]["id"]}
    return list(once.values())
