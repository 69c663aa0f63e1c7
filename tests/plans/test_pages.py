"""What pages and commands read, with many rows: each query looks at as many as it was told, by an index.

The queries are the ORM's own, executed on the full database; what SQLite makes of each of them is written down.
"""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from django_vtqueue.admin import letter_groups
from django_vtqueue.core.counts import MINUTE
from django_vtqueue.core.ids import new_uuid
from django_vtqueue.engines import engine_for
from django_vtqueue.inspection import overview, parked_keys, throughput, trees
from django_vtqueue.inspection.charts import charted
from django_vtqueue.inspection.holdings import cycles, holdings
from django_vtqueue.inspection.lists import ListQuery, count_jobs, ending, list_jobs, list_letters
from django_vtqueue.models import DeadLetter, Job, Throughput
from django_vtqueue.queue import clock_repair
from django_vtqueue.worker import statistics

from ..conftest import ALIAS, reached
from ..fake_clock import at

NOW = at(0)
SIZE = 500


def jobs(**query: Any) -> Callable[[], object]:
    rows = Job.objects.using(ALIAS).defer("payload", "history", "result")
    return lambda: list_jobs(rows, ListQuery(**query), None, size=SIZE, limit=20, now=NOW)


def letters(**query: Any) -> Callable[[], object]:
    rows = DeadLetter.objects.using(ALIAS).defer("payload", "history")
    return lambda: list_letters(rows, ListQuery(**query), None, size=SIZE, limit=20)


def group_page() -> object:
    among = letter_groups.among(ALIAS, NOW - 1000, NOW, "q1")
    found = letter_groups.groups(among, {})[:3]
    return letter_groups.deaths(among, found, NOW - 1000, NOW)


# Each with how many hundred instructions of SQLite's machine it may take: a few for each row that it looks at.
READERS: dict[str, tuple[Callable[[], object], int]] = {
    "names of tasks": (lambda: overview.names(ALIAS, "task_path", 100), 100),
    "names of exceptions": (lambda: overview.names(ALIAS, "exception_class", 100), 100),
    "sizes": (lambda: overview.sizes(ALIAS, 100, 100), 200),
    "letters": (lambda: overview.letters(ALIAS, 100, 100), 100),
    "reviewed": (lambda: overview.reviewed(ALIAS, 100, 100), 100),
    "backlogs": (lambda: overview.backlogs(ALIAS, ["q0", "q1"], NOW, 20), 400),
    "held": (lambda: overview.held(ALIAS, 100, NOW), 100),
    "begun": (lambda: overview.begun(ALIAS, ["w1", "w2"], 5, 100, NOW), 200),
    "leases": (lambda: holdings(ALIAS, NOW), 100),
    "cycles": (lambda: cycles(ALIAS), 100),
    "parked keys": (lambda: parked_keys.parked_keys(ALIAS, 10, 100), 100),
    "active": (lambda: throughput.active(ALIAS, NOW, 180, 100), 300),
    "read": (lambda: throughput.read(ALIAS, NOW, 5), 200),
    "lately": (lambda: throughput.lately(ALIAS, ["q0", "q1"], NOW, 5), 200),
    **{span: (lambda span=span: charted(ALIAS, NOW, span, "q1"), 1000) for span in ("hour", "week")},
    "succeeded": (lambda: throughput.succeeded_since(ALIAS, [("t", NOW - MINUTE), ("t", NOW - 10**11)], NOW), 1000),
    "arrivals": (lambda: throughput.arrivals(ALIAS, NOW, limit=100), 100),
    "pruned counts": (lambda: statistics.prune(Throughput, ALIAS, at(-299_000), 20), 200),
    "groups": (group_page, 1000),
    "ids": (lambda: ending(Job.objects.using(ALIAS), "12345678", 5), 20_000),
    **{f"jobs {word}": (jobs(word=word), 1000) for word in ("", "due", "scheduled", "retrying", "running", "expired")},
    "jobs waiting": (jobs(word="waiting"), 1000),
    "jobs parked": (jobs(word="blocked", queue_name="q1"), 100),
    "jobs done, of a task": (jobs(word="done", task_path="none"), 500),
    "jobs of a worker": (jobs(word="running", worker_id="w1", queue_name="q1"), 500),
    "jobs, scheduled in a queue": (jobs(word="scheduled", queue_name="q1"), 500),
    "jobs with a text": (jobs(text="none"), 500),
    "counts": (lambda: count_jobs(Job.objects.using(ALIAS), ListQuery(task_path="none"), SIZE, NOW), 1500),
    "dead letters": (letters(), 500),
    "dead letters of one queue": (letters(queue_name="q1"), 500),
    "dead letters of a queue and a task": (letters(queue_name="q1", task_path="app.tasks.t1", since=NOW - 9000), 500),
    "dead letters of an exception": (letters(exception_class="app.E1", reviewed=True), 500),
    "dead letters of a group": (letters(fingerprint="f1", task_path="app.tasks.t1", queue_name="q1"), 500),
    "a clock that was ahead": (lambda: clock_repair.clock_was_ahead(ALIAS, NOW), 100),
    "stamps of that": (lambda: clock_repair.stamped_ahead(engine_for(ALIAS), clock_repair.FIRST, NOW, 100), 100),
    "tree": (lambda: trees.tree(next(iter(Job.objects.using(ALIAS)[:1]))), 100),
    "children": (lambda: trees.children([new_uuid() for _ in range(200)], ALIAS, 50), 300),
    "dead letters with a text": (letters(text="none", until=NOW - 1000), 500),
}


@pytest.fixture
def full_alias(table: sqlite3.Connection, django_db_blocker: DjangoDbBlocker) -> Iterator[sqlite3.Connection]:
    """Have the alias lead to the full database."""
    with django_db_blocker.unblock(), reached({}) as alias:
        connection: Any = connections[alias]
        connection.get_new_connection = lambda params: table
        yield table
        connection.connection = None


def test_a_page_looks_at_few_rows(full_alias: sqlite3.Connection) -> None:
    """Whatever ANALYZE has found, and when: no query sorts all rows, or builds something of them. The work is that for
    as many rows as were asked for, not for the 200,000 that there are.
    """
    for name, (read, most) in READERS.items():
        check_reader(full_alias, name, read, most)


def check_reader(full_alias: sqlite3.Connection, name: str, read: Callable[[], object], most: int) -> None:
    steps = [name]
    work = 0

    def explained(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        full_alias.set_progress_handler(None, 0)
        steps.extend(row[3] for row in execute(f"EXPLAIN QUERY PLAN {sql}", params, many, context).fetchall())
        full_alias.set_progress_handler(tick, 100)
        return execute(sql, params, many, context)

    def tick() -> int:
        nonlocal work
        work += 1
        return 0

    with connections[ALIAS].execute_wrapper(explained):
        read()
    full_alias.set_progress_handler(None, 0)
    told = "\n".join(steps)
    assert len(steps) > 1, name
    assert "TEMP B-TREE FOR ORDER BY" not in told, told
    assert "TEMP B-TREE FOR DISTINCT" not in told, told
    assert "BLOOM FILTER" not in told, told  # made from all rows, and, of an index with an expression, made wrong
    assert work < most, told
    assert name not in ("jobs parked", "parked keys") or "vtqueue_job_blocked" in told
