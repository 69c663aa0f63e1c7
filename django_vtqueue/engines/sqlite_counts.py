"""The statements of the statistics on SQLite, each whole, with the reason for its shape."""

# "WHERE true", for else the parser takes ON CONFLICT for the condition of a join.
TALLY = """
INSERT INTO vtqueue_throughput (
    minute, queue_name, worker_id, succeeded, failed, dead, run_times, wait_times
) SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), :worker_id, json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]')
FROM json_each(:rows) WHERE true
ON CONFLICT (minute, queue_name, worker_id) DO UPDATE SET
    succeeded = excluded.succeeded, failed = excluded.failed, dead = excluded.dead, run_times = excluded.run_times,
    wait_times = excluded.wait_times"""

# That of the unique constraint, which begins with the minute; by its name, for after an ANALYZE of a table that was
# still small all of it would be walked over.
BY_MINUTE = "INDEXED BY sqlite_autoindex_vtqueue_throughput_1"

# Numbers that are none (somebody damaged the row) are no reason to fail.
COUNTS = f"""
SELECT minute, CAST(queue_name AS TEXT), succeeded, failed, dead, run_times, wait_times
FROM vtqueue_throughput {BY_MINUTE}
WHERE minute BETWEEN :first AND :last
  AND typeof(minute) = 'integer' AND typeof(succeeded) = 'integer' AND typeof(failed) = 'integer'
  AND typeof(dead) = 'integer' AND succeeded >= 0 AND failed >= 0 AND dead >= 0"""

# Whole minutes: of "rowid IN (…)" that table would be walked over, too.
PRUNE_COUNTS = f"""
DELETE FROM vtqueue_throughput {BY_MINUTE}
WHERE minute < :before AND minute <= (
    SELECT max(minute) FROM (
        SELECT minute FROM vtqueue_throughput {BY_MINUTE} WHERE minute < :before ORDER BY minute LIMIT :limit
    )
)"""

# Two ranges of primary keys, newest first, each no longer than the limit.
RANGE = "id >= :first AND id < :last ORDER BY id DESC LIMIT :limit"
ARRIVALS = f"""
SELECT CAST(queue_name AS TEXT), count(*) FROM (
    SELECT * FROM (SELECT queue_name FROM vtqueue_job WHERE {RANGE})
    UNION ALL
    SELECT * FROM (SELECT queue_name FROM vtqueue_deadletter WHERE {RANGE})
    LIMIT :limit
) GROUP BY 1"""
