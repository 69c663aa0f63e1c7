"""Damaged rows: SQLite stores any value in any column, and one such row must not stop the others."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

# The columns as one may read them in any row, also in one that is not claimed, and therefore not mended.
READABLE = """CAST(id AS TEXT), CAST(queue_name AS TEXT), CAST(task_path AS TEXT), CAST(priority AS INTEGER),
    CAST({moment} AS INTEGER), CAST(claims AS INTEGER), CAST(attempts AS INTEGER), CAST(max_attempts AS INTEGER),
    CAST(worker_id AS TEXT), CAST(lease_us AS INTEGER), CAST(enqueued_at AS INTEGER), CAST(started_at AS INTEGER),
    CAST(payload AS TEXT), CAST(history AS TEXT), CAST({due} AS INTEGER)"""

LARGEST = 1 << 53  # of counts; what is above is no count, and must not overflow when 1 is added
LONGEST = 10**17  # microseconds: 3000 years

# Whether every value that a claim works with is of its kind. Only rows that are about to be taken are looked at.
SOUND = f"""(
    typeof(job.id) = 'text' AND length(replace(job.id, '-', '')) = 32 AND job.id NOT GLOB '*[^-0-9a-fA-F]*'
    AND typeof(job.queue_name) = 'text' AND typeof(job.task_path) = 'text' AND job.state IN ('READY', 'RUNNING')
    AND typeof(job.priority) = 'integer' AND job.priority BETWEEN -100 AND 100
    AND typeof(job.claims) = 'integer' AND job.claims BETWEEN 0 AND {LARGEST}
    AND typeof(job.attempts) = 'integer' AND job.attempts BETWEEN 0 AND {LARGEST}
    AND typeof(job.max_attempts) = 'integer' AND job.max_attempts BETWEEN 0 AND {LARGEST}
    AND typeof(job.lease_us) = 'integer' AND job.lease_us BETWEEN 1 AND {LONGEST}
    AND typeof(job.worker_id) = 'text' AND (job.state = 'RUNNING') = (job.worker_id <> '')
    AND (job.state = 'READY' OR job.lease_until IS NOT NULL)
    AND typeof(job.due_at) IN ('integer', 'real') AND typeof(job.enqueued_at) = 'integer'
    AND typeof(job.started_at) IN ('integer', 'null')
    AND typeof(job.payload) = 'text' AND typeof(job.history) = 'text'
)"""

# What is no value of its kind becomes the nearest one that is; an id that is none, a new one.
MEND = f"""
UPDATE vtqueue_job AS job
SET id = CASE WHEN typeof(id) = 'text' AND length(replace(id, '-', '')) = 32 AND id NOT GLOB '*[^-0-9a-fA-F]*'
    THEN id ELSE lower(hex(randomblob(16))) END,
    queue_name = CAST(queue_name AS TEXT), task_path = CAST(task_path AS TEXT),
    priority = min(max(CAST(priority AS INTEGER), -100), 100),
    claims = min(max(CAST(claims AS INTEGER), 0), {LARGEST}),
    attempts = min(max(CAST(attempts AS INTEGER), 0), {LARGEST}),
    max_attempts = min(max(CAST(max_attempts AS INTEGER), 0), {LARGEST}),
    lease_us = min(max(CAST(lease_us AS INTEGER), 1), {LONGEST}),
    state = 'RUNNING', worker_id = :worker_id, finished_at = NULL, expires_at = NULL,
    due_at = CAST(due_at AS INTEGER), lease_until = 0, enqueued_at = CAST(enqueued_at AS INTEGER),
    started_at = CAST(started_at AS INTEGER), payload = CAST(payload AS TEXT), history = CAST(history AS TEXT)
WHERE rowid IN (SELECT value FROM json_each(:rowids))"""


# -- texts -------------------------------------------------------------------------------------------------------------
#
# Statements as Django wants them, and texts that are not UTF-8.


@contextmanager
def replacing_bad_bytes(raw: sqlite3.Connection) -> Iterator[None]:
    """Read texts that are not UTF-8 during the block, with what cannot be read replaced."""
    usual = raw.text_factory
    raw.text_factory = lambda text: text.decode(errors="replace")
    try:
        yield
    finally:
        raw.text_factory = usual


@lru_cache(maxsize=100)
def for_django(sql: str) -> str:
    """Return a statement with its parameters as Django's cursor wants them."""
    return re.sub(r":(\w+)", r"%(\1)s", sql)
