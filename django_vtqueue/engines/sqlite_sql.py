"""The statements of the queue on SQLite, each whole, with the reason for its shape.

``(task_path = '')`` is 1 for raw payloads and 0 for tasks: the first column of the claim indexes, so that neither
kind is walked over for the other. "Unfinished" is always ``finished_at IS NULL``: the condition of those indexes.
"""

from .sqlite_damage import READABLE, SOUND

COLUMNS = """id, queue_name, task_path, priority, visible_at, claims, attempts, max_attempts, worker_id, lease_us,
    enqueued_at, started_at, payload, history"""

INSERT = """
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, state,
    visible_at, payload, history
) VALUES (
    :id, :queue_name, :task_path, :priority, 0, 0, :max_attempts, '', :lease_us, :enqueued_at, 'READY',
    :visible_at, :payload, '[]'
)"""

INSERT_MANY = """
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, state,
    visible_at, payload, history
) SELECT
    json_extract(value, '$[0]'), :queue_name, :task_path, :priority, 0, 0, :max_attempts, '', :lease_us, :enqueued_at,
    'READY', :visible_at, json_extract(value, '$[1]'), '[]'
FROM json_each(:jobs)"""

# The distinct priorities of the unfinished jobs, highest first, each by one seek in vtqueue_job_due. Walking the rows
# themselves in claim order instead would visit every scheduled and every leased job of a higher priority.
LEVELS = """
WITH RECURSIVE level(priority) AS (
    SELECT (SELECT priority FROM vtqueue_job INDEXED BY vtqueue_job_due
            WHERE finished_at IS NULL AND (task_path = '') = :raw
            ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT priority FROM vtqueue_job INDEXED BY vtqueue_job_due
            WHERE finished_at IS NULL AND (task_path = '') = :raw AND priority < level.priority
            ORDER BY priority DESC LIMIT 1)
    FROM level WHERE level.priority IS NOT NULL
)"""

# The same for one queue, in vtqueue_job_queue.
LEVELS_OF_NAME = """
WITH RECURSIVE level(priority) AS (
    SELECT (SELECT priority FROM vtqueue_job INDEXED BY vtqueue_job_queue
            WHERE queue_name = name.value AND finished_at IS NULL AND (task_path = '') = :raw
            ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT priority FROM vtqueue_job INDEXED BY vtqueue_job_queue
            WHERE queue_name = name.value AND finished_at IS NULL AND (task_path = '') = :raw
              AND priority < level.priority
            ORDER BY priority DESC LIMIT 1)
    FROM level WHERE level.priority IS NOT NULL
)"""

DUE_ROW = "json_array(due.rowid, due.priority, due.visible_at, due.claims, due.expired, due.sound, due.fresh)"
DUE_VALUES = f"""job.rowid, CAST(job.priority AS INTEGER) AS priority, CAST(job.visible_at AS INTEGER) AS visible_at,
        CAST(job.claims AS INTEGER) AS claims, job.state = 'RUNNING' AS expired, {SOUND} AS sound,
        job.claims = 0 AND job.max_attempts <> 1 AS fresh"""
TAKEABLE = f"(job.state = 'READY' OR :now >= :resumed_at + job.lease_us / 3 OR NOT {SOUND})"

# The order comes from the loops (CROSS JOIN keeps them as written) and from the index: no ORDER BY, which would sort
# everything that is due before the LIMIT. Inside a priority it is a range of visible_at.
DUE_ALL = f"""{LEVELS}
SELECT json_group_array({DUE_ROW}) FROM (
    SELECT {DUE_VALUES}
    FROM level CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_due
    WHERE job.finished_at IS NULL AND (job.task_path = '') = :raw
      AND job.priority = level.priority AND job.visible_at <= :now AND {TAKEABLE}
    LIMIT :limit
) AS due"""

