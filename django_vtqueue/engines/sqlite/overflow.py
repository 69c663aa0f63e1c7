"""Overflow on SQLite: the copies of a job are a JSON object in its row; what is damaged in it counts as none."""

import json
from collections.abc import Mapping, Sequence

from ...core import copies
from ...core.copies import Copy
from ...core.grace import REST, GracePeriod
from ...core.job import ClaimKey, Due, Handle, HeldJob, Scope
from . import due
from .connection import SQLiteConnection
from .statements import COLUMNS, guard

# Only what runs has an ended lease here, so hardly more rows than there are slots: they may be sorted.
REAPPEARED = f"""
SELECT json_group_array(
    json_array(found.rowid, found.priority, found.due_at, found.claims, 0, found.task_path)
) FROM (
    SELECT job.rowid, job.priority, job.due_at, job.claims, job.task_path
    FROM {due.NAMES_HELD} AS name CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_held
    WHERE {due.NAME_HINT} AND {due.IN_SCOPE} AND {due.OF_NAME} AND {due.ENDED} AND {due.REAPPEARS}
      AND {due.NOT_RUN_BY_WORKER}
    ORDER BY job.priority DESC, job.due_at, job.rowid LIMIT :limit
) AS found"""

# ``:runtimes`` has the queue's own value, or that of the name ''. A copy claimed ahead has not begun yet; one that
# joins others has.
SHARE = """
UPDATE vtqueue_job
SET copies = json_set(
        CASE WHEN json_valid(copies) THEN copies ELSE '{}' END,
        '$."' || claims || '"', json_array(
            worker_id, :now, :now + json_extract(runtime.value, '$[0]'), json_extract(runtime.value, '$[1]')
        )
    ),
    started_at = CASE WHEN copies IS NULL THEN started_at ELSE :now END
FROM json_each(:runtimes) AS runtime
WHERE vtqueue_job.rowid IN (SELECT value FROM json_each(:rowids))
  AND runtime.key = (SELECT max(key) FROM json_each(:runtimes) WHERE key IN ('', queue_name))
  AND (json_extract(runtime.value, '$[0]') > 0 OR copies IS NOT NULL)"""

COPIES = """
SELECT json_group_array(json_array(
    json_extract(mine.value, '$[0]'), json_extract(mine.value, '$[1]'), copies,
    CASE WHEN cancelled_at IS NOT NULL THEN coalesce(cancelled_by, '') END
))
FROM json_each(:held) AS mine CROSS JOIN vtqueue_job
WHERE vtqueue_job.id = json_extract(mine.value, '$[0]') AND +state = 'RUNNING' AND copies IS NOT NULL"""

PASS_ON = """
UPDATE vtqueue_job
SET worker_id = :holder, started_at = :since, copies = :copies, history = :history, lease_until = :lease_until
WHERE id = :id AND claims = :claims AND worker_id = :worker_id AND state = 'RUNNING'"""

# What a worker holds by the last claim of a row, and the rows in which it is one of the copies. "" is no worker, but
# what one gave back.
HELD_BY = f"""
SELECT {COLUMNS} FROM vtqueue_job WHERE worker_id = :worker_id AND worker_id > '' AND state = 'RUNNING'
UNION ALL
SELECT {COLUMNS} FROM {due.NAMES_HELD} AS name CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_held
WHERE {due.NAME_HINT} AND queue_name = name.value AND lease_until IS NOT NULL
  AND instr(copies, json_quote(:worker_id)) > 0 AND worker_id <> :worker_id"""


class SQLiteOverflow(SQLiteConnection):
    """The part of an Engine that is for copies; and what a worker holds, copies among it."""

    def reappeared(self, scope: Scope, limit: int, now: int, grace_period: GracePeriod) -> list[Due]:
        values = {**due.scope_values(scope), **grace_period._asdict(), "rest": REST, "now": now, "limit": limit}
        return [Due(*row)._replace(one_more_copy=1) for row in self._list(REAPPEARED, values)]

    def write_copies(self, handles: Sequence[Handle], now: int, runtimes: Mapping[str, tuple[int, int]]) -> None:
        self._run(SHARE, {"rowids": json.dumps(handles), "now": now, "runtimes": json.dumps(runtimes)})

    def copies(self, jobs: Sequence[HeldJob]) -> dict[ClaimKey, tuple[str, str | None]]:
        found = self._list(COPIES, {"held": json.dumps([guard(job) for job in jobs])})
        return {(job_id, claim): (text, by) for job_id, claim, text, by in found if claim in copies.read(text)}

    def pass_on(self, row: HeldJob, holder: Copy, copies: str, history: str, lease_until: int) -> None:
        of_row = {"id": row.id, "claims": row.claims, "worker_id": row.worker_id}
        passed = {"holder": holder.worker, "since": holder.since, "copies": copies, "history": history}
        self._run(PASS_ON, {**of_row, **passed, "lease_until": lease_until})

    def held_by(self, worker_id: str, *, lock: bool = False) -> list[HeldJob]:
        rows = [HeldJob(*row) for row in self._rows(HELD_BY, {"worker_id": worker_id})]
        return [job for row in rows for job in copies.held(row, worker_id)]
