"""Pauses as the statements of SQLite see them, and the names of the queues that are there.

The statements that find jobs look at the pauses themselves, by no more than a seek as long as there is none: a claim
relies on those of its own transaction. A pause whose end is none (somebody damaged it) has no end.
"""

IN_EFFECT = "vtqueue_queuestate AS pause WHERE coalesce(pause.paused_until > :now, 1)"
PAUSED = f"(SELECT pause.queue_name FROM {IN_EFFECT})"

# From when on the jobs of a name may be claimed, as far as its pause goes. Every number is below every text.
OPENS = """coalesce((
        SELECT CASE WHEN pause.paused_until < '' THEN pause.paused_until ELSE 9e999 END
        FROM vtqueue_queuestate AS pause WHERE pause.queue_name = name.value
    ), 0)"""

# The names of all queues with unfinished jobs, each found by one seek.
NAME = "SELECT job.queue_name FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue WHERE job.finished_at IS NULL"
FOUND = f"""(
    WITH RECURSIVE found(value) AS (
        SELECT ({NAME} AND job.queue_name >= '' ORDER BY job.queue_name LIMIT 1)
        UNION ALL
        SELECT ({NAME} AND job.queue_name > found.value ORDER BY job.queue_name LIMIT 1)
        FROM found WHERE found.value IS NOT NULL
    )
    SELECT value FROM found WHERE value IS NOT NULL
)"""
QUEUE_NAMES = f"SELECT CAST(value AS TEXT) FROM {FOUND}"

PRUNE_PAUSES = "DELETE FROM vtqueue_queuestate WHERE paused_until <= :now"
