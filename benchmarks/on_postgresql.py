"""What is measured on PostgreSQL: to enqueue, start, drain and claim, beside plain psycopg on the same table."""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from statistics import median
from subprocess import PIPE
from typing import Any

import psycopg
from django.conf import settings
from django.db import connections, transaction

from django_vtqueue import enqueue_many
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.job import Scope
from django_vtqueue.engines import new_engine
from django_vtqueue.queue.claims import NO_GRACE

from .figures import percentile, show
from .latency import between, line_of, spaced
from .processes import start, workers
from .tools import FOLDER, tasks, wait_until

KEPT = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")  # of the settings of the database
DAY = 86_400_000_000  # microseconds
LATER = f"{{now}} + {DAY} + n"
KINDS = {  # worker, state, priority, queue, due_at, wake_at, lease_until, finished_at, concurrency_key of row n
    "scheduled, higher priority": f"'', 'SCHEDULED', 50, 'default', {LATER}, {LATER}, NULL, NULL, NULL",
    "scheduled, 201 priorities": f"'', 'SCHEDULED', n % 201 - 100, 'default', {LATER}, {LATER}, NULL, NULL, NULL",
    "leased": f"'other', 'RUNNING', 0, 'default', {{now}} - n, NULL, {LATER}, NULL, NULL",
    "leased, 201 priorities": (f"'other', 'RUNNING', n % 201 - 100, 'default', {{now}} - n, NULL, {LATER}, NULL, NULL"),
    "due, another queue": "'', 'READY', 0, 'other', {now} - n, NULL, NULL, NULL, NULL",
    "due at one moment": "'', 'READY', 0, 'default', {now}, NULL, NULL, NULL, NULL",
    "kept": f"'raw', 'SUCCESSFUL', 0, 'default', {{now}} - {DAY}, NULL, NULL, {{now}} - n, NULL",
    "blocked": "'', 'BLOCKED', 0, 'default', {now} - n, 253402300799999999, NULL, NULL, 'key' || n % 1000",
    "dead": "",
}
OTHERS = """
INSERT INTO vtqueue_job (
    id, task_path, claims, attempts, max_attempts, lease_us, enqueued_at, payload, history,
    worker_id, state, priority, queue_name, due_at, wake_at, lease_until, finished_at,
    concurrency_key
) SELECT gen_random_uuid(), 'benchmarks.app.tasks.noop', 0, 0, 10, 60000000, {now}, '{{"args": [], "kwargs": {{}}}}',
    '[]', {values}
FROM generate_series(1, {count}) AS n"""
DEAD = """
INSERT INTO vtqueue_deadletter (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, died_at,
    exception_class, message, fingerprint, payload, history
) SELECT gen_random_uuid(), 'default', 'app.task', 0, 1, 1, 1, '', 1, {now}, {now} - n, 'E', 'm', 'f', '{{}}', '[]'
FROM generate_series(1, {count}) AS n"""
COLUMNS = """id, queue_name, task_path, priority, max_attempts, lease_us, enqueued_at, due_at, payload, claims,
    attempts, worker_id, state, history"""
INSERT = f"INSERT INTO vtqueue_job ({COLUMNS}) VALUES ({', '.join(['%s'] * 14)})"
COPY = f"COPY vtqueue_job ({COLUMNS}) FROM STDIN"
CLAIM = """
UPDATE vtqueue_job SET state = 'RUNNING', claims = claims + 1, attempts = attempts + 1, worker_id = 'raw',
    started_at = %(now)s, lease_until = %(now)s + lease_us
WHERE id IN (
    SELECT id FROM vtqueue_job
    WHERE state = 'READY' AND (task_path = '') = (SELECT false) AND priority >= -100
      AND priority = 0 AND due_at <= %(now)s
    ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) RETURNING id, claims, payload"""
ACK = """
UPDATE vtqueue_job SET state = 'SUCCESSFUL', lease_until = NULL, finished_at = %(now)s, kept_until = %(now)s,
    result = 'null'
WHERE id = ANY(%(ids)s) AND worker_id = 'raw' AND state = 'RUNNING'"""