# Each name's best rows by the same walk; only these (names times limit) are sorted.
DUE_NAMED = f"""
SELECT json_group_array({DUE_ROW}) FROM (
    SELECT {DUE_VALUES}
    FROM json_each(:names) AS name CROSS JOIN vtqueue_job AS job
    WHERE job.rowid IN (
        {LEVELS_OF_NAME}
        SELECT job.rowid
        FROM level CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE job.queue_name = name.value AND job.finished_at IS NULL AND (job.task_path = '') = :raw
          AND job.priority = level.priority AND job.visible_at <= :now AND {TAKEABLE}
        LIMIT :limit
    )
    ORDER BY job.priority DESC, job.visible_at, job.rowid
    LIMIT :limit
) AS due"""

# Every number is below every text: a row whose time is none (somebody damaged it) waits until it is given one.
EARLIEST_ALL = f"""{LEVELS}
SELECT min((SELECT visible_at FROM vtqueue_job INDEXED BY vtqueue_job_due
            WHERE finished_at IS NULL AND (task_path = '') = :raw AND priority = level.priority AND visible_at < ''
            ORDER BY visible_at LIMIT 1))
FROM level WHERE level.priority IS NOT NULL"""

EARLIEST_NAMED = f"""
SELECT min((
    {LEVELS_OF_NAME}
    SELECT min((SELECT visible_at FROM vtqueue_job INDEXED BY vtqueue_job_queue
                WHERE queue_name = name.value AND finished_at IS NULL AND (task_path = '') = :raw
                  AND priority = level.priority AND visible_at < ''
                ORDER BY visible_at LIMIT 1))
    FROM level WHERE level.priority IS NOT NULL
)) FROM json_each(:names) AS name"""

LEASE = """
UPDATE vtqueue_job
SET state = 'RUNNING', claims = claims + 1, attempts = attempts + :attempts, worker_id = :worker_id, started_at = :now,
    lease_us = coalesce(:lease_us, lease_us), visible_at = :now + coalesce(:lease_us, lease_us)
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

READ = f"""
SELECT rowid, {COLUMNS} FROM vtqueue_job WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

HELD_BY = f"""
SELECT {COLUMNS} FROM vtqueue_job AS job WHERE worker_id = :worker_id AND state = 'RUNNING' AND {SOUND}"""

# Every change to a held row is guarded by these four, whatever else a statement says. The plus keeps the planner off
# vtqueue_job_worker, which it prefers to the key after ANALYZE: all rows of a worker would be read for each of them.
GUARD = """vtqueue_job.id = json_extract(mine.value, '$[0]') AND vtqueue_job.claims = json_extract(mine.value, '$[1]')
    AND +vtqueue_job.worker_id = json_extract(mine.value, '$[2]') AND vtqueue_job.state = 'RUNNING'"""

# OR IGNORE: one row that somebody damaged, and that a constraint refuses, must not keep the others from it.
RENEW = f"""
UPDATE OR IGNORE vtqueue_job SET visible_at = :now + lease_us FROM json_each(:held) AS mine WHERE {GUARD}"""

NOT_HELD = f"""
SELECT json_group_array(json_array(json_extract(mine.value, '$[0]'), json_extract(mine.value, '$[1]')))
FROM json_each(:held) AS mine
WHERE NOT EXISTS (SELECT 1 FROM vtqueue_job WHERE {GUARD})"""

BEGIN = f"""
UPDATE vtqueue_job SET attempts = 1, started_at = :now
FROM json_each(:held) AS mine WHERE {GUARD} AND vtqueue_job.attempts = 0"""

EXTEND = """
UPDATE vtqueue_job SET visible_at = :now + :lease_us, lease_us = :lease_us
WHERE id = :id AND claims = :claims AND worker_id = :worker_id AND state = 'RUNNING' AND visible_at > :now"""

SETTLE = f"""
UPDATE vtqueue_job
SET state = json_extract(mine.value, '$[3]'),
    worker_id = CASE json_extract(mine.value, '$[3]') WHEN 'READY' THEN '' ELSE worker_id END,
    attempts = json_extract(mine.value, '$[4]'),
    visible_at = coalesce(json_extract(mine.value, '$[5]'), visible_at),
    finished_at = json_extract(mine.value, '$[6]'),
    expires_at = json_extract(mine.value, '$[7]'),
    result = coalesce(:result, json_extract(mine.value, '$[8]')),
    history = coalesce(json_extract(mine.value, '$[9]'), history)
FROM json_each(:settlements) AS mine WHERE {GUARD}"""

