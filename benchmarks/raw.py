"""What SQLite does without a queue: plain ``sqlite3`` on the same table with the same indexes and settings."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

from .tools import DATABASE, fresh, raw_connection

RAW = DATABASE.with_name("raw.sqlite3")
SLICE = 10_000

INSERT = """
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, state,
    due_at, payload, history
) VALUES (?, 'default', 'benchmarks.app.tasks.noop', 0, 0, 0, 10, '', 60000000, ?, 'READY', ?, ?, '[]')"""
CLAIM = """
UPDATE vtqueue_job SET state = 'RUNNING', claims = claims + 1, attempts = attempts + 1, worker_id = 'raw',
    started_at = ?1, lease_until = ?1 + lease_us
WHERE rowid IN (
    SELECT rowid FROM vtqueue_job INDEXED BY vtqueue_job_ready
    WHERE state = 'READY' AND (task_path = '') = 0 AND priority = 0 AND due_at <= ?1
    LIMIT ?2
) RETURNING id, claims, payload"""
ACK = """
UPDATE vtqueue_job SET state = 'SUCCESSFUL', lease_until = NULL, finished_at = ?, kept_until = ?, result = 'null'
WHERE id = ? AND claims = ? AND worker_id = 'raw' AND state = 'RUNNING'"""
PAYLOAD = json.dumps({"args": [], "kwargs": {}})


def now() -> int:
    return time.time_ns() // 1000


@contextmanager
def database(jobs: int = 0) -> Iterator[sqlite3.Connection]:
    """Give a connection to a file of its own, in which so many jobs wait."""
    with closing(raw_connection(fresh(RAW))) as connection:
        if jobs:
            insert_many(connection, jobs)
        yield connection


def job() -> tuple[str, int, int, str]:
    return uuid4().hex, now(), now(), PAYLOAD


def insert_many(connection: sqlite3.Connection, count: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, (job() for _ in range(count)))
    connection.execute("COMMIT")


def inserts(count: int) -> list[float]:
    """Return the seconds that each of so many inserts takes with its commit."""
    times = []
    with database() as connection:
        for _ in range(count):
            values = job()
            began = time.perf_counter()
            connection.execute(INSERT, values)
            times.append(time.perf_counter() - began)
    return times


def inserts_in_one(count: int) -> float:
    """Return how many single inserts a second one transaction takes, ids and all."""
    with database() as connection:
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(count):
            connection.execute(INSERT, job())
        connection.execute("COMMIT")
        return count / (time.perf_counter() - began)


def inserts_many(count: int) -> float:
    """Return how many rows a second ``executemany`` inserts, ids and all."""
    with database() as connection:
        began = time.perf_counter()
        insert_many(connection, count)
        return count / (time.perf_counter() - began)


def pairs(count: int, at_once: int = 0) -> float:
    """Return how many jobs a second are claimed and acknowledged.

    ``at_once``: so many are acknowledged and as many claimed in one transaction; 0: a transaction for each step.
    """
    held: list[tuple[str, int, str]] = []
    with database(count) as connection:
        began = time.perf_counter()
        for _ in range(count // (at_once or 1)):
            connection.execute("BEGIN IMMEDIATE")
            if at_once:
                acknowledge(connection, held)
            held = connection.execute(CLAIM, (now(), at_once or 1)).fetchall()
            if not at_once:
                connection.execute("COMMIT")
                connection.execute("BEGIN IMMEDIATE")
                acknowledge(connection, held)
            connection.execute("COMMIT")
        return count / (time.perf_counter() - began)


def acknowledge(connection: sqlite3.Connection, held: list[tuple[str, int, str]]) -> None:
    moment = now()
    connection.executemany(ACK, [(moment, moment + 86_400_000_000, job_id, claims) for job_id, claims, _ in held])


def clean(path: Path = RAW) -> None:
    """Make an empty file for what processes of a run do to it."""
    fresh(path)
