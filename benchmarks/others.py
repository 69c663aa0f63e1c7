"""Other rows, that must not slow down those which are due: many of one kind, written straight into the table."""

import time
from contextlib import closing

from .tools import raw_connection

DAY = 86_400_000_000  # microseconds
QUEUES = 1000
LATER = ":now + :day + n"

# State, worker, claims, priority, queue, due_at, wake_at, lease_until, finished_at and kept_until, for row number n at
# :now; and of some unique_key and start_by.
KINDS = {
    "finished": "'SUCCESSFUL', 'other', 1, 0, 'default', :now - :day, NULL, NULL, :now - n, :now + :day - n",
    "scheduled, higher priority": f"'SCHEDULED', '', 0, 50, 'default', {LATER}, {LATER}, NULL, NULL, NULL",
    "leased, higher priority": "'RUNNING', 'other', 1, 50, 'default', :now, NULL, :now + :day, NULL, NULL",
    "scheduled, 201 priorities": f"'SCHEDULED', '', 0, n % 201 - 100, 'default', {LATER}, {LATER}, NULL, NULL, NULL",
    "scheduled, 1,000 queues": f"'SCHEDULED', '', 0, 0, 'q' || (n % 1000), {LATER}, {LATER}, NULL, NULL, NULL",
    "due, 1,000 queues": "'READY', '', 0, 0, 'q' || (n % 1000), :now - n, NULL, NULL, NULL, NULL",
    "due at one moment": "'READY', '', 0, 0, 'default', :now, NULL, NULL, NULL, NULL",
    "scheduled, keys and expiry": f"'SCHEDULED', '', 0, 0, 'default', {LATER}, {LATER}, NULL, NULL, NULL",
}
MORE = {"scheduled, keys and expiry": "'report:' || n, :now + 2 * :day + n"}

FILL = """
WITH RECURSIVE number(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < :count)
INSERT INTO vtqueue_job (
    id, task_path, attempts, max_attempts, lease_us, enqueued_at, payload, history,
    state, worker_id, claims, priority, queue_name, due_at, wake_at, lease_until, finished_at, kept_until,
    unique_key, start_by
)
SELECT
    printf('%%012x', (:now - :day) / 1000) || lower(hex(randomblob(10))), :task_path, 0, 10, :day, :now - :day,
    '{"args": [], "kwargs": {}}', '[]', %s, %s
FROM number"""


def add(kind: str, count: int, task_path: str) -> None:
    """Add so many rows of a kind; ``task_path``: empty for raw payloads."""
    values = {"count": count, "task_path": task_path, "now": time.time_ns() // 1000, "day": DAY}
    with closing(raw_connection()) as connection:
        connection.execute(FILL % (KINDS[kind], MORE.get(kind, "NULL, NULL")), values)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
