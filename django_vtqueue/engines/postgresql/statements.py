"""The statements of the queue on PostgreSQL, each whole, with the reason for its shape.

Those that find due rows and ended leases are in ``due.py``, those that settle in ``settling.py``. Ids are texts of 32
hexadecimal digits here, and uuids in the database; the id is also the handle of a row. CHECKs tie the columns to the
state: ``wake_at`` is of SCHEDULED, WAITING and BLOCKED rows, ``lease_until`` of RUNNING ones.

Many rows go in as one JSON argument (``Values``), which is written by one call of Python and read by one function of
the server. With it go the ids: ``job.id = ANY(…)`` has the planner find the rows by their key. What else is asked of
them is ``hidden`` from it: where it expects one row it compares each row with each item, and statistics of a time at
which hardly anything was held have it expect that. 400 starts of attempts took 31 ms so, and take 4 (measured).

A statement that meets a row which another transaction has just changed waits, and sees its WHERE and its own columns
anew, but no other row: what another table or row says must be locked before, by a statement of its own.
"""

import json
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from ...core.job import MOST_CLAIMS, Handle, HeldJob
from ...core.names import RESERVED_PREFIXES
from ...core.unique import REPLACED


def hexed(column: str) -> str:
    """Return the SQL of a uuid as 32 hexadecimal digits."""
    return f"encode(uuid_send({column}), 'hex')"


def hidden(condition: str) -> str:
    """Return a condition of which the planner expects that half of the rows meet it, and uses no index for it."""
    return f"CASE WHEN {condition} THEN true END"


def uuids(ids: Iterable[Handle]) -> str:
    """Return an array of ids as PostgreSQL writes it; psycopg, given a list, looks at each item for 2 µs."""
    return "{" + ",".join(map(str, ids)) + "}"


class Values:
    """What a statement is given of each item: attributes and their types, such as ``job.claims bigint``.

    In the statement ``mine`` has them as columns, named without what is before the last dot.
    """

    def __init__(self, *columns: str) -> None:
        paths = [column.split()[0] for column in columns]
        self._of, self._names = attrgetter(*paths), [path.rpartition(".")[2] for path in paths]
        types = ", ".join(column.rpartition(".")[2] for column in columns)
        self.mine = f"json_to_recordset(%(mine)s::json) AS mine({types})"

    def given(self, items: Iterable[Any]) -> dict[str, Any]:
        """Return the arguments of a statement."""
        rows = [dict(zip(self._names, self._of(item), strict=True)) for item in items]
        return {"mine": json.dumps(rows, ensure_ascii=False), "ids": uuids(row["id"] for row in rows)}


GUARDED = ("id uuid", "claims bigint", "worker_id text")
HELD = Values(*GUARDED)

COLUMNS = f"""{hexed("id")}, queue_name, task_path, priority, visible_at, claims, attempts, max_attempts, worker_id,
    lease_us, enqueued_at, started_at, payload, history, due_at, copies, concurrency_key, {hexed("parent_id")}"""
COLUMNS_OF_LETTER = COLUMNS.replace("visible_at", "died_at").replace("due_at, copies", "died_at, NULL")

COMMON = """id, queue_name, task_path, priority, max_attempts, lease_us, enqueued_at, due_at, wake_at, state, start_by,
    payload"""
OPTIONS = "unique_key, unique_until, concurrency_key, ordered, rate_key, parent_id"
FRESH = "claims, attempts, worker_id, history"

INSERT = f"""
INSERT INTO vtqueue_job ({COMMON}, {FRESH})
VALUES ({", ".join(f"%({name.strip()})s" for name in COMMON.split(","))}, 0, 0, '', '[]')"""

GIVEN = """%(queue_name)s, %(task_path)s, %(priority)s, %(max_attempts)s, %(lease_us)s, %(enqueued_at)s, %(due_at)s,
    %(wake_at)s::bigint, %(state)s, %(start_by)s"""
# A payload is JSON: as an item of an array it is not encoded once more, and it is stored as it is written.
INSERT_MANY = f"""
INSERT INTO vtqueue_job ({COMMON}, {FRESH})
SELECT mine.id, {GIVEN}, mine.payload::text, 0, 0, '', '[]'
FROM ROWS FROM (unnest(%(ids)s::uuid[]), json_array_elements(%(payloads)s::json)) AS mine(id, payload)"""

