"""Limits on SQLite. Each lookup of a key is a seek in an index of the rows that have one; the hints keep it there."""

import json
from collections.abc import Collection, Mapping, Sequence

from ...core.clock import LAST, to_instant
from ...core.job import Handle
from ..limits import Parked
from .connection import SQLiteConnection

NEVER = to_instant(LAST)

HELD_OF_QUEUES = """
SELECT json_group_object(name.value, (
    SELECT count(*) FROM vtqueue_job AS job INDEXED BY vtqueue_job_hidden
    WHERE job.queue_name = name.value AND job.lease_until IS NOT NULL
      AND NOT (job.task_path = '' AND job.concurrency_key IS NOT NULL)
)) FROM json_each(:names) AS name"""

HELD_OF_KEYS = """
SELECT json_group_object(key.value, (
    SELECT count(*) FROM vtqueue_job AS job INDEXED BY vtqueue_job_key_held
    WHERE job.concurrency_key = key.value AND job.lease_until IS NOT NULL
)) FROM json_each(:keys) AS key"""

FIRST_OF_KEYS = """
SELECT json_group_object(key.value, (
    SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_key_order
    WHERE job.concurrency_key = key.value AND job.finished_at IS NULL ORDER BY job.rowid LIMIT 1
)) FROM json_each(:keys) AS key"""

PARK = f"""
UPDATE vtqueue_job SET moved_from = coalesce(moved_from, due_at), due_at = {NEVER}
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

IS_PARKED = f"""job.finished_at IS NULL AND job.lease_until IS NULL AND job.moved_from IS NOT NULL
      AND job.concurrency_key IS NOT NULL AND job.due_at = {NEVER}"""

GIVE_BACK = f"""
UPDATE vtqueue_job SET due_at = moved_from, moved_from = NULL
WHERE rowid IN (
    SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_parked
    WHERE {IS_PARKED} AND job.concurrency_key = :key
    ORDER BY job.priority DESC, job.moved_from LIMIT :limit
)"""

PUT_BACK = f"""
UPDATE vtqueue_job SET due_at = moved_from, moved_from = NULL
WHERE rowid IN (SELECT value FROM json_each(:rowids))
  AND finished_at IS NULL AND lease_until IS NULL AND moved_from IS NOT NULL AND due_at = {NEVER}"""

# The distinct keys, each found by one seek.
NEXT_KEY = f"SELECT job.concurrency_key FROM vtqueue_job AS job INDEXED BY vtqueue_job_parked WHERE {IS_PARKED}"
PARKED = f"""
WITH RECURSIVE found(key) AS (
    SELECT ({NEXT_KEY} AND job.concurrency_key > :after ORDER BY job.concurrency_key LIMIT 1)
    UNION ALL
    SELECT ({NEXT_KEY} AND job.concurrency_key > found.key ORDER BY job.concurrency_key LIMIT 1)
    FROM found WHERE found.key IS NOT NULL LIMIT :limit
)
SELECT json_group_array(json_array(found.key, first.rowid, first.queue_name, first.task_path))
FROM found CROSS JOIN vtqueue_job AS first WHERE found.key IS NOT NULL AND first.rowid = (
    SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_parked
    WHERE {IS_PARKED} AND job.concurrency_key = found.key ORDER BY job.priority DESC, job.moved_from LIMIT 1
)"""

DUE_OF_KEY = """
SELECT count(*) FROM (
    SELECT job.due_at, job.lease_until FROM vtqueue_job AS job INDEXED BY vtqueue_job_key_order
    WHERE job.concurrency_key = :key AND job.finished_at IS NULL LIMIT :limit
) AS some WHERE some.lease_until IS NULL AND some.due_at <= :now"""


class SQLiteLimits(SQLiteConnection):
    """The part of an Engine that is for limits."""

    def held_of_queues(self, names: Collection[str]) -> dict[str, int]:
        return self._object(HELD_OF_QUEUES, {"names": json.dumps(sorted(names))})

    def held_of_keys(self, keys: Collection[str]) -> dict[str, int]:
        return self._object(HELD_OF_KEYS, {"keys": json.dumps(sorted(keys))})

    def first_of_keys(self, keys: Collection[str]) -> dict[str, Handle]:
        return self._object(FIRST_OF_KEYS, {"keys": json.dumps(sorted(keys))})

    def park(self, handles: Sequence[Handle]) -> None:
        self._run(PARK, {"rowids": json.dumps(handles)})

    def give_back(self, keys: Mapping[str, int]) -> int:
        return sum(self._run(GIVE_BACK, {"key": key, "limit": limit}) for key, limit in sorted(keys.items()))

    def put_back(self, handles: Sequence[Handle]) -> int:
        return self._run(PUT_BACK, {"rowids": json.dumps(handles)})

    def parked(self, after: str, limit: int) -> list[Parked]:
        return [Parked(*row) for row in self._list(PARKED, {"after": after, "limit": limit})]

    def due_of_key(self, key: str, now: int, limit: int) -> int:
        return int(self._value(DUE_OF_KEY, {"key": key, "now": now, "limit": limit}))

    def _object(self, sql: str, values: dict[str, str]) -> dict[str, int]:
        found: dict[str, int] = json.loads(self._value(sql, values))
        return found
