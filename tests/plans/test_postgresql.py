"""Which indexes serve the statements of the queue on PostgreSQL, and how much they read, whatever the statistics say.

``VTQUEUE_PLAN_ROWS``: how many rows there are of each kind; each of them is changed twice.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from pytest_django import DjangoDbBlocker

from django_vtqueue.engines import engine_for
from django_vtqueue.inspection import overview
from django_vtqueue.inspection.holdings import holdings
from django_vtqueue.inspection.lists import ListQuery, count_jobs, list_jobs
from django_vtqueue.models import Job
from django_vtqueue.models.jobs import ANY_NAME, ready_jobs

from ..conftest import reached
from ..fake_clock import at
from ..postgresql import Server
from .postgresql import (
    ASIDE,
    CLAIMS,
    HELD,
    KEY,
    PARKED,
    QUEUE,
    READY,
    ROWS,
    STATEMENTS,
    TABLES,
    WAITING_ID,
    WAKES,
    Table,
    nodes,
)

NAME = "plans"
MOST = 4000  # pages; who walks over all rows of a kind reads one for each, 20,000
DEAD = 2 * ROWS // 100  # pages more until VACUUM: each row has two dead entries, and a page more than a hundred
LIKE = re.compile("^(vtqueue_[a-z]+)_.*_like$")  # Django makes another index of the same texts
MANY = ROWS // 8  # jobs
BEGINS = itertools.count(0, MANY)  # of ids: none is used twice
FEW = {"vtqueue_queuestate_pkey"}


@pytest.fixture(scope="module")
def full(server: Server, django_db_blocker: DjangoDbBlocker) -> Iterator[Table]:
    """Return a database of its own with many rows."""
    with django_db_blocker.unblock():
        with reached(server.settings()) as alias, connections[alias].cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {NAME} TEMPLATE template0")
            # To make statistics it has a snapshot, beside which no read marks what is dead in the indexes.
            cursor.execute("ALTER SYSTEM SET autovacuum = off")
            cursor.execute("SELECT pg_reload_conf()")
        with reached({**server.settings(NAME), "OPTIONS": {}}) as alias:
            call_command("migrate", database=alias, verbosity=0)
            table = Table(alias)
            table.fill()
            yield table
        with reached(server.settings()) as alias, connections[alias].cursor() as cursor:
            cursor.execute(f"DROP DATABASE {NAME}")
            cursor.execute("ALTER SYSTEM RESET autovacuum")
            cursor.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="module", params=["analyzed when nothing waited", "", "analyzed", "changed since", "vacuumed"])
def table(request: pytest.FixtureRequest, full: Table) -> Table:
    """Return the full database with statistics of all kinds; at last each row is changed twice, then VACUUM is done.

    In between the indexes have dead entries: statements may read the pages that hold these, too.
    """
    match request.param:
        case "":
            full.forget()
            full.known = False
        case "analyzed":
            full.analyze()
            full.known = True
        case "changed since":
            full.update_much()
            full.dead = DEAD
        case "vacuumed":
            full.vacuum()
            full.dead = 0
    return full


def test_statements_use_their_indexes(table: Table) -> None:
    """Each finds its rows by the index that was made for it, and looks at hardly any others."""
    for name, (statement, values, indexes) in STATEMENTS.items():
        plan = table.explain(statement, values)
        steps = list(nodes(plan))
        used = {LIKE.sub(r"\1_pkey", step["Index Name"]) for step in steps if "Index Name" in step} - FEW
        walks = [step for step in steps if step["Node Type"] == "Seq Scan" and step["Relation Name"] in TABLES]
        assert not walks, (name, plan)
        assert used, (name, plan)
        assert used <= indexes, (name, plan)
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < MOST + table.dead, (name, plan)


def test_claims_out_of_many_that_are_due_at_one_instant(table: Table) -> None:
    """They take their few from the front: what they sort, and read, does not depend on how many there are."""
    first = next(BEGINS)
    table.add("d", first + MANY, "READY", at(0), first)
    for name in CLAIMS:
        statement, values, _ = STATEMENTS[name]
        plan = table.explain(statement, values)
        assert plan["Actual Rows"] == values["limit"]
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < MOST + table.dead, plan
    table.run("DELETE FROM vtqueue_job WHERE id >= %s AND id < %s", ["d" + "0" * 31, "e" + "0" * 31])


@contextmanager
def explained(table: Table, name: str = "") -> Iterator[list[dict[str, Any]]]:
    """Collect the plans of what is read; at the end none of them has looked at many rows. ``name``: what reads."""
    plans: list[dict[str, Any]] = []

    def explain(execute: Callable[..., Any], sql: str, *given: Any) -> Any:
        plans.append(execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *given).fetchall()[0][0][0]["Plan"])
        return execute(sql, *given)

    with connections[table.alias].execute_wrapper(explain):
        yield plans
    for plan in plans:
        walks = [step for step in nodes(plan) if step["Node Type"] == "Seq Scan" and step["Relation Name"] in TABLES]
        assert not walks, (name, plan)
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < MOST + table.dead, (name, plan)


def test_leases_among_many_unique_keys(table: Table) -> None:
    """They are found by the names of the queues: what is read does not depend on how many jobs have unique keys."""
    with transaction.atomic(using=table.alias):
        table.run("UPDATE vtqueue_job SET unique_key = id WHERE state = 'SCHEDULED'")
        table.run("UPDATE vtqueue_job SET queue_name = 'lease:' || unique_key WHERE id = %s", [WAITING_ID])
        with explained(table):
            assert [each.name for each in holdings(table.alias, at(0))] == [str(UUID(WAITING_ID))]
        transaction.set_rollback(True, using=table.alias)


def test_pages_of_the_admin(table: Table) -> None:
    """The priorities of what waits, of all queues or of each, and what workers have begun, are found by indexes."""
    jobs = Job.objects.using(table.alias)
    every, each = jobs.filter(ready_jobs()), jobs.filter(ready_jobs(ANY_NAME))
    levels = overview.levels(every), overview.levels(each, "queue_name")
    with transaction.atomic(using=table.alias):
        table.add("c", 100, "READY", at(0))
        for first, _ in levels:
            list(first.all())  # marks what is dead in the indexes, as Table.explain does
        overview.begun(table.alias, ["w1", "w2"], 5, 100, at(0))
        with explained(table) as plans:
            assert [len(first.all()) for first, _ in levels] == [14, 70]
            assert overview.begun(table.alias, ["w1", "w2"], 5, 100, at(0)) == []
        transaction.set_rollback(True, using=table.alias)
    assert len(plans) == 3


WORKER = "vtqueue_job_worker"
LISTS = {  # by the word of each, the indexes of which it is a range
    "": {KEY},
    "due": {READY, QUEUE, WAKES, ASIDE, HELD, KEY},
    **{word: {WAKES, ASIDE, KEY} for word in ("scheduled", "retrying", "waiting")},
    "blocked": {PARKED},
    **{word: {WORKER, HELD} for word in ("running", "expired")},
    "done": {KEY},
}
ANY_STATE = ("", "done")  # the lists for which a server that has never made statistics may read the whole table
FILTERS: dict[str, dict[str, Any]] = {
    "": {},
    "of a queue": {"queue_name": "q1"},
    "of a task": {"task_path": "app.tasks.one"},
    "of a queue and an unknown task": {"queue_name": "q1", "task_path": "none"},
}


@pytest.mark.parametrize("filters", FILTERS)
def test_lists_of_the_admin(table: Table, filters: str) -> None:
    """Each is a range of an index: for some hundred jobs hardly more are read."""
    rows = Job.objects.using(table.alias).defer("payload", "history", "result")
    for word, indexes in LISTS.items():
        if not table.known and word in ANY_STATE:
            continue
        query = ListQuery(word=word, **FILTERS[filters])
        list_jobs(rows, query, None, size=500, limit=20, now=at(0))
        with explained(table, word) as plans:
            list_jobs(rows, query, None, size=500, limit=20, now=at(0))
        steps = [step for plan in plans for step in nodes(plan)]
        used = {LIKE.sub(r"\1_pkey", step["Index Name"]) for step in steps if "Index Name" in step}
        assert used <= indexes, (word, plans)


def test_counts(table: Table) -> None:
    """The jobs of each word are counted by the index of its list, in which they are looked at."""
    if not table.known:
        pytest.skip(f"of the lists {ANY_STATE} a server without statistics may read the whole table")
    jobs, query = Job.objects.using(table.alias), ListQuery(task_path="none")
    count_jobs(jobs, query, 500, at(0))
    with explained(table):
        count_jobs(jobs, query, 500, at(0))


def test_what_waits_is_counted_without_compilation(table: Table) -> None:
    """The planner expects very many rows, and would have machine code made, which takes longer than to count."""
    settings = []

    def look(execute: Callable[..., Any], sql: str, params: Any, *given: Any) -> Any:
        settings.append(execute("SHOW jit", (), *given).fetchall()[0][0])
        return execute(sql, params, *given)

    table.run("SET jit = on")
    with connections[table.alias].execute_wrapper(look), engine_for(table.alias).snapshot():
        overview.backlogs(table.alias, ["q0", "q1"], at(0), 20)
    assert settings[-2:] == ["off", "off"]
    assert table.run("SHOW jit") == [("on",)]


def test_an_error_leaves_compilation_as_it_was(table: Table) -> None:
    """Also in a transaction of the caller that catches it: it goes on with the setting of before."""
    table.run("SET jit = on")
    with transaction.atomic(using=table.alias):
        with suppress(KeyError), engine_for(table.alias).snapshot():
            raise KeyError
        assert table.run("SHOW jit") == [("on",)]