# The index of unique keys decides, so two publishers of one key at the same instant make one job. A conflict updates
# the job that has the key in any case, since RETURNING gives the ids of changed rows only. The values change only if
# that job is to be replaced, and waits (a durable task that has begun is not): then it is a fresh one with the same id.
# One that was given back waits when that moment is over, whether a claim has put it into the line or not.
REPLACING = """CASE WHEN %(replace)s AND (vtqueue_job.lease_until IS NULL
        OR vtqueue_job.worker_id = '' AND vtqueue_job.lease_until <= excluded.enqueued_at)
    AND vtqueue_job.steps IS NULL AND vtqueue_job.task_path = excluded.task_path THEN {} ELSE vtqueue_job.{} END"""
INSERT_WITH_OPTIONS = f"""
INSERT INTO vtqueue_job ({COMMON}, {OPTIONS}, {FRESH})
SELECT mine.id, {GIVEN}, mine.payload, mine.unique_key, %(unique_until)s, mine.concurrency_key, %(ordered)s,
    mine.rate_key, %(parent_id)s::uuid, 0, 0, '', '[]'
FROM json_to_recordset(%(jobs)s::json)
    AS mine(id uuid, payload text, unique_key text, concurrency_key text, rate_key text)
ON CONFLICT (queue_name, unique_key)
WHERE finished_at IS NULL AND unique_key IS NOT NULL AND NOT unique_until = 'started' DO """
SKIP_IF_TAKEN = (
    f"{INSERT_WITH_OPTIONS}NOTHING"  # tried first where there is one job: it changes no row that has the key
)
UPDATE_IF_TAKEN = f"""{INSERT_WITH_OPTIONS}UPDATE
SET attempts = {REPLACING.format("0", "attempts")}, moved_from = {REPLACING.format("NULL", "moved_from")},
    lease_until = {REPLACING.format("NULL", "lease_until")},
    {", ".join(f"{name} = {REPLACING.format(f'excluded.{name}', name)}" for name in REPLACED)}
RETURNING {hexed("id")}, unique_key, task_path"""

# In the order of the index, so that it is used: a walk over the table may meet all that is finished first. With what a
# worker gave back as it ended.
DEPTH = """
SELECT count(*) FROM (
    (
        SELECT 1 FROM vtqueue_job
        WHERE queue_name = %(name)s AND state = 'READY'
        ORDER BY task_path = '', priority DESC, due_at, id LIMIT %(limit)s
    )
    UNION ALL (
        SELECT 1 FROM vtqueue_job
        WHERE queue_name = %(name)s AND wake_at IS NOT NULL ORDER BY task_path = '', wake_at LIMIT %(limit)s
    )
    UNION ALL SELECT 1 FROM vtqueue_job WHERE queue_name = %(name)s AND lease_until <= %(now)s AND worker_id = ''
    LIMIT %(limit)s
) AS first"""

# A job that begins later gets its attempt and its start from START_ATTEMPTS.
LEASE = f"""
UPDATE vtqueue_job
SET state = 'RUNNING', claims = least(claims + 1, {MOST_CLAIMS}),
    attempts = least(attempts + %(attempts)s, {MOST_CLAIMS}), worker_id = %(worker_id)s,
    started_at = CASE WHEN %(attempts)s > 0 THEN %(now)s::bigint END,
    lease_us = coalesce(%(lease_us)s::bigint, lease_us),
    lease_until = %(now)s::bigint + coalesce(%(lease_us)s::bigint, lease_us),
    wake_at = NULL, moved_from = NULL, progress = NULL, progress_text = NULL,
    unique_until = CASE unique_until WHEN 'start' THEN 'started' ELSE unique_until END
WHERE id = ANY(%(ids)s::uuid[])
RETURNING {COLUMNS}"""

READ = f"SELECT {COLUMNS} FROM vtqueue_job WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id"

READ_LOCKED = f"{READ} FOR UPDATE"  # in a transaction, which settles what it has read