# Run after SETTLE changed fewer rows than it was given. A row that is just as the settlement leaves it was settled by
# it, now or by a commit whose answer never came. The claim number alone would not do: a row that somebody else gave
# back, buried or requeued since has it too.
NOT_SETTLED = """
SELECT json_group_array(json_array(json_extract(mine.value, '$[0]'), json_extract(mine.value, '$[1]')))
FROM json_each(:settlements) AS mine
WHERE NOT EXISTS (
    SELECT 1 FROM vtqueue_job
    WHERE id = json_extract(mine.value, '$[0]') AND claims = json_extract(mine.value, '$[1]')
      AND state = json_extract(mine.value, '$[3]') AND attempts = json_extract(mine.value, '$[4]')
      AND visible_at = coalesce(json_extract(mine.value, '$[5]'), visible_at)
      AND finished_at IS json_extract(mine.value, '$[6]')
)"""

REMOVE_EXPIRED = """
DELETE FROM vtqueue_job
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'SUCCESSFUL' AND expires_at = finished_at"""

# OR REPLACE: a letter of that id is there already only if somebody has copied it into the queue by hand.
BURY = f"""
INSERT OR REPLACE INTO vtqueue_deadletter (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, enqueued_at,
    started_at, expires_at, died_at, exception_class, message, fingerprint, payload, history
) SELECT
    vtqueue_job.id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key,
    enqueued_at, started_at, json_extract(mine.value, '$[4]'), json_extract(mine.value, '$[3]'),
    json_extract(mine.value, '$[6]'), json_extract(mine.value, '$[7]'), json_extract(mine.value, '$[8]'), payload,
    json_extract(mine.value, '$[5]')
FROM json_each(:settlements) AS mine CROSS JOIN vtqueue_job WHERE {GUARD}"""

REMOVE_BURIED = f"""
DELETE FROM vtqueue_job WHERE rowid IN (
    SELECT vtqueue_job.rowid FROM json_each(:settlements) AS mine CROSS JOIN vtqueue_job WHERE {GUARD}
)"""

NOT_BURIED = """
SELECT json_group_array(json_array(json_extract(mine.value, '$[0]'), json_extract(mine.value, '$[1]')))
FROM json_each(:settlements) AS mine
WHERE NOT EXISTS (
    SELECT 1 FROM vtqueue_deadletter
    WHERE id = json_extract(mine.value, '$[0]') AND claims = json_extract(mine.value, '$[1]')
      AND died_at = json_extract(mine.value, '$[3]')
)"""

# One statement over both tables: between two of them a job could be on its way from one to the other.
FIND = f"""
SELECT {READABLE.format(moment="visible_at")}, CAST(state AS TEXT), CAST(finished_at AS INTEGER), CAST(result AS TEXT)
FROM vtqueue_job WHERE id = :id
UNION ALL
SELECT {READABLE.format(moment="died_at")}, 'FAILED', CAST(died_at AS INTEGER), NULL
FROM vtqueue_deadletter WHERE id = :id"""

# The claim number goes with the job: a holder from before its death must stay stale. OR IGNORE: a letter whose unique
# key is taken meanwhile, or that somebody damaged, stays where it is.
REQUEUE = """
INSERT OR IGNORE INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, enqueued_at,
    started_at, state, visible_at, payload, history
) SELECT
    id, queue_name, task_path, priority, claims, 0, max_attempts, '', lease_us, unique_key, enqueued_at,
    started_at, 'READY', :now, payload, history
FROM vtqueue_deadletter WHERE id IN (SELECT value FROM json_each(:ids))"""

REQUEUED = """
SELECT json_group_array(id) FROM vtqueue_deadletter
WHERE id IN (SELECT value FROM json_each(:ids)) AND id IN (SELECT id FROM vtqueue_job)"""

