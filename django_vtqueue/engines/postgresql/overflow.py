"""Overflow on PostgreSQL: the copies of a job are a JSON object in its row."""

import json
from collections.abc import Mapping, Sequence

from ...core import copies
from ...core.copies import Copy
from ...core.grace import REST, GracePeriod
from ...core.job import ClaimKey, Due, Handle, HeldJob, Scope
from . import due
from .aside import scope_values
from .connection import PostgreSQLConnection
from .statements import COLUMNS, HELD, guard, hexed, hidden
from .steps import LOCK_ROWS

# ``runtimes`` has the queue's own value, or that of the name ''. A copy claimed ahead has not begun yet; one that
# joins others has.
SHARE = """
UPDATE vtqueue_job AS job
SET copies = (coalesce(job.copies, '{}')::jsonb || jsonb_build_object(job.claims::text, jsonb_build_array(
        job.worker_id, %(now)s::bigint, %(now)s::bigint + (runtime.value ->> 0)::bigint, (runtime.value ->> 1)::int
    )))::text,
    started_at = CASE WHEN job.copies IS NULL THEN job.started_at ELSE %(now)s END
FROM json_each(%(runtimes)s::json) AS runtime
WHERE job.id = ANY(%(ids)s::uuid[])
  AND runtime.key = CASE WHEN %(runtimes)s::jsonb ? job.queue_name THEN job.queue_name ELSE '' END
  AND ((runtime.value ->> 0)::bigint > 0 OR job.copies IS NOT NULL)"""

COPIES = f"""
SELECT {hexed("mine.id")}, mine.claims, job.copies,
    CASE WHEN job.cancelled_at IS NOT NULL THEN coalesce(job.cancelled_by, '') END
FROM {HELD.mine}, vtqueue_job AS job
WHERE job.id = ANY(%(ids)s::uuid[]) AND job.id = mine.id
  AND {hidden("job.state = 'RUNNING' AND job.copies IS NOT NULL")}"""

PASS_ON = f"""
UPDATE vtqueue_job
SET worker_id = %(holder)s, started_at = %(since)s, copies = %(copies)s, history = %(history)s,
    lease_until = %(lease_until)s
WHERE id = %(id)s AND claims = %(claims)s AND worker_id = %(worker_id)s AND {hidden("state = 'RUNNING'")}"""

# What a worker holds by the last claim of a row, and the rows in which it is one of the copies.
HELD_BY = f"""
SELECT {COLUMNS} FROM vtqueue_job
WHERE worker_id = %(worker_id)s AND worker_id > '' AND state = 'RUNNING' ORDER BY id {{lock}}"""
HELD_AS_COPY = f"""
SELECT {COLUMNS} FROM vtqueue_job
WHERE lease_until IS NOT NULL AND copies IS NOT NULL
  AND strpos(copies, to_json(%(worker_id)s::text)::text) > 0 AND worker_id <> %(worker_id)s ORDER BY id {{lock}}"""


class PostgreSQLOverflow(PostgreSQLConnection):
    """The part of an Engine that is for copies; and what a worker holds, copies among it."""

    def reappeared(self, scope: Scope, limit: int, now: int, grace_period: GracePeriod) -> list[Due]:
        values = {**scope_values(scope), **grace_period._asdict(), "rest": REST, "now": now, "limit": limit}
        rows = self._rows(due.locking(due.REAPPEARED, self._in_transaction), values)
        return [Due(*row)._replace(one_more_copy=1) for row in rows]

    def write_copies(self, handles: Sequence[Handle], now: int, runtimes: Mapping[str, tuple[int, int]]) -> None:
        self._run(SHARE, {"ids": list(handles), "now": now, "runtimes": json.dumps(runtimes)})

    def copies(self, jobs: Sequence[HeldJob]) -> dict[ClaimKey, tuple[str, str | None]]:
        rows = self._rows(COPIES, HELD.given(jobs))
        return {(job_id, claim): (text, by) for job_id, claim, text, by in rows if claim in copies.read(text)}

    def lock_copies(self, jobs: Sequence[HeldJob]) -> None:
        self._rows(LOCK_ROWS, {"ids": sorted({job.id for job in jobs})})

    def pass_on(self, row: HeldJob, holder: Copy, copies: str, history: str, lease_until: int) -> None:
        passed = {"holder": holder.worker, "since": holder.since, "copies": copies, "history": history}
        self._run(PASS_ON, {**guard(row), **passed, "lease_until": lease_until})

    def held_by(self, worker_id: str, *, lock: bool = False) -> list[HeldJob]:
        statements = [sql.format(lock="FOR UPDATE SKIP LOCKED" if lock else "") for sql in (HELD_BY, HELD_AS_COPY)]
        rows = [HeldJob(*row) for sql in statements for row in self._rows(sql, {"worker_id": worker_id})]
        return [job for row in rows for job in copies.held(row, worker_id)]