# A process without Django that says when a NOTIFY has reached it, as it says once that it listens.
LISTENER = """
import sys, time, psycopg
connection = psycopg.connect(sys.argv[1], autocommit=True)
connection.execute("LISTEN raw")
print(flush=True)
for _ in connection.notifies():
    print(time.time_ns(), flush=True)
"""
LEFT = "SELECT 1 FROM vtqueue_job WHERE finished_at IS NULL LIMIT 1"
ENDED = """
SELECT count(*), min(finished_at), max(finished_at)
FROM vtqueue_job WHERE state = 'SUCCESSFUL' AND attempts = 1 GROUP BY worker_id"""


def now() -> int:
    return time.time_ns() // 1000


def connect_with(options: dict[str, Any]) -> None:
    """Have this process, and the workers that it starts, connect with these OPTIONS of Django."""
    connections.close_all()
    database = settings.DATABASES["default"]
    database["OPTIONS"] = options
    os.environ["VTQUEUE_BENCH_DATABASE"] = json.dumps({name: database[name] for name in KEPT})
    del connections["default"]


@contextmanager
def raw() -> Iterator[psycopg.Connection[Any]]:
    """Give a connection without Django, that binds parameters, and prepares statements, as Django's do."""
    database = settings.DATABASES["default"]
    place = {"host": database["HOST"], "user": database["USER"], "dbname": database["NAME"]}
    bound, prepared = (database["OPTIONS"].get(name) for name in ("server_side_binding", "prepare_threshold"))
    cursor = psycopg.Cursor if bound else psycopg.ClientCursor
    with closing(psycopg.connect(**place, autocommit=True, cursor_factory=cursor)) as connection:
        connection.prepare_threshold = prepared
        yield connection


def fresh() -> None:
    """Empty the tables."""
    with raw() as connection:
        connection.execute("TRUNCATE vtqueue_job, vtqueue_deadletter, vtqueue_throughput, vtqueue_workerprocess")
        connection.execute("ANALYZE vtqueue_job")


def row() -> tuple[Any, ...]:
    payload = '{"args": [], "kwargs": {}}'
    shared = ("default", "benchmarks.app.tasks.noop", 0, 10, 60_000_000, now(), now(), payload, 0, 0, "", "READY", "[]")
    return new_id(), *shared


