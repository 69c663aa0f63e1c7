"""The statements of the queue on SQLite, each whole, with the reason for its shape.

``(task_path = '')`` is 1 for raw payloads and 0 for tasks. It is a column of the claim indexes, so that a claim of one
kind does not walk over rows of the other. A row waits if ``finished_at`` and ``lease_until`` are NULL, the condition of
those indexes, and is held or hidden if ``lease_until`` is not: CHECKs tie both to its state.
"""

from ...core.job import MOST_CLAIMS, HeldJob
from ...core.names import RESERVED

COLUMNS = """id, queue_name, task_path, priority, visible_at, claims, attempts, max_attempts, worker_id, lease_us,
    enqueued_at, started_at, payload, history, due_at"""
COLUMNS_OF_LETTER = COLUMNS.replace("visible_at", "died_at").replace("due_at", "died_at")

INSERT = """
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, state,
    start_by, due_at, payload, history
) VALUES (
    :id, :queue_name, :task_path, :priority, 0, 0, :max_attempts, '', :lease_us, :enqueued_at, 'READY',
    :start_by, :due_at, :payload, '[]'
)"""

INSERT_MANY = """
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, state,
    start_by, due_at, payload, history
) SELECT
    key, :queue_name, :task_path, :priority, 0, 0, :max_attempts, '', :lease_us, :enqueued_at, 'READY',
    :start_by, :due_at, value, '[]'
FROM json_each(:jobs)"""

# The index of unique keys decides, so two that publish one key at the same instant make one job. The job that has the
# key is updated in any case, for only then RETURNING says its id; it becomes another one (a fresh one, in its place)
# only if it is to be replaced, and waits.
REPLACED = ["priority", "max_attempts", "lease_us", "unique_until", "enqueued_at", "start_by", "due_at", "payload"]
REPLACING = (
    "CASE WHEN :replace AND lease_until IS NULL AND task_path = excluded.task_path THEN {} ELSE vtqueue_job.{} END"
)
TO_KEY = f"""
ON CONFLICT (queue_name, unique_key)
WHERE finished_at IS NULL AND unique_key IS NOT NULL AND NOT unique_until = 'started' DO UPDATE
SET attempts = {REPLACING.format("0", "attempts")},
    {", ".join(f"{name} = {REPLACING.format(f'excluded.{name}', name)}" for name in REPLACED)}
RETURNING id, unique_key, task_path"""

INSERT_UNIQUE = f"""
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, unique_until,
    enqueued_at, state, start_by, due_at, payload, history
) VALUES (
    :id, :queue_name, :task_path, :priority, 0, 0, :max_attempts, '', :lease_us, :unique_key, :unique_until,
    :enqueued_at, 'READY', :start_by, :due_at, :payload, '[]'
){TO_KEY}"""

INSERT_MANY_UNIQUE = f"""
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, unique_until,
    enqueued_at, state, start_by, due_at, payload, history
) SELECT
    json_extract(value, '$[0]'), :queue_name, :task_path, :priority, 0, 0, :max_attempts, '', :lease_us,
    json_extract(value, '$[1]'), :unique_until, :enqueued_at, 'READY', :start_by, :due_at,
    json_extract(value, '$[2]'), '[]'
FROM json_each(:jobs) WHERE true{TO_KEY}"""

# A job that begins later gets its attempt and its start from BEGIN.
LEASE = f"""
UPDATE vtqueue_job
SET state = 'RUNNING', claims = min(claims + 1, {MOST_CLAIMS}),
    attempts = min(attempts + :attempts, {MOST_CLAIMS}), worker_id = :worker_id,
    started_at = CASE WHEN :attempts THEN :now END, lease_us = coalesce(:lease_us, lease_us),
    lease_until = :now + coalesce(:lease_us, lease_us), progress = NULL, progress_text = NULL,
    unique_until = CASE unique_until WHEN 'start' THEN 'started' ELSE unique_until END
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

READ = f"""
SELECT json_group_array(json_array(rowid, {COLUMNS})) FROM vtqueue_job
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

HELD_BY = f"SELECT {COLUMNS} FROM vtqueue_job WHERE worker_id = :worker_id AND state = 'RUNNING'"