# The id, the claim number, the worker and the state guard every change by a holder, or in its name: renewals,
# settlements, burials, progress, the start of an attempt. EXTEND, NOTE_STEPS and PASS_ON write the same guard out.
# REQUEST_CANCEL, SEND_EVENT and the repair of stamps change a row of any holder. LEASE and SHARE need no guard: they
# are given rows that the same transaction has locked.
OF_HOLDER = """
    job.id = ANY(%(ids)s::uuid[]) AND job.id = mine.id AND job.claims = mine.claims
    AND job.worker_id = mine.worker_id AND """
GUARD = OF_HOLDER + hidden("job.state = 'RUNNING'")
# of a burial: a job that waits may be cancelled, and has no holder
GUARD_OF_BURIAL = OF_HOLDER + hidden("job.finished_at IS NULL")

# A lease that was extended does not end sooner, except after a step of the clock (``afresh``). Else each renewal moves
# the end of the lease, though the clock stands still: who watches a leader recognises its renewals by that.
RENEW = f"""
UPDATE vtqueue_job AS job
SET lease_until = CASE WHEN %(afresh)s THEN %(now)s + job.lease_us
    ELSE greatest(job.lease_until + 1, %(now)s + job.lease_us) END
FROM {HELD.mine} WHERE {GUARD}"""

# Of a control loop, whose other leases are not to wait for a row that a transaction of the project has locked.
RENEW_UNLOCKED = f"""
WITH unlocked AS MATERIALIZED (
    SELECT id FROM vtqueue_job WHERE id = ANY(%(ids)s::uuid[]) FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE vtqueue_job AS job
SET lease_until = CASE WHEN %(afresh)s THEN %(now)s + job.lease_us
    ELSE greatest(job.lease_until + 1, %(now)s + job.lease_us) END
FROM {HELD.mine}, unlocked WHERE unlocked.id = job.id AND {GUARD}
RETURNING {hexed("job.id")}, job.claims"""

WAIT_IN_LINE = "SELECT 1 FROM vtqueue_job WHERE id = %(id)s FOR NO KEY UPDATE"

NOT_HELD = f"""
SELECT {hexed("mine.id")}, mine.claims FROM {HELD.mine}
WHERE NOT EXISTS (SELECT 1 FROM vtqueue_job AS job WHERE {GUARD})"""

START_ATTEMPTS = f"""
UPDATE vtqueue_job AS job SET attempts = least(job.attempts + 1, {MOST_CLAIMS}), started_at = %(now)s
FROM {HELD.mine}
WHERE {GUARD} AND {hidden("job.started_at IS NULL AND (job.start_by IS NULL OR job.start_by > %(now)s)")}"""

# The visibility timeout of the job stays what it is.
EXTEND = f"""
UPDATE vtqueue_job SET lease_until = CASE WHEN %(lengthen)s THEN greatest(lease_until, %(until)s) ELSE %(until)s END
WHERE id = %(id)s AND claims = %(claims)s AND worker_id = %(worker_id)s
  AND {hidden("state = 'RUNNING' AND lease_until > %(now)s")}"""

# What is held for ever cannot be cancelled.
REQUEST_CANCEL = f"""
UPDATE vtqueue_job SET cancelled_at = %(now)s, cancelled_by = %(by)s
WHERE id = ANY(%(ids)s::uuid[]) AND finished_at IS NULL AND cancelled_at IS NULL
  AND {" AND ".join(f"NOT starts_with(queue_name, '{name}')" for name in RESERVED_PREFIXES)}
RETURNING {hexed("id")}, worker_id = ''"""

CANCEL_REQUESTS = f"""
SELECT {hexed("job.id")}, job.claims, coalesce(job.cancelled_by, '')
FROM {HELD.mine}, vtqueue_job AS job WHERE {GUARD} AND job.cancelled_at IS NOT NULL"""

SAID = Values(*GUARDED, "progress float8", "progress_text text")
NOTE_PROGRESS = f"""
UPDATE vtqueue_job AS job SET progress = mine.progress, progress_text = mine.progress_text
FROM {SAID.mine} WHERE {GUARD}"""

# One statement over both tables: between two statements a job could move from one table to the other.
FIND = f"""
SELECT {COLUMNS}, state, finished_at, result FROM vtqueue_job WHERE id = ANY(%(ids)s::uuid[])
UNION ALL
SELECT {COLUMNS_OF_LETTER}, 'FAILED', died_at, NULL FROM vtqueue_deadletter
WHERE id = ANY(%(ids)s::uuid[])"""