def timed(count: int, act: Callable[[], object]) -> list[float]:
    """Return the milliseconds that each of so many calls takes."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        times.append((time.perf_counter() - began) * 1000)
    return times


def rate(count: int, act: Callable[[], object]) -> float:
    """Return how many a second a call stands for."""
    began = time.perf_counter()
    act()
    return count / (time.perf_counter() - began)


def copy(connection: psycopg.Connection[Any], count: int) -> None:
    with connection.cursor().copy(COPY) as rows:
        for _ in range(count):
            rows.write_row(row())


def pairs(count: int, at_once: int) -> float:
    """Return how many jobs a second plain psycopg claims and acknowledges, so many of each in one transaction."""
    fresh()
    held: list[Any] = []
    with raw() as connection:
        copy(connection, count)
        connection.execute("ANALYZE vtqueue_job")

        def work() -> None:
            nonlocal held
            for _ in range(count // at_once):
                with connection.transaction():
                    connection.execute(ACK, {"now": now(), "ids": held})
                    held = [one for one, *_ in connection.execute(CLAIM, {"now": now(), "limit": at_once}).fetchall()]

        return rate(count, work)


def drain(jobs: int, count: int = 1) -> tuple[float, float]:
    """Return how many jobs a second so many workers end that wait for them, and the smallest share, of a fair one."""
    fresh()
    with workers(count), raw() as connection:
        for begun in range(0, jobs, 10_000):
            enqueue_many(tasks.noop, [((), {})] * min(jobs - begun, 10_000))
        wait_until(lambda: not connection.execute(LEFT).fetchall(), every=0.5)
        rows = connection.execute(ENDED).fetchall()
    shares = [share for share, _, _ in rows]
    if sum(shares) != jobs:
        raise RuntimeError(f"{sum(shares):,} of {jobs:,} jobs were run, and once")
    seconds = (max(last for _, _, last in rows) - min(first for _, first, _ in rows)) / 1e6
    return jobs / seconds, min(shares) * count / jobs if len(shares) == count else 0.0


def ours(jobs: int, repeats: int, how: str) -> dict[str, float]:
    """Measure the queue beside raw statements, by turns; return it as a rival is."""
    found: dict[str, list[float]] = {name: [] for name in ("one", "raw one", "many", "raw many", "drain", "raw drain")}
    for _ in range(repeats):
        fresh()
        found["one"] += timed(500, tasks.noop.enqueue)
        with raw() as connection:
            found["raw one"] += timed(500, lambda: connection.execute(INSERT, row()))
            found["raw many"].append(rate(jobs, lambda: copy(connection, jobs)))
        found["many"].append(rate(jobs, lambda: enqueue_many(tasks.noop, [((), {})] * jobs)))
        found["raw drain"].append(pairs(jobs, 100))
        found["drain"].append(drain(jobs)[0])
    middle = {name: median(values) for name, values in found.items()}
    show(f"{how}: enqueue, p50 (raw: INSERT)", middle["one"], "ms", middle["raw one"])
    show(
        f"{how}: enqueue, p99 (raw: INSERT)",
        *(percentile(found["one"], 99), "ms", percentile(found["raw one"], 99)),
    )
    show(f"{how}: enqueue_many (raw: COPY)", middle["many"], "/s", middle["raw many"])
    show(f"{how}: drain (raw: 100 acks and claims at once)", middle["drain"], "/s", middle["raw drain"])
    return middle


def latency(jobs: int, how: str) -> None:
    """Measure from the return of ``enqueue`` to the task's first line, in an idle worker that NOTIFY alone wakes."""
    fresh()
    limits = notifications(jobs)
    with workers(1, doorbells=str(FOLDER / "bells")), raw() as connection:  # this process rings those of another folder
        returned = spaced(jobs)
        wait_until(lambda: not connection.execute(LEFT).fetchall())
        latencies = between(returned, connection.execute("SELECT id, result FROM vtqueue_job"))
    for percent in (50, 99):
        what = f"{how}: enqueue to start, p{percent} (raw: a NOTIFY)"
        show(what, percentile(latencies, percent), "ms", percentile(limits, percent))


def notifications(count: int) -> list[float]:
    """Return the milliseconds that a NOTIFY takes to another process."""
    times = []
    with raw() as connection, start("-c", LISTENER, connection.info.dsn, stdout=PIPE, text=True) as listener:
        line_of(listener)
        for _ in range(count):
            time.sleep(random.uniform(0.005, 0.01))
            sent = time.time_ns()
            connection.execute("NOTIFY raw")
            times.append((int(line_of(listener)) - sent) / 1e6)
        listener.terminate()
    return times


def others(count: int) -> None:
    """Measure a claim of 100 beside very many others."""
    for kind, values in KINDS.items():
        fresh()
        enqueue_many(tasks.noop, [((), {})] * 2000)
        alone = claims()
        with raw() as connection:
            connection.execute(
                (OTHERS if values else DEAD).format(values=values.format(now=now()), now=now(), count=count)
            )
        show(f"a claim of 100 beside {kind}, p10 (raw: alone)", claims(), "ms", alone, "1.25 or less")


def claims() -> float:
    """Return the milliseconds of a claim of 100 (p10), with statistics of the rows that there are."""
    with raw() as connection:
        connection.execute("ANALYZE vtqueue_job, vtqueue_deadletter")
    timed(10, claim)
    return percentile(timed(500, claim), 10)


def claim() -> None:
    """Find and lock what a claim of 100 takes, and give it back."""
    engine, scope = new_engine("default", traced=False), Scope(("default",), raw=False)
    with transaction.atomic():
        instant = engine.now()
        engine.ended(scope, 100, instant, NO_GRACE)
        if len(engine.due(scope, 100, instant)) < 100:
            raise RuntimeError("fewer than 100 jobs are due")
        transaction.set_rollback(True)


def crowd(jobs: int) -> None:
    """Measure eight workers at once."""
    pace, least = drain(jobs, 8)
    show(f"{jobs:,} jobs by 8 workers", pace, "/s")
    show("the smallest share, of a fair one", least * 100, "%", goal="80 % or more")