# Every change to a held row is guarded by these four, whatever else a statement says. The pluses keep the planner off
# vtqueue_job_worker, which it prefers to the key after ANALYZE: all rows of a worker would be read for each of them,
# or, if hardly anything was held then, all that are held now.
OF_HOLDER = """
    vtqueue_job.id = json_extract(mine.value, '$[0]') AND vtqueue_job.claims = json_extract(mine.value, '$[1]')
    AND +vtqueue_job.worker_id = json_extract(mine.value, '$[2]') AND +vtqueue_job.state = """
GUARD = OF_HOLDER + "'RUNNING'"
# of a burial: a job that waits may be cancelled, and has no holder
GUARD_OF_BURIAL = OF_HOLDER + "CASE json_extract(mine.value, '$[2]') WHEN '' THEN 'READY' ELSE 'RUNNING' END"


def guard(job: HeldJob) -> tuple[str, int, str]:
    """Return what GUARD compares."""
    return job.id, job.claims, job.worker_id


# A lease that was extended does not end sooner, except after a step of the clock (``:afresh``).
RENEW = f"""
UPDATE vtqueue_job
SET lease_until = CASE WHEN :afresh THEN :now + lease_us ELSE max(lease_until, :now + lease_us) END
FROM json_each(:held) AS mine WHERE {GUARD}"""

NOT_HELD = f"""
SELECT json_group_array(json_array(json_extract(mine.value, '$[0]'), json_extract(mine.value, '$[1]')))
FROM json_each(:held) AS mine
WHERE NOT EXISTS (SELECT 1 FROM vtqueue_job WHERE {GUARD})"""

BEGIN = f"""
UPDATE vtqueue_job SET attempts = min(attempts + 1, {MOST_CLAIMS}), started_at = :now
FROM json_each(:held) AS mine WHERE {GUARD} AND vtqueue_job.started_at IS NULL"""

# The visibility timeout of the job stays what it is.
EXTEND = """
UPDATE vtqueue_job SET lease_until = CASE WHEN :lengthen THEN max(lease_until, :until) ELSE :until END
WHERE id = :id AND claims = :claims AND worker_id = :worker_id AND state = 'RUNNING' AND lease_until > :now"""

# The plus keeps the planner off the indexes of unfinished jobs. What is held for ever is not asked to stop.
ASK = f"""
UPDATE vtqueue_job SET cancelled_at = :now, cancelled_by = :by
WHERE id IN (SELECT value FROM json_each(:ids)) AND +finished_at IS NULL AND cancelled_at IS NULL
  AND {" AND ".join(f"queue_name NOT GLOB '{name}*'" for name in RESERVED)}"""

ASKED_NOW = """
SELECT json_group_array(json_array(id, rowid, state)) FROM vtqueue_job
WHERE id IN (SELECT value FROM json_each(:ids)) AND +finished_at IS NULL AND cancelled_at = :now"""

ASKED = f"""
SELECT json_group_array(json_array(vtqueue_job.id, claims, coalesce(cancelled_by, '')))
FROM json_each(:held) AS mine CROSS JOIN vtqueue_job WHERE {GUARD} AND cancelled_at IS NOT NULL"""

NOTE_PROGRESS = f"""
UPDATE vtqueue_job
SET progress = json_extract(mine.value, '$[3]'), progress_text = json_extract(mine.value, '$[4]')
FROM json_each(:said) AS mine WHERE {GUARD}"""

# One statement over both tables: between two statements a job could move from one table to the other.
FIND = f"""
SELECT {COLUMNS}, state, finished_at, result FROM vtqueue_job WHERE id = :id
UNION ALL
SELECT {COLUMNS_OF_LETTER}, 'FAILED', died_at, NULL FROM vtqueue_deadletter WHERE id = :id"""

# The claim number goes with the job: a holder from before its death must stay stale. OR IGNORE: a letter whose unique
# key is taken stays where it is; one that was unique until its start is so again. The history may have one entry too
# many; the next attempt shortens it again.
REQUEUE = """
INSERT OR IGNORE INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, unique_until,
    enqueued_at, started_at, state, due_at, payload, history
) SELECT
    id, coalesce(:queue_name, queue_name), task_path, coalesce(:priority, priority), claims, 0, max_attempts, '',
    lease_us, unique_key, replace(unique_until, 'started', 'start'), enqueued_at, started_at,
    'READY', :now, payload,
    CASE WHEN json_valid(history) THEN json_insert(history, '$[#]', json(:entry)) ELSE history END
FROM vtqueue_deadletter WHERE id IN (SELECT value FROM json_each(:ids))"""

