"""A database as a busy shop has it after some weeks: very many jobs of all kinds, dead letters, workers, statistics."""

import time
from contextlib import closing

from .tools import raw_connection

MINUTE = 60_000_000  # microseconds
QUEUES, TASKS, WORKERS, ERRORS = 20, 50, 8, 300

NUMBERS = "WITH RECURSIVE number(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < :count)"

# A UUIDv7 of the moment at which row n was enqueued, one a second, the last of them now.
ENQUEUED = "(:now - (:count - n) * 1000000)"
ID = f"""printf('%012x7%03x8', {ENQUEUED} / 1000, n % 4096) || substr(lower(hex(randomblob(8))), 1, 15)"""
QUEUE, TASK = f"'queue-' || (n % {QUEUES})", f"'shop.tasks.task_' || (n * 7 % {TASKS})"
PAYLOAD = """json_object(
    'args', json_array(n, 'order-' || (n * 31 % 100003)), 'kwargs', json_object('email', 'user' || n || '@example.com')
)"""

# Of a hundred: 60 have succeeded, 25 are due, 9 scheduled, 4 retrying, 1 is running and 1 expired.
STATE = """CASE WHEN n % 100 < 60 THEN 'SUCCESSFUL' WHEN n % 100 < 85 THEN 'READY' WHEN n % 100 < 98 THEN 'SCHEDULED'
    ELSE 'RUNNING' END"""
HELD = f"CASE WHEN n % 100 < 60 OR n % 100 >= 98 THEN 'web1:' || (n % {WORKERS}) || ':abcd' ELSE '' END"
VISIBLE = "CASE WHEN n % 100 < 85 THEN :now - n WHEN n % 100 < 99 THEN :now + 3600000000 + n ELSE :now - n END"
WAKES = f"CASE WHEN n % 100 BETWEEN 85 AND 97 THEN {VISIBLE} END"
LEASED = f"CASE WHEN n % 100 >= 98 THEN {VISIBLE} END"
FINISHED = f"CASE WHEN n % 100 < 60 THEN {ENQUEUED} + 1000000 END"
USED = "n % 100 < 60 OR n % 100 >= 94"

ENDED = """json_array(json_object(
    'number', 1, 'worker', 'web1:1:abcd', 'started', :now - 2, 'ended', :now - 1, 'outcome', 'failed',
    'exception_class', 'builtins.ConnectionError', 'message', 'refused', 'traceback', hex(zeroblob(600))
))"""

JOBS = f"""{NUMBERS}
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, started_at,
    kept_until, state, due_at, wake_at, lease_until, finished_at, payload, history, result
)
SELECT {ID}, {QUEUE}, {TASK}, n % 3 - 1, {USED}, {USED}, 10, {HELD}, {MINUTE}, {ENQUEUED},
    CASE WHEN {USED} THEN {ENQUEUED} + 500000 END, CASE WHEN n % 100 < 60 THEN :now + 86400000000 + n END,
    {STATE}, {VISIBLE}, {WAKES}, {LEASED}, {FINISHED}, {PAYLOAD}, CASE WHEN n % 100 >= 94 THEN {ENDED} ELSE '[]' END,
    CASE WHEN n % 100 < 60 THEN '"sent"' END
FROM number"""

# Few errors have most of the letters, many have few.
ERROR = f"((n % 1000) * (n % 1000) * {ERRORS} / 1000000)"
LETTERS = f"""{NUMBERS}
INSERT INTO vtqueue_deadletter (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, started_at,
    died_at, exception_class, message, fingerprint, payload, history
)
SELECT {ID}, {QUEUE}, {TASK}, 0, 10, 10, 10, 'web1:1:abcd', {MINUTE}, {ENQUEUED}, {ENQUEUED} + 500000,
    {ENQUEUED} + 1000000, 'shop.errors.Error' || ({ERROR} % 40), 'order-' || n || ' was refused',
    printf('%032x', {ERROR}), {PAYLOAD}, {ENDED}
FROM number"""

PRESENT = f"""{NUMBERS}
INSERT INTO vtqueue_workerprocess (
    worker_id, host, pid, queues, slots, started_at, heartbeat_at, doorbell, memory, asked_to
)
SELECT 'web1:' || n || ':abcd', 'web1', n, '', 8, :now - 3600000000, :now, '', 90000000, '' FROM number"""

# What each worker did for each queue in each of the last 180 minutes.
MINUTES = f"""{NUMBERS}
INSERT INTO vtqueue_throughput (starts_at, queue_name, worker_id, succeeded, failed, dead, run_times, wait_times)
SELECT (:now / {MINUTE} - n / {QUEUES * WORKERS}) * {MINUTE}, {QUEUE}, 'web1:' || (n / {QUEUES} % {WORKERS}) || ':abcd',
    n % 60, n % 7, n % 3, '{{"40": 30, "44": 20, "52": 9, "60": 1}}', '{{"20": 40, "28": 19, "70": 1}}'
FROM number"""

# The same by the hour, of the last day.
HOURS = f"""{NUMBERS}
INSERT INTO vtqueue_hourlythroughput (starts_at, queue_name, worker_id, succeeded, failed, dead, run_times, wait_times)
SELECT (:now / {60 * MINUTE} - n / {QUEUES * WORKERS}) * {60 * MINUTE}, {QUEUE},
    'web1:' || (n / {QUEUES} % {WORKERS}) || ':abcd', n % 3600, n % 420, n % 180,
    '{{"40": 1800, "44": 1200, "52": 540, "60": 60}}', '{{"20": 2400, "28": 1140, "70": 60}}'
FROM number"""


def fill(jobs: int, letters: int) -> None:
    """Put the rows into the database, which has none."""
    now = time.time_ns() // 1000
    minutes, hours = (number * QUEUES * WORKERS for number in (180, 24))
    with closing(raw_connection()) as connection:
        for sql, count in ((JOBS, jobs), (LETTERS, letters), (PRESENT, WORKERS), (MINUTES, minutes), (HOURS, hours)):
            connection.execute(sql, {"count": count, "now": now})
        connection.execute(
            "INSERT INTO vtqueue_queuestate VALUES ('queue-3', ?, NULL, 'anna', 'the mail server is down')", (now,)
        )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
