"""Which indexes serve the statements of the queue on SQLite, with many rows that they must not look at.

An index that is gone, or a statement that no longer fits it, turns a claim of microseconds into a walk over the table;
nothing but the query plan shows it before the table is large.
"""

import json
import re
import sqlite3

import pytest
from django.db.models import Q

from django_vtqueue.engines import engine_for
from django_vtqueue.engines.portable import ASIDE, HELD, READY

from ..fake_clock import at
from .database import plan, undone, work
from .statements import FEW, STATEMENTS, TABLES


def check_plan(table: sqlite3.Connection, name: str) -> None:
    """Fail unless a statement uses its indexes, and walks over neither table."""
    statement, values, indexes = STATEMENTS[name]
    steps = plan(table, statement, values)
    told = "\n".join([name, *steps])
    for index in indexes:
        assert re.search(rf"\bUSING (COVERING )?(INDEX )?{re.escape(index)}\b", told), f"{index} is not used:\n{told}"
    used = set(re.findall(r"\b(?:vtqueue|sqlite_autoindex)_\w+", told)) - {*TABLES, *FEW}
    assert used <= set(indexes), told
    assert not re.search(rf"SCAN ({'|'.join(TABLES)}|job)\b", told), told
    assert "BLOOM FILTER ON" not in told, told  # made from all rows, and, of an index with an expression, made wrong


def test_statements_use_their_indexes(table: sqlite3.Connection) -> None:
    """Each finds its rows by the index that was made for it, and looks at no other rows."""
    for name in STATEMENTS:
        check_plan(table, name)


@pytest.mark.parametrize(
    ("name", "index"),
    [(name, index) for name, (_, _, indexes) in STATEMENTS.items() for index in indexes if index.startswith("vtqueue")],
)
def test_without_its_index_the_plan_is_another(full: sqlite3.Connection, name: str, index: str) -> None:
    """The test above would notice if an index were gone."""
    with undone(full):
        full.execute(f"DROP INDEX {index}")
        with pytest.raises((AssertionError, sqlite3.OperationalError), match=index):
            check_plan(full, name)
    check_plan(full, name)


@pytest.mark.django_db
def test_the_jobs_of_a_queue_are_counted_and_purged_by_its_indexes() -> None:
    """What the ORM asks for by the name of a queue reads no rows of others."""
    engine = engine_for("default")
    indexes = (("queue", READY), ("aside", ASIDE), ("held", HELD), ("held", Q(lease_until__lte=1)))
    for index, which in indexes:
        assert f"vtqueue_job_{index} (queue_name=?" in engine._jobs("q", which).explain()


def test_the_work_does_not_grow_with_the_table(table: sqlite3.Connection) -> None:
    """A few thousand instructions, not a few for each of 200,000 rows that are none of its business."""
    works = {name: work(table, statement, values) for name, (statement, values, _) in STATEMENTS.items()}
    assert {name: work for name, work in works.items() if work >= 250} == {}


@pytest.mark.parametrize("name", ["ack", "make ready"])
def test_settling_many_jobs_of_one_worker_is_not_quadratic(table: sqlite3.Connection, name: str) -> None:
    """Twice the jobs are twice the work, also when all are held by the same worker."""
    with undone(table):
        table.execute("UPDATE vtqueue_job SET worker_id = 'w', claims = 1 WHERE state = 'RUNNING'")

        def effort(count: int) -> int:
            ids = [f"b{number:031x}" for number in range(count)]
            rows = [(job_id, 1, "w", 1, at(1), None, 1, None, None, at(1), "SCHEDULED") for job_id in ids]
            done = {job_id: (1, 1, at(1), None, "null", 1) for job_id in ids}
            values = {"settlements": json.dumps(rows), "done": json.dumps(done), "worker_id": "w", "result": None}
            return work(table, STATEMENTS[name][0], values)

        assert effort(800) < 2.5 * effort(400)