REQUEUED = """
SELECT json_group_array(id) FROM vtqueue_deadletter
WHERE id IN (SELECT value FROM json_each(:ids)) AND id IN (SELECT id FROM vtqueue_job)"""

REMOVE_REQUEUED = """
DELETE FROM vtqueue_deadletter
WHERE id IN (SELECT value FROM json_each(:ids)) AND id IN (SELECT id FROM vtqueue_job)"""

PRUNABLE = """
SELECT EXISTS (SELECT 1 FROM vtqueue_job WHERE expires_at <= :now AND finished_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM vtqueue_deadletter WHERE expires_at <= :now)
    OR EXISTS (SELECT 1 FROM vtqueue_queuestate WHERE paused_until <= :now)"""

PRUNE_JOBS = """
DELETE FROM vtqueue_job WHERE rowid IN (
    SELECT rowid FROM vtqueue_job WHERE expires_at <= :now AND finished_at IS NOT NULL ORDER BY expires_at LIMIT :limit
)"""

PRUNE_LETTERS = """
DELETE FROM vtqueue_deadletter WHERE rowid IN (
    SELECT rowid FROM vtqueue_deadletter WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
)"""

# Whether a clock was ahead of :now, by more than a second, when something was written. Each part is one seek: ids are
# in time order, and workers write heartbeats and counts.
CLOCK_WAS_AHEAD = """
SELECT EXISTS (SELECT 1 FROM vtqueue_job WHERE id > :first_id)
    OR EXISTS (SELECT 1 FROM vtqueue_workerprocess WHERE heartbeat_at > :now + 1000000)
    OR EXISTS (SELECT 1 FROM vtqueue_throughput WHERE minute > :now + 1000000)"""

SHOW = """
UPDATE vtqueue_job SET lease_until = NULL
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND +state = 'READY'"""

# Rows with stamps of a clock that was ahead of :now. The evidence is always the stamp of a past event that lies in the
# future: for a lease, the claim or the heartbeat of the holder; for a job that was due at once, its publishing; for a
# retry, the end of the last attempt, also while it is held. A row that was given back is hidden for a second at most.
# A release and an expiry do not change ``due_at``, so their entries prove nothing. A time that was asked for is kept.
LEASE_AHEAD = """(state = 'RUNNING' AND lease_until > :now + lease_us + 1000000 AND (
        started_at > :now + 1000000
        OR worker_id IN (SELECT worker_id FROM vtqueue_workerprocess WHERE heartbeat_at > :now + 1000000)
    ))"""
DUE_AHEAD = """(finished_at IS NULL AND due_at > :now + 1000000 AND CASE
        WHEN enqueued_at > :now + 1000000 AND due_at = enqueued_at THEN 1
        WHEN claims = 0 THEN 0
        WHEN NOT json_valid(history) THEN started_at > :now + 1000000
        ELSE json_extract(history, '$[#-1].ended') > :now + 1000000
            AND json_extract(history, '$[#-1].outcome') NOT IN ('released', 'lease expired')
    END)"""
IS_AHEAD = f"({LEASE_AHEAD} OR state = 'READY' AND lease_until > :now + 2000000 OR {DUE_AHEAD})"

STAMPED_AHEAD = f"""
SELECT json_group_array(json_array(rowid, ahead)) FROM (
    SELECT rowid, {IS_AHEAD} AS ahead FROM vtqueue_job NOT INDEXED WHERE rowid > :after ORDER BY rowid LIMIT :limit
)"""

# ``enqueued_at`` too: if this clock were still ahead, the next repair would take the row for a scheduled one.
SET_RIGHT = f"""
UPDATE vtqueue_job
SET due_at = CASE WHEN {DUE_AHEAD} THEN :now ELSE due_at END,
    lease_until = CASE WHEN {LEASE_AHEAD} THEN :now + lease_us WHEN state = 'RUNNING' THEN lease_until END,
    enqueued_at = min(enqueued_at, :now)
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND {IS_AHEAD}"""
