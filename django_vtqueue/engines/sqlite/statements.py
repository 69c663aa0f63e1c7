"""The statements of the queue on SQLite, each whole, with the reason for its shape.

Those that find due rows and ended leases are in ``due.py``, those that settle in ``settling.py``;
``limits.py``, ``overflow.py``, ``steps.py`` have their own.

``(task_path = '')`` is 1 for raw payloads and 0 for tasks. It is a column of the claim indexes, so that a claim of one
kind does not walk over rows of the other. CHECKs tie the columns to the state: ``wake_at`` is of SCHEDULED, WAITING and
BLOCKED rows, ``lease_until`` of RUNNING ones, ``finished_at`` of SUCCESSFUL ones.
"""

from functools import lru_cache

from ...core.job import MOST_CLAIMS, HeldJob
from ...core.names import RESERVED_PREFIXES
from ...core.unique import REPLACED

COLUMNS = """id, queue_name, task_path, priority, visible_at, claims, attempts, max_attempts, worker_id, lease_us,
    enqueued_at, started_at, payload, history, due_at, copies, concurrency_key, parent_id"""
COLUMNS_OF_LETTER = COLUMNS.replace("visible_at", "died_at").replace("due_at, copies", "died_at, NULL")

COMMON = "id, queue_name, task_path, priority, max_attempts, lease_us, enqueued_at, due_at, payload"
OPTIONAL = "unique_key, unique_until, concurrency_key, ordered, rate_key, parent_id, start_by, wake_at"


@lru_cache
def insert_with(options: tuple[str, ...], if_taken: str = "") -> str:
    """Return the statement that stores one job, with parameters for these options only; most jobs have none.

    A None is left out: to look for its adapter takes the driver a tenth of the time of this statement (measured).
    ``if_taken``: what is done if another job has the unique key.
    """
    names = (*COMMON.split(", "), *options)
    state = "SCHEDULED" if "wake_at" in options else "READY"
    return f"""
INSERT INTO vtqueue_job ({", ".join(names)}, claims, attempts, worker_id, state, history)
VALUES ({", ".join(f":{name}" for name in names)}, 0, 0, '', '{state}', '[]'){if_taken}"""


INSERT = insert_with(())

INSERT_MANY = """
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, state,
    start_by, due_at, wake_at, payload, history
) SELECT
    key, :queue_name, :task_path, :priority, 0, 0, :max_attempts, '', :lease_us, :enqueued_at, :state,
    :start_by, :due_at, :wake_at, value, '[]'
FROM json_each(:jobs)"""

# The index of unique keys decides, so two publishers of one key at the same instant make one job. A conflict updates
# the job that has the key in any case, since RETURNING gives the ids of changed rows only. The values change only if
# that job is to be replaced, and waits (a durable task that has begun is not): then it is a fresh one with the same id.
# One that was given back waits when that moment is over, whether a claim has put it into the line or not.
REPLACING = (
    "CASE WHEN :replace AND (lease_until IS NULL OR worker_id = '' AND lease_until <= excluded.enqueued_at) "
    "AND steps IS NULL AND task_path = excluded.task_path "
    "THEN {} ELSE vtqueue_job.{} END"
)
# "started": its key was unique until its start, and it has started (core/unique.py).
IF_TAKEN = """
ON CONFLICT (queue_name, unique_key)
WHERE finished_at IS NULL AND unique_key IS NOT NULL AND NOT unique_until = 'started' DO """
UPDATE_IF_TAKEN = f"""{IF_TAKEN}UPDATE
SET attempts = {REPLACING.format("0", "attempts")}, moved_from = {REPLACING.format("NULL", "moved_from")},
    lease_until = {REPLACING.format("NULL", "lease_until")},
    {", ".join(f"{name} = {REPLACING.format(f'excluded.{name}', name)}" for name in REPLACED)}
RETURNING id, unique_key, task_path"""

SKIP_IF_TAKEN = f"{IF_TAKEN}NOTHING"  # tried first: most keys are new, and RETURNING costs a seventh

INSERT_MANY_WITH_OPTIONS = f"""
INSERT INTO vtqueue_job ({COMMON}, {OPTIONAL}, claims, attempts, worker_id, state, history)
SELECT
    json_extract(value, '$[0]'), :queue_name, :task_path, :priority, :max_attempts, :lease_us, :enqueued_at, :due_at,
    json_extract(value, '$[4]'), json_extract(value, '$[1]'), :unique_until, json_extract(value, '$[2]'),
    :ordered, json_extract(value, '$[3]'), :parent_id, :start_by, :wake_at, 0, 0, '', :state, '[]'
FROM json_each(:jobs) WHERE true{UPDATE_IF_TAKEN}"""

