"""The statements of the statistics on SQLite, each whole, with the reason for its shape."""

MINUTES, HOURS = "vtqueue_throughput", "vtqueue_hourlythroughput"


def by_minute(table: str) -> str:
    """Return how a statement names the index of the unique constraint, which begins with the minute.

    By its name, for after an ANALYZE of a table that was still small all of it would be walked over.
    """
    return f"INDEXED BY sqlite_autoindex_{table}_1"


def adding(table: str) -> str:
    # "WHERE true", for else the parser takes ON CONFLICT for the condition of a join.
    return f"""
INSERT INTO {table} (
    minute, queue_name, task_path, worker_id, succeeded, failed, dead, run_times, wait_times, depth
) SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), :worker_id,
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
    json_extract(value, '$[6]'), json_extract(value, '$[7]'), json_extract(value, '$[8]')
FROM json_each(:rows) WHERE true
ON CONFLICT (minute, queue_name, task_path, worker_id) DO UPDATE SET
    succeeded = excluded.succeeded, failed = excluded.failed, dead = excluded.dead, run_times = excluded.run_times,
    wait_times = excluded.wait_times, depth = excluded.depth"""


ADD_MINUTES, ADD_HOURS = adding(MINUTES), adding(HOURS)
BY_MINUTE = by_minute(MINUTES)

# Damaged numbers are no reason to fail.
COUNTS = f"""
SELECT minute, CAST(queue_name AS TEXT), succeeded, failed, dead, run_times, wait_times
FROM vtqueue_throughput {BY_MINUTE}
WHERE minute BETWEEN :first AND :last
  AND typeof(minute) = 'integer' AND typeof(succeeded) = 'integer' AND typeof(failed) = 'integer'
  AND typeof(dead) = 'integer' AND succeeded >= 0 AND failed >= 0 AND dead >= 0"""


def prune(table: str) -> str:
    # Whole minutes: of "rowid IN (…)" that table would be walked over, too.
    return f"""
DELETE FROM {table} {by_minute(table)}
WHERE minute < :before AND minute <= (
    SELECT max(minute) FROM (
        SELECT minute FROM {table} {by_minute(table)} WHERE minute < :before ORDER BY minute LIMIT :limit
    )
)"""


PRUNE_COUNTS, PRUNE_HOURS = prune(MINUTES), prune(HOURS)


def chosen(table: str) -> str:
    """Return the rows of a chart: of a time, and of one queue or task, or (null) of all of them."""
    return f"""{table} {by_minute(table)}
WHERE minute BETWEEN :first AND :last AND typeof(minute) = 'integer'
  AND (:queue IS NULL OR queue_name = :queue) AND (:task IS NULL OR task_path = :task)"""


NUMBERS = "typeof(succeeded) = 'integer' AND typeof(failed) = 'integer' AND typeof(dead) = 'integer'"


def series(table: str) -> str:
    return f"""
SELECT (minute - :first) / :width, sum(succeeded), sum(failed), sum(dead) FROM {chosen(table)} AND {NUMBERS}
GROUP BY 1"""


# Each worker measures all queues: of what they found the most counts, and the sum over the queues.
def depths(table: str) -> str:
    return f"""
SELECT slot, sum(deepest) FROM (
    SELECT (minute - :first) / :width AS slot, queue_name, max(depth) AS deepest
    FROM {chosen(table)} AND typeof(depth) = 'integer' GROUP BY 1, 2
) GROUP BY 1"""


def spans(table: str) -> str:
    return f"""
SELECT (minute - :first) / :width, run_times, wait_times FROM {chosen(table)} AND succeeded + failed + dead > 0
LIMIT :most"""


SERIES, DEPTHS, SPANS = ({table: make(table) for table in (MINUTES, HOURS)} for make in (series, depths, spans))

# Of each task, minute by minute (or hour by hour).
SUCCESSES = {
    table: f"""
SELECT CAST(task_path AS TEXT), minute, sum(succeeded) FROM {table} {by_minute(table)}
WHERE minute >= :first AND succeeded > 0 AND task_path IN (SELECT value FROM json_each(:tasks))
  AND typeof(minute) = 'integer' AND typeof(succeeded) = 'integer'
GROUP BY 1, 2"""
    for table in (MINUTES, HOURS)
}

# Two ranges of primary keys, newest first, each no longer than the limit.
RANGE = "id >= :first AND id < :last ORDER BY id DESC LIMIT :limit"
ARRIVALS = f"""
SELECT CAST(queue_name AS TEXT), count(*) FROM (
    SELECT * FROM (SELECT queue_name FROM vtqueue_job WHERE {RANGE})
    UNION ALL
    SELECT * FROM (SELECT queue_name FROM vtqueue_deadletter WHERE {RANGE})
    LIMIT :limit
) GROUP BY 1"""
