"""The statements of the queue on SQLite, each whole, with the reason for its shape.

``(task_path = '')`` is 1 for raw payloads and 0 for tasks: the first column of the claim indexes, so that neither
kind is walked over for the other. "Unfinished" is always ``finished_at IS NULL``: the condition of those indexes.
"""

from ..jobs import HeldJob
from .sqlite_damage import READABLE, SOUND

COLUMNS = """id, queue_name, task_path, priority, CAST(visible_at AS INTEGER), claims, attempts, max_attempts,
    worker_id, lease_us, enqueued_at, started_at, payload, history"""

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
    key, :queue_name, :task_path, :priority, 0, 0, :max_attempts, '', :lease_us, :enqueued_at, 'READY',
    :visible_at, value, '[]'
FROM json_each(:jobs)"""

LEASE = """
UPDATE vtqueue_job
SET state = 'RUNNING', claims = claims + 1, attempts = attempts + :attempts, worker_id = :worker_id, started_at = :now,
    lease_us = coalesce(:lease_us, lease_us), visible_at = :now + coalesce(:lease_us, lease_us), progress = NULL,
    progress_text = NULL
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

READ = f"""
SELECT json_group_array(json_array(rowid, {COLUMNS})) FROM vtqueue_job
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""

HELD_BY = f"""
SELECT {COLUMNS} FROM vtqueue_job AS job WHERE worker_id = :worker_id AND state = 'RUNNING' AND {SOUND}"""

# Every change to a held row is guarded by these four, whatever else a statement says. The pluses keep the planner off
# vtqueue_job_worker, which it prefers to the key after ANALYZE: all rows of a worker would be read for each of them,
# or, if hardly anything was held then, all that are held now.
IN_STATE = """
    vtqueue_job.id = json_extract(mine.value, '$[0]') AND vtqueue_job.claims = json_extract(mine.value, '$[1]')
    AND +vtqueue_job.worker_id = json_extract(mine.value, '$[2]') AND +vtqueue_job.state = """
GUARD = IN_STATE + "'RUNNING'"
WAITS = IN_STATE + "'READY'"


def guard(job: HeldJob) -> tuple[str, int, str]:
    """Return what GUARD compares."""
    return job.id, job.claims, job.worker_id


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

# The plus keeps the planner off the indexes of unfinished jobs. OR IGNORE and SOUND: a row that somebody damaged keeps
# the others from nothing; a claim buries it.
ASK = f"""
UPDATE OR IGNORE vtqueue_job AS job SET cancelled_at = :now, cancelled_by = :by
WHERE id IN (SELECT value FROM json_each(:ids)) AND +finished_at IS NULL AND cancelled_at IS NULL AND {SOUND}"""

ASKED_NOW = """
SELECT json_group_array(json_array(id, rowid, state)) FROM vtqueue_job
WHERE id IN (SELECT value FROM json_each(:ids)) AND +finished_at IS NULL AND cancelled_at = :now"""

# CAST: a name that somebody damaged keeps nobody from settling.
ASKED = f"""
SELECT json_group_array(json_array(vtqueue_job.id, claims, CAST(coalesce(cancelled_by, '') AS TEXT)))
FROM json_each(:held) AS mine CROSS JOIN vtqueue_job WHERE {GUARD} AND cancelled_at IS NOT NULL"""

# OR IGNORE: as in RENEW.
NOTE_PROGRESS = f"""
UPDATE OR IGNORE vtqueue_job
SET progress = json_extract(mine.value, '$[3]'), progress_text = json_extract(mine.value, '$[4]')
FROM json_each(:said) AS mine WHERE {GUARD}"""

# One statement over both tables: between two of them a job could be on its way from one to the other.
FIND = f"""
SELECT {READABLE.format(moment="visible_at")}, CAST(state AS TEXT), CAST(finished_at AS INTEGER), CAST(result AS TEXT)
FROM vtqueue_job WHERE id = :id
UNION ALL
SELECT {READABLE.format(moment="died_at")}, 'FAILED', CAST(died_at AS INTEGER), NULL
FROM vtqueue_deadletter WHERE id = :id"""

# The claim number goes with the job: a holder from before its death must stay stale. OR IGNORE: a letter whose unique
# key is taken meanwhile, or that somebody damaged, stays where it is. The history may have one entry more than its caps
# allow; the attempt that comes next brings it back to them.
REQUEUE = """
INSERT OR IGNORE INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, unique_key, enqueued_at,
    started_at, state, visible_at, payload, history
) SELECT
    id, coalesce(:queue_name, queue_name), task_path, coalesce(:priority, priority), claims, 0, max_attempts, '',
    lease_us, unique_key, enqueued_at, started_at, 'READY', :now, payload,
    CASE WHEN json_valid(history) THEN json_insert(history, '$[#]', json(:entry)) ELSE history END
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

# ``enqueued_at`` too: were this clock still ahead, the row would look like a scheduled one to the next repair. The plus
# keeps the planner off vtqueue_job_due, should ANALYZE have found next to nothing in it.
SET_RIGHT = f"""
UPDATE vtqueue_job
SET visible_at = CASE state WHEN 'RUNNING' THEN :now + lease_us ELSE :now END, enqueued_at = min(enqueued_at, :now)
WHERE rowid IN (SELECT value FROM json_each(:rowids)) AND +finished_at IS NULL AND {IS_AHEAD}"""

COUNT = "SELECT count(*) FROM vtqueue_job WHERE queue_name = :queue_name AND finished_at IS NULL"