# What is held by no one, with what a worker gave back as it ended. It reads the indexes alone; the hints are for
# statistics of a time when there were few rows.
DEPTH = """
SELECT count(*) FROM (
    SELECT 1 FROM vtqueue_job INDEXED BY vtqueue_job_queue WHERE queue_name = :name AND state = 'READY'
    UNION ALL
    SELECT 1 FROM vtqueue_job INDEXED BY vtqueue_job_aside WHERE queue_name = :name AND wake_at IS NOT NULL
    UNION ALL
    SELECT 1 FROM vtqueue_job INDEXED BY vtqueue_job_held
    WHERE queue_name = :name AND (task_path = '') IN (0, 1) AND lease_until <= :now AND worker_id = ''
    LIMIT :limit
)"""

# A job that begins later gets its attempt and its start from START_ATTEMPTS.
LEASE = f"""
UPDATE vtqueue_job
SET state = 'RUNNING', claims = min(claims + 1, {MOST_CLAIMS}),
    attempts = min(attempts + :attempts, {MOST_CLAIMS}), worker_id = :worker_id,
    started_at = CASE WHEN :attempts THEN :now END, lease_us = coalesce(:lease_us, lease_us),
    lease_until = :now + coalesce(:lease_us, lease_us), wake_at = NULL, moved_from = NULL,
    progress = NULL, progress_text = NULL,
    unique_until = CASE unique_until WHEN 'start' THEN 'started' ELSE unique_until END
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

READ = f"""
SELECT json_group_array(json_array(rowid, {COLUMNS})) FROM vtqueue_job
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

# The id, the claim number, the worker and the state guard every change by a holder, or in its name: renewals,
# settlements, burials, progress, the start of an attempt. EXTEND, ACK, PASS_ON and the steps write the same guard out.
#
# These have no guard. They change a row of any holder: REQUEST_CANCEL, SEND_EVENT in steps.py, and the repair of what
# a clock has stamped (queue/clock_repair.py). LEASE and SHARE are given rows that the same transaction has found to be
# free, or has leased.
#
# The pluses keep the planner off vtqueue_job_worker, which it prefers to the key after ANALYZE: it would read all rows
# of a worker for each of them, or, if hardly anything was held at the time of ANALYZE, all that are held now.
OF_HOLDER = """
    vtqueue_job.id = json_extract(mine.value, '$[0]') AND vtqueue_job.claims = json_extract(mine.value, '$[1]')
    AND +vtqueue_job.worker_id = json_extract(mine.value, '$[2]') AND +vtqueue_job.state = """
GUARD = OF_HOLDER + "'RUNNING'"
# of a burial: a job that waits may be cancelled, and has no holder
GUARD_OF_BURIAL = OF_HOLDER.removesuffix("AND +vtqueue_job.state = ") + "AND +vtqueue_job.finished_at IS NULL"


def guard(job: HeldJob) -> tuple[str, int, str]:
    """Return what GUARD compares."""
    return job.id, job.claims, job.worker_id


# A lease that was extended does not end sooner, except after a step of the clock (``:afresh``). Else each renewal moves
# the end of the lease, though the clock stands still: who watches a leader recognises its renewals by that.
RENEW = f"""
UPDATE vtqueue_job
SET lease_until = CASE WHEN :afresh THEN :now + lease_us ELSE max(lease_until + 1, :now + lease_us) END
FROM json_each(:held) AS mine WHERE {GUARD}"""

NOT_HELD = f"""
SELECT json_group_array(json_array(json_extract(mine.value, '$[0]'), json_extract(mine.value, '$[1]')))
FROM json_each(:held) AS mine
WHERE NOT EXISTS (SELECT 1 FROM vtqueue_job WHERE {GUARD})"""

START_ATTEMPTS = f"""
UPDATE vtqueue_job SET attempts = min(attempts + 1, {MOST_CLAIMS}), started_at = :now
FROM json_each(:held) AS mine
WHERE {GUARD} AND vtqueue_job.started_at IS NULL AND (start_by IS NULL OR start_by > :now)"""

# The visibility timeout of the job stays what it is.
EXTEND = """
UPDATE vtqueue_job SET lease_until = CASE WHEN :lengthen THEN max(lease_until, :until) ELSE :until END
WHERE id = :id AND claims = :claims AND worker_id = :worker_id AND state = 'RUNNING' AND lease_until > :now"""

# The plus keeps the planner off the indexes of unfinished jobs. What is held for ever cannot be cancelled.
REQUEST_CANCEL = f"""
UPDATE vtqueue_job SET cancelled_at = :now, cancelled_by = :by
WHERE id IN (SELECT value FROM json_each(:ids)) AND +finished_at IS NULL AND cancelled_at IS NULL
  AND {" AND ".join(f"queue_name NOT GLOB '{name}*'" for name in RESERVED_PREFIXES)}"""