# The claim number goes with the job: a holder from before its death must stay stale. DO NOTHING: a letter whose unique
# key is taken stays where it is; one that was unique until its start is so again. The history is not parsed, for it may
# be damaged; it may have one entry too many, and the next attempt shortens it again. Keys are taken in the order in
# which insert_with_keys takes them. A letter that is discarded, or moved away, at this moment is gone: it is locked.
#
# The inner CASE: a parent still waits for its child if the last of its steps is one that has children, and the id of
# the child is among them. Else the history of the child says that the parent has gone on (``orphaned``).
REQUEUE = f"""
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, unique_until,
    concurrency_key, ordered, rate_key, parent_id, enqueued_at, started_at, state, due_at, metadata, payload,
    history, steps, earlier_steps
) SELECT
    letter.id, coalesce(%(queue_name)s, queue_name), task_path, coalesce(%(priority)s, priority), claims, 0,
    max_attempts, '', lease_us, unique_key, replace(unique_until, 'started', 'start'), concurrency_key, ordered,
    rate_key, parent_id, enqueued_at, started_at, 'READY', %(now)s, metadata, payload,
    CASE WHEN history NOT LIKE '[%%]' THEN history ELSE
        left(history, -1) || CASE history WHEN '[]' THEN '' ELSE ',' END || CASE WHEN parent_id IS NULL OR EXISTS (
            SELECT 1 FROM (
                SELECT id, steps FROM vtqueue_job WHERE finished_at IS NULL
                UNION ALL SELECT id, steps FROM vtqueue_deadletter
            ) AS parent
            WHERE parent.id = letter.parent_id AND strpos(parent.steps, {hexed("letter.id")}) > 0
              AND (parent.steps::json -> 'done' -> -1 ->> 'children') IS NOT NULL
        ) THEN %(entry)s ELSE %(orphaned)s END || ']'
    END, steps, earlier_steps
FROM vtqueue_deadletter AS letter WHERE letter.id = ANY(%(ids)s::uuid[])
ORDER BY coalesce(%(queue_name)s, queue_name) COLLATE "C", unique_key COLLATE "C" NULLS FIRST, letter.id
FOR UPDATE OF letter
ON CONFLICT DO NOTHING"""

REMOVE_REQUEUED = f"""
DELETE FROM vtqueue_deadletter AS letter
WHERE letter.id = ANY(%(ids)s::uuid[]) AND EXISTS (SELECT 1 FROM vtqueue_job AS job WHERE job.id = letter.id)
RETURNING {hexed("letter.id")}"""

# One row for each pause, so the whole table is read.
PAUSES = "SELECT queue_name, paused_until FROM vtqueue_queuestate"

# The first of each, by its index: EXISTS may be planned as a walk over the table, which ends early if there is a match.
FIRST_UNKEPT = """(
    SELECT kept_until FROM {} WHERE kept_until IS NOT NULL ORDER BY kept_until LIMIT 1
)"""
PRUNABLE = f"""
SELECT coalesce({FIRST_UNKEPT.format("vtqueue_job")} <= %(now)s, false)
    OR coalesce({FIRST_UNKEPT.format("vtqueue_deadletter")} <= %(now)s, false)
    OR EXISTS (SELECT 1 FROM vtqueue_queuestate WHERE paused_until <= %(now)s)"""

# ARRAY: rows are found once. As the inner side of a join they may be found anew for each row; those that are gone by
# then are skipped, so each time the next ones come up, until nothing is left.
PRUNE_JOBS = """
DELETE FROM vtqueue_job WHERE id = ANY(ARRAY(
    SELECT id FROM vtqueue_job WHERE kept_until <= %(now)s AND finished_at IS NOT NULL
    ORDER BY kept_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))"""

PRUNE_LETTERS = """
DELETE FROM vtqueue_deadletter WHERE id = ANY(ARRAY(
    SELECT id FROM vtqueue_deadletter WHERE kept_until <= %(now)s
    ORDER BY kept_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))"""

PRUNE_PAUSES = "DELETE FROM vtqueue_queuestate WHERE paused_until <= %(now)s"


def guard(job: HeldJob) -> dict[str, Any]:
    """Return what the guard of a statement for one job compares."""
    return {"id": job.id, "claims": job.claims, "worker_id": job.worker_id}
