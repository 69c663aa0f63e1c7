"""The statements that find due rows on SQLite: what is due, and since when, of all queues or of named ones.

A walk over the rows in claim order would visit every scheduled job of a higher priority. So the distinct priorities of
the jobs that wait are walked instead, highest first, each found by one seek; inside a priority what is due is a range
of ``due_at``. The order comes from the loops (CROSS JOIN keeps them as written) and from the indexes: an ORDER BY would
sort everything that is due before the LIMIT.

Those for all queues tell nothing (NULL; minus infinity, -9e999, where NULL is an answer) while one of them is paused.
Then the names that are there, less the paused ones, are to be gone through as named ones are: no row of a paused queue
is looked at. The one for a single name says NULL if that is paused.
"""

from .values import SOUND

# -- pauses and queue names --------------------------------------------------------------------------------------------
#
# The statements that find jobs read the pauses themselves: one seek while there is no pause. A claim relies on the
# pauses of its own transaction. A pause with a damaged end has no end.

IN_EFFECT = "vtqueue_queuestate AS pause WHERE coalesce(pause.paused_until > :now, 1)"
PAUSED = f"(SELECT pause.queue_name FROM {IN_EFFECT})"

# From when on the jobs of a name may be claimed, as far as its pause goes. Every number is below every text.
OPENS = """coalesce((
        SELECT CASE WHEN pause.paused_until < '' THEN pause.paused_until ELSE 9e999 END
        FROM vtqueue_queuestate AS pause WHERE pause.queue_name = name.value
    ), 0)"""


def found(index: str, rows: str) -> str:
    """Return the distinct names of the queues of these rows, each found by one seek in an index that they begin."""
    name = f"SELECT job.queue_name FROM vtqueue_job AS job INDEXED BY {index} WHERE {rows}"
    return f"""(
    WITH RECURSIVE found(value) AS (
        SELECT ({name} AND job.queue_name >= '' ORDER BY job.queue_name LIMIT 1)
        UNION ALL
        SELECT ({name} AND job.queue_name > found.value ORDER BY job.queue_name LIMIT 1)
        FROM found WHERE found.value IS NOT NULL
    )
    SELECT value FROM found WHERE value IS NOT NULL
)"""


FOUND = found("vtqueue_job_queue", "job.finished_at IS NULL AND job.lease_until IS NULL")
HIDING = found("vtqueue_job_hidden", "job.lease_until IS NOT NULL")

PRUNE_PAUSES = "DELETE FROM vtqueue_queuestate WHERE paused_until <= :now"


WAITING = "job.finished_at IS NULL AND job.lease_until IS NULL AND (job.task_path = '') = :raw"
OF_NAME = f"job.queue_name = name.value AND {WAITING}"
OF_BEST = f"job.queue_name = best.name AND {WAITING}"
GIVEN = "json_each(:names)"
NAMED = f"IN (SELECT value FROM {GIVEN} WHERE value NOT IN {PAUSED})"
UNLESS_PAUSED = f"CASE WHEN NOT EXISTS (SELECT 1 FROM {IN_EFFECT}) THEN"


def levels(index: str, rows: str, first: str = "") -> str:
    """Return the CTE ``level(priority)`` over these rows; ``first``: the priority to begin with, if not the highest."""
    highest = f"SELECT job.priority FROM vtqueue_job AS job INDEXED BY {index} WHERE {rows}"
    order = "ORDER BY job.priority DESC LIMIT 1"
    return f"""
    WITH RECURSIVE level(priority) AS (
        SELECT {first or f"({highest} {order})"}
        UNION ALL
        SELECT ({highest} AND job.priority < level.priority {order}) FROM level WHERE level.priority IS NOT NULL
    )"""


LEVELS = levels("vtqueue_job_due", WAITING)
LEVELS_OF_NAME = levels("vtqueue_job_queue", OF_NAME)
LEVELS_OF_BEST = levels("vtqueue_job_queue", OF_BEST, first="best.priority")

# True, but said to be improbable, twice, so that the planner of SQLite (3.38 to 3.40) expects no levels to speak of.
# Else, after ANALYZE, it expects four billion of them, and puts a Bloom filter before the index of the jobs: made anew
# from all rows for each statement, and, as that index has an expression in it, made wrong: nothing would be due.
LEVEL = "likelihood(level.priority IS NOT NULL, 1e-9) AND likelihood(level.priority IS NOT NULL, 1e-9)"

DUE = "job.due_at <= :now"
DUE_VALUES = f"""job.rowid, CAST(job.priority AS INTEGER) AS priority, CAST(job.due_at AS INTEGER) AS due_at,
    CAST(job.claims AS INTEGER) AS claims, {SOUND} AS sound, job.claims = 0 AND job.max_attempts <> 1 AS fresh,
    CAST(job.task_path AS TEXT) AS task_path"""
DUE_ROW = "json_array(due.rowid, due.priority, due.due_at, due.claims, due.sound, due.fresh, due.task_path)"


def due(index: str, rows: str, unless_paused: str) -> str:
    """Return the statement for the due ones of these rows, all of which are in an index in claim order."""
    return f"""
SELECT {unless_paused} ({levels(index, rows)}
    SELECT json_group_array({DUE_ROW}) FROM (
        SELECT {DUE_VALUES}
        FROM level CROSS JOIN vtqueue_job AS job INDEXED BY {index}
        WHERE {LEVEL} AND {rows} AND job.priority = level.priority AND {DUE}
        LIMIT :limit
    ) AS due
) END"""