CANCEL_REQUESTED_NOW = """
SELECT json_group_array(json_array(id, rowid, worker_id = '')) FROM vtqueue_job
WHERE id IN (SELECT value FROM json_each(:ids)) AND +finished_at IS NULL AND cancelled_at = :now"""

CANCEL_REQUESTS = f"""
SELECT json_group_array(json_array(vtqueue_job.id, claims, coalesce(cancelled_by, '')))
FROM json_each(:held) AS mine CROSS JOIN vtqueue_job WHERE {GUARD} AND cancelled_at IS NOT NULL"""

NOTE_PROGRESS = f"""
UPDATE vtqueue_job
SET progress = json_extract(mine.value, '$[3]'), progress_text = json_extract(mine.value, '$[4]')
FROM json_each(:unsaved) AS mine WHERE {GUARD}"""

# One statement over both tables: between two statements a job could move from one table to the other.
FIND = f"""
SELECT {COLUMNS}, state, finished_at, result FROM vtqueue_job
WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT {COLUMNS_OF_LETTER}, 'FAILED', died_at, NULL FROM vtqueue_deadletter
WHERE id IN (SELECT value FROM json_each(:ids))"""

# The claim number goes with the job: a holder from before its death must stay stale. OR IGNORE: a letter whose unique
# key is taken stays where it is; one that was unique until its start is so again. The history may have one entry too
# many; the next attempt shortens it again.
#
# The inner CASE: a parent still waits for its child if the last of its steps is one that has children, and the id of
# the child is among them. Else the history of the child says that the parent has gone on (``:orphan``).
REQUEUE = """
INSERT OR IGNORE INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, unique_until,
    concurrency_key, ordered, rate_key, parent_id, enqueued_at, started_at, state, due_at, metadata, payload,
    history, steps, earlier_steps
) SELECT
    id, coalesce(:queue_name, queue_name), task_path, coalesce(:priority, priority), claims, 0, max_attempts, '',
    lease_us, unique_key, replace(unique_until, 'started', 'start'), concurrency_key, ordered, rate_key, parent_id,
    enqueued_at, started_at, 'READY', :now, metadata, payload,
    CASE WHEN json_valid(history) THEN json_insert(history, '$[#]', json(
        CASE WHEN parent_id IS NULL OR EXISTS (
            SELECT 1 FROM (
                SELECT id, steps FROM vtqueue_job WHERE +finished_at IS NULL
                UNION ALL SELECT id, steps FROM vtqueue_deadletter
            ) AS parent
            WHERE parent.id = vtqueue_deadletter.parent_id
              AND CASE WHEN json_valid(parent.steps) THEN instr(parent.steps, vtqueue_deadletter.id) END
              AND json_extract(parent.steps, '$.done[#-1].children') IS NOT NULL
        ) THEN :entry ELSE json_set(:entry, '$.message', :orphan) END
    )) ELSE history END, steps, earlier_steps
FROM vtqueue_deadletter WHERE id IN (SELECT value FROM json_each(:ids))"""

REQUEUED = """
SELECT json_group_array(id) FROM vtqueue_deadletter
WHERE id IN (SELECT value FROM json_each(:ids)) AND id IN (SELECT id FROM vtqueue_job)"""

REMOVE_REQUEUED = """
DELETE FROM vtqueue_deadletter
WHERE id IN (SELECT value FROM json_each(:ids)) AND id IN (SELECT id FROM vtqueue_job)"""

# One row for each pause, so the whole table is read.
PAUSES = "SELECT queue_name, paused_until FROM vtqueue_queuestate"

PRUNABLE = """
SELECT EXISTS (SELECT 1 FROM vtqueue_job WHERE kept_until <= :now AND finished_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM vtqueue_deadletter WHERE kept_until <= :now)
    OR EXISTS (SELECT 1 FROM vtqueue_queuestate WHERE paused_until <= :now)"""

PRUNE_JOBS = """
DELETE FROM vtqueue_job WHERE rowid IN (
    SELECT rowid FROM vtqueue_job WHERE kept_until <= :now AND finished_at IS NOT NULL ORDER BY kept_until LIMIT :limit
)"""

PRUNE_LETTERS = """
DELETE FROM vtqueue_deadletter WHERE rowid IN (
    SELECT rowid FROM vtqueue_deadletter WHERE kept_until <= :now ORDER BY kept_until LIMIT :limit
)"""

PRUNE_PAUSES = "DELETE FROM vtqueue_queuestate WHERE paused_until <= :now"
