"""What the tables say of each job, in the words of the model: read by SQL, so that no part of the queue is asked."""

import json
from typing import Any

from django.db import connections

from .model import Row

# The columns in the order of Row.
TABLES = """
SELECT id, queue_name, task_path = '', priority, max_attempts, lease_us, state, claims, attempts, worker_id,
    lease_until, due_at, wake_at, finished_at, kept_until, cancelled_at IS NOT NULL, unique_key, unique_until, start_by,
    history
FROM vtqueue_job
UNION ALL
SELECT id, queue_name, task_path = '', priority, max_attempts, lease_us, 'FAILED', claims, attempts, worker_id,
    NULL, died_at, NULL, died_at, kept_until, FALSE, unique_key, unique_until, NULL, history
FROM vtqueue_deadletter"""


def rows(alias: str) -> dict[str, Row]:
    """Return what there is of each job, dead letters among them."""
    return {job_id: Row._make([*values, in_short(history)]) for job_id, *values, history in run(alias, TABLES)}


def copies(alias: str) -> dict[str, dict[int, str]]:
    """Return the worker of each copy of each job, by its claim."""
    found = run(alias, "SELECT id, copies FROM vtqueue_job WHERE copies IS NOT NULL")
    return {job_id: {int(claim): copy[0] for claim, copy in json.loads(text).items()} for job_id, text in found}


def clear(alias: str) -> None:
    """Delete all jobs and dead letters."""
    for table in ("job", "deadletter"):
        run(alias, f"DELETE FROM vtqueue_{table}")


def in_short(history: str) -> list[Any]:
    """Return what a stored history says of each attempt."""
    entries = json.loads(history)
    return [item if "omitted" in item else (item["number"], item["outcome"], item["worker"]) for item in entries]


def run(alias: str, sql: str) -> list[tuple[Any, ...]]:
    """Execute a statement; return its rows, with ids as the queue has them, whatever the database makes of them."""
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        found = cursor.fetchall() if cursor.description else []
    return [(getattr(job_id, "hex", job_id), *values) for job_id, *values in found]