DUE_ALL = due("vtqueue_job_due", WAITING, UNLESS_PAUSED)
DUE_OF_ONE = due("vtqueue_job_queue", f"job.queue_name = :name AND {WAITING}", f"CASE WHEN :name NOT IN {PAUSED} THEN")

# A merge: ``best`` is a queue in claim order (that is what ORDER BY means in a recursive CTE) and begins with the first
# due row of each name. A row that leaves it is one of the result, and the next of its name takes its place: a later one
# of its instant, else of its priority, else the first of a lower priority. Two ranges instead of a row value, for which
# SQLite would walk over the rows of one instant again and again; the first without DUE, whose range it would prefer.
DUE_NAMED = f"""
WITH RECURSIVE best(name, rowid, priority, due_at) AS (
    SELECT name.value, job.rowid, job.priority, job.due_at
    FROM {GIVEN} AS name CROSS JOIN vtqueue_job AS job
    WHERE name.value NOT IN {PAUSED} AND job.rowid = (
        {LEVELS_OF_NAME}
        SELECT job.rowid FROM level CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {LEVEL} AND {OF_NAME} AND job.priority = level.priority AND {DUE} LIMIT 1
    )
    UNION ALL
    SELECT best.name, job.rowid, job.priority, job.due_at
    FROM best CROSS JOIN vtqueue_job AS job
    WHERE job.rowid = coalesce((
        SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {OF_BEST} AND job.priority = best.priority AND job.due_at = best.due_at
          AND job.rowid > best.rowid LIMIT 1
    ), (
        SELECT job.rowid FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {OF_BEST} AND job.priority = best.priority AND job.due_at > best.due_at AND {DUE} LIMIT 1
    ), (
        {LEVELS_OF_BEST}
        SELECT job.rowid FROM level CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE {LEVEL} AND level.priority < best.priority
          AND {OF_BEST} AND job.priority = level.priority AND {DUE} LIMIT 1
    ))
    ORDER BY 3 DESC, 4, 2
    LIMIT :limit
)
SELECT json_group_array({DUE_ROW}) FROM (
    SELECT {DUE_VALUES} FROM best CROSS JOIN vtqueue_job AS job WHERE job.rowid = best.rowid
) AS due"""
DUE_UNPAUSED = DUE_NAMED.replace(GIVEN, FOUND)

# Every number is below every text: a row with a damaged time waits until it is given another one.
TIMES = f"{WAITING} AND job.priority = level.priority AND job.due_at < ''"
NEVER_PAUSED = "CASE WHEN EXISTS (SELECT 1 FROM vtqueue_queuestate) THEN -9e999 ELSE"
EARLIEST_ALL = f"""
SELECT {NEVER_PAUSED} ({LEVELS}
    SELECT min((
        SELECT job.due_at FROM vtqueue_job AS job INDEXED BY vtqueue_job_due
        WHERE {TIMES} ORDER BY job.due_at LIMIT 1
    )) FROM level WHERE level.priority IS NOT NULL
) END"""

EARLIEST_NAMED = f"""
SELECT nullif(min(max({OPENS}, (
    {LEVELS_OF_NAME}
    SELECT min((
        SELECT job.due_at FROM vtqueue_job AS job INDEXED BY vtqueue_job_queue
        WHERE job.queue_name = name.value AND {TIMES} ORDER BY job.due_at LIMIT 1
    )) FROM level WHERE level.priority IS NOT NULL
))), 9e999) FROM {GIVEN} AS name"""
EARLIEST_UNPAUSED = EARLIEST_NAMED.replace(GIVEN, FOUND)

# What is hidden no longer, of the queues that have any such row, less the paused ones: what was given back, and leases
# that have ended. Whether a holder that is not proven dead has had the time to renew is said by the row's own lease
# (see core/expiry.py); a damaged row needs none.
NAME = LEVEL.replace("level.priority", "name.value")
GRACE = "min(job.lease_us / 10, :grace)"
OF_HIDING = "job.queue_name = name.value AND (job.task_path = '') = :raw AND job.finished_at IS NULL"
IN_SCOPE = "(:names IS NULL OR name.value IN (SELECT value FROM json_each(:names)))"
EXPIRED = f"""
SELECT json_group_array(json_array(expired.rowid, expired.sound, expired.held)) FROM (
    SELECT job.rowid, {SOUND} AS sound, job.state = 'RUNNING' AS held
    FROM {HIDING} AS name CROSS JOIN vtqueue_job AS job INDEXED BY vtqueue_job_hidden
    WHERE {NAME} AND {IN_SCOPE} AND name.value NOT IN {PAUSED} AND {OF_HIDING} AND job.lease_until <= :now
      AND (NOT {SOUND} OR job.worker_id IN ('', :own) OR job.lease_until + {GRACE} <= :now
          AND job.lease_until <= :now - :free AND NOT EXISTS (
          SELECT 1 FROM json_each(:gaps) AS gap
          WHERE json_extract(gap.value, '$[0]') < min(job.lease_us / 3, :rest)
            AND json_extract(gap.value, '$[1]') > job.lease_us / 2
      ))
    LIMIT :limit
) AS expired"""

# When the first of these leases ends, and may be taken.
FIRST_EXPIRY = f"""
SELECT nullif(min(max({OPENS}, (
    SELECT job.lease_until + {GRACE} FROM vtqueue_job AS job INDEXED BY vtqueue_job_hidden
    WHERE {OF_HIDING} AND job.lease_until < '' ORDER BY job.lease_until LIMIT 1
))), 9e999) FROM {HIDING} AS name WHERE {IN_SCOPE}"""
