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


def found(index: str, rows: str, limit: str = "") -> str:
    """Return the distinct names of the queues of these rows, each found by one seek in an index that they begin."""
    name = f"SELECT job.queue_name FROM vtqueue_job AS job INDEXED BY {index} WHERE {rows}"
    return f"""(
    WITH RECURSIVE found(value) AS (
        SELECT ({name} AND job.queue_name >= '' ORDER BY job.queue_name LIMIT 1)
        UNION ALL
        SELECT ({name} AND job.queue_name > found.value ORDER BY job.queue_name LIMIT 1)
        FROM found WHERE found.value IS NOT NULL
        {limit}
    )
    SELECT value FROM found WHERE value IS NOT NULL
)"""


WITH_WAITING = "vtqueue_job_queue", "job.finished_at IS NULL AND job.lease_until IS NULL"
WITH_HIDDEN = "vtqueue_job_hidden", "job.lease_until IS NOT NULL"
FOUND, HIDING = found(*WITH_WAITING), found(*WITH_HIDDEN)
QUEUE_NAMES = f"SELECT CAST(value AS TEXT) FROM {FOUND} UNION SELECT CAST(value AS TEXT) FROM {HIDING} ORDER BY 1"

PRUNE_PAUSES = "DELETE FROM vtqueue_queuestate WHERE paused_until <= :now"
