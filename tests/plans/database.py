"""A database with many rows, and what SQLite makes of a statement in it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..fake_clock import at

MANY = 100_000
LEVELS = 7  # priorities that occur

FILL = """
WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < :rows - 1)
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, state,
    due_at, wake_at, lease_until, payload, history, finished_at, kept_until
) SELECT
    printf('%s%031x', :kind, n), 'q' || (n % :queues), CASE n % 2 WHEN 0 THEN '' ELSE 'app.tasks.one' END,
    n % :levels - 3, 0, 0, 10, CASE WHEN :state IN ('READY', 'SCHEDULED') THEN '' ELSE 'w' || (n % 500) END, 60000000,
    :now, :state, :visible_at + CASE :state WHEN 'SCHEDULED' THEN n ELSE 0 END,
    CASE :state WHEN 'SCHEDULED' THEN :visible_at + n END,
    CASE :state WHEN 'RUNNING' THEN :visible_at END, '{}', '[]',
    CASE :state WHEN 'SUCCESSFUL' THEN :now END, CASE :state WHEN 'SUCCESSFUL' THEN :now + 1000000 END
FROM n"""

FILL_COUNTS = """
WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < :rows - 1)
INSERT INTO vtqueue_throughput (starts_at, queue_name, worker_id, succeeded, failed, dead, run_times, wait_times)
SELECT :now - (n / 20) * 60000000, 'q' || (n % 5), 'w' || (n / 5 % 4), 1, 0, 0, '{}', '{}' FROM n"""


FILL_LETTERS = """
WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < :rows - 1)
INSERT INTO vtqueue_deadletter (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, died_at,
    exception_class, message, fingerprint, payload, history, reviewed_at
) SELECT printf('e%031x', n), 'q' || (n % 5), 'app.tasks.t' || (n % 7), 0, 1, 1, 1, '', 1, :now, :now - n,
    'app.E' || (n % 11), 'm' || n, 'f' || (n % 13), '{}', '[]', CASE WHEN n % 5 THEN NULL ELSE :now END FROM n"""


def filled(kind: str, rows: int, state: str, visible_at: int, queues: int = 5) -> dict[str, Any]:
    """Return the values of FILL."""
    counts = {"rows": rows, "levels": LEVELS, "queues": queues}
    return {"kind": kind, "state": state, "visible_at": visible_at, "now": at(0), **counts}


@contextmanager
def undone(table: sqlite3.Connection) -> Iterator[None]:
    """Take back what the block changes."""
    table.execute("SAVEPOINT undone")
    try:
        yield
    finally:
        table.execute("ROLLBACK TO undone")
        table.execute("RELEASE undone")


def plan(table: sqlite3.Connection, statement: str, values: dict[str, Any]) -> list[str]:
    """Return the steps of a statement's plan."""
    return [row[3] for row in table.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def work(table: sqlite3.Connection, statement: str, values: dict[str, Any]) -> int:
    """Execute a statement and take it back; return how many hundred instructions of SQLite's machine it took."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    with undone(table):
        table.set_progress_handler(tick, 100)
        table.execute(statement, values).fetchall()
        table.set_progress_handler(None, 0)
    return count