REMOVE_REQUEUED = """
DELETE FROM vtqueue_deadletter
WHERE id IN (SELECT value FROM json_each(:ids)) AND id IN (SELECT id FROM vtqueue_job)"""

PURGE = """
DELETE FROM vtqueue_job WHERE rowid IN (
    SELECT rowid FROM vtqueue_job
    WHERE queue_name = :queue_name AND finished_at IS NULL AND (state = 'READY' OR visible_at <= :now)
    LIMIT :limit
)"""

PRUNABLE = """
SELECT EXISTS (SELECT 1 FROM vtqueue_job WHERE expires_at <= :now AND finished_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM vtqueue_deadletter WHERE expires_at <= :now)"""

PRUNE_JOBS = """
DELETE FROM vtqueue_job WHERE rowid IN (
    SELECT rowid FROM vtqueue_job WHERE expires_at <= :now AND finished_at IS NOT NULL ORDER BY expires_at LIMIT :limit
)"""

PRUNE_LETTERS = """
DELETE FROM vtqueue_deadletter WHERE rowid IN (
    SELECT rowid FROM vtqueue_deadletter WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
)"""

# Whether ``visible_at`` was stamped by a clock that is ahead of :now; a second is let pass (what is given back waits
# for one). A lease ends one lease after its stamp at the latest. A job never claimed was due at once, or is scheduled,
# which stays as it was asked for. One that was claimed is put off only by the failure of its last attempt: the last
# entry of its history, whose end was stamped together with it. What has no such entry, or has used no attempt, was
# given back, requeued or run by hand, and due at once.
IS_AHEAD = """CASE
    WHEN state = 'RUNNING' THEN visible_at > :now + lease_us + 1000000
    WHEN visible_at <= :now + 1000000 THEN 0
    WHEN claims = 0 THEN visible_at = enqueued_at
    WHEN attempts = 0 OR NOT json_valid(history) THEN 1
    ELSE json_extract(history, '$[#-1].started') IS NOT started_at OR json_extract(history, '$[#-1].ended') > :now
END"""

# A slice of the jobs of one priority that are not due: a million scheduled ones are not looked at in one go. Two ranges
# of vtqueue_job_due, because SQLite would walk over the rows of one instant again and again for a row value.
STAMPED_AHEAD = f"""
SELECT json_group_array(json_array(rowid, visible_at, ahead)) FROM (
    SELECT * FROM (
        SELECT rowid, visible_at, {IS_AHEAD} AS ahead FROM vtqueue_job INDEXED BY vtqueue_job_due
        WHERE finished_at IS NULL AND (task_path = '') = :raw AND priority = :priority
          AND visible_at = :visible_at AND rowid > :rowid
        LIMIT :limit
    )
    UNION ALL
    SELECT * FROM (
        SELECT rowid, visible_at, {IS_AHEAD} AS ahead FROM vtqueue_job INDEXED BY vtqueue_job_due
        WHERE finished_at IS NULL AND (task_path = '') = :raw AND priority = :priority
          AND visible_at > max(:visible_at, :now)
        LIMIT :limit
    )
    LIMIT :limit
)"""

LEVEL_BELOW = """
SELECT max(priority) FROM vtqueue_job INDEXED BY vtqueue_job_due
WHERE finished_at IS NULL AND (task_path = '') = :raw AND priority < :priority"""

# ``enqueued_at`` too: were this clock still ahead, the row would look like a scheduled one to the next repair.
SET_RIGHT = f"""
UPDATE vtqueue_job
SET visible_at = CASE state WHEN 'RUNNING' THEN :now + lease_us ELSE :now END, enqueued_at = min(enqueued_at, :now)
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND finished_at IS NULL AND {IS_AHEAD}"""

COUNT = "SELECT count(*) FROM vtqueue_job WHERE queue_name = :queue_name AND finished_at IS NULL"

BACKLOG = """
SELECT count(*) FROM vtqueue_job
WHERE finished_at IS NULL AND (task_path = '') = :raw AND visible_at <= :now
  AND (:names IS NULL OR queue_name IN (SELECT value FROM json_each(:names)))"""
