"""The statements that find due jobs: they seek, sort nothing, and look at no more rows than they return."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from django_vtqueue.core.names import RESERVED_PREFIXES

from ..fake_clock import at
from .database import FILL, LEVELS, MANY, filled, plan, undone, work
from .statements import CLAIMS, STATEMENTS


@pytest.mark.parametrize(
    ("claim", "seek"),
    [
        ("claim, all queues", "vtqueue_job_ready (<expr>=?)"),
        ("claim, one named queue", "vtqueue_job_queue (queue_name=? AND <expr>=?)"),
    ],
)
def test_a_claim_is_one_range_of_one_index(table: sqlite3.Connection, claim: str, seek: str) -> None:
    """The jobs in the line are all that this index has, in the order of the claim."""
    statement, values, _ = STATEMENTS[claim]
    assert plan(table, statement, values)[1:2] == [f"SEARCH job USING INDEX {seek}"]


def test_a_claim_of_named_queues_goes_on_where_it_was(table: sqlite3.Connection) -> None:
    """The next row of a name is sought from the last one on: what was taken before it is not walked over again."""
    statement, values, _ = STATEMENTS["claim, named queues"]
    told = "\n".join(plan(table, statement, values))
    assert "due_at=? AND rowid>?)" in told
    assert "due_at>? AND due_at<?)" in told
    assert "priority<?)" in told


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_sorts_nothing(table: sqlite3.Connection, claim: str) -> None:
    """Its order comes from the loops and the index: whatever sorts, sorts everything that is due before the LIMIT."""
    statement, values, _ = STATEMENTS[claim]
    assert not [step for step in plan(table, statement, values) if "ORDER BY" in step]


def test_a_claim_out_of_many_that_are_due_at_one_instant(table: sqlite3.Connection) -> None:
    """After one ``publish_many`` of 100,000 a claim takes its few from the front, without looking at the rest."""
    with undone(table):
        table.execute(FILL, filled("d", MANY, "READY", at(0)))
        for claim in CLAIMS:
            statement, values, _ = STATEMENTS[claim]
            rows = json.loads(table.execute(statement, values).fetchone()[0])
            assert len(rows) == 10, claim
            assert {priority for _, priority, *_ in rows} == {LEVELS - 4}, claim
            assert work(table, statement, values) < 100, claim


def test_a_claim_from_a_thousand_queues(table: sqlite3.Connection) -> None:
    """To name the queues must not take many times as much: a thousand names are looked at once, not for each job."""
    names = json.dumps([f"q{number}" for number in range(1000)])
    with undone(table):
        table.execute(FILL, filled("d", MANY, "READY", at(0), queues=1000))
        for claim, most in {"claim, all queues": 3, "claim, named queues": 7}.items():  # hundred instructions for each
            statement, values, _ = STATEMENTS[claim]
            values = {**values, "names": names, "limit": 400}
            rows = json.loads(table.execute(statement, values).fetchone()[0])
            assert len(rows) == 400, claim
            assert work(table, statement, values) < most * 400, claim


@pytest.mark.parametrize("rows", [10, 1000, 50_000])
def test_what_is_due_is_found_after_analyze(empty_file: Path, rows: int) -> None:
    """Whatever the planner of SQLite makes of the statistics: a wrong plan may find nothing instead of too slowly."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as table:
        with closing(sqlite3.connect(empty_file)) as file:
            file.backup(table)
        table.execute(FILL, filled("d", rows, "READY", at(0), queues=2))
        before = [table.execute(*STATEMENTS[claim][:2]).fetchone() for claim in CLAIMS]
        table.execute("ANALYZE")
        assert [table.execute(*STATEMENTS[claim][:2]).fetchone() for claim in CLAIMS] == before
    assert all(len(json.loads(found)) == min(10, rows // 2) for (found,) in before)


@pytest.mark.parametrize("prefix", RESERVED_PREFIXES)
def test_leases_of_ten_thousand_names(table: sqlite3.Connection, prefix: str) -> None:
    """Rows that instances hold, or have held until they died, each of a queue of its own, are passed over at once."""
    looks = ["expired, all queues", "expired, named queues", "first lease end", "names of queues", "held by"]
    before = {look: work(table, *STATEMENTS[look][:2]) for look in looks}
    with undone(table):
        for kind, state in (("e", "RUNNING"), ("d", "READY"), ("c", "SCHEDULED")):
            table.execute(FILL, filled(kind, 10_000, state, at(-10)))
            table.execute("UPDATE vtqueue_job SET queue_name = ? || id WHERE id GLOB ?", (prefix, f"{kind}*"))
        assert {look: work(table, *STATEMENTS[look][:2]) - before[look] < 10 for look in looks} == dict.fromkeys(
            looks, True
        )
