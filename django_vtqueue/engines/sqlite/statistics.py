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
