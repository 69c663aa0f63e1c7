"""Which indexes serve the statements of the queue on SQLite, with many rows that they must not look at.

An index that is gone, or a statement that no longer fits it, turns a claim of microseconds into a walk over the table;
nothing but the query plan shows it before the table is large.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_vtqueue.engines import sqlite_counts as counts
from django_vtqueue.engines import sqlite_due as due
from django_vtqueue.engines import sqlite_letters as letters
from django_vtqueue.engines import sqlite_pauses as pauses
from django_vtqueue.engines import sqlite_situation as situation
from django_vtqueue.engines import sqlite_sql as sql

from .fake_clock import at

MANY = 100_000
LEVELS = 7  # priorities that occur

FILL = """
WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < :rows - 1)
INSERT INTO vtqueue_job (
    id, queue_name, task_path, priority, claims, attempts, max_attempts, worker_id, lease_us, enqueued_at, state,
    visible_at, payload, history, finished_at, expires_at
) SELECT
    printf('%s%031x', :kind, n), 'q' || (n % :queues), CASE n % 2 WHEN 0 THEN '' ELSE 'app.tasks.one' END,
    n % :levels - 3, 0, 0, 10, CASE :state WHEN 'READY' THEN '' ELSE 'w' || (n % 500) END, 60000000, :now, :state,
    :visible_at, '{}', '[]', CASE :state WHEN 'SUCCESSFUL' THEN :now END,
    CASE :state WHEN 'SUCCESSFUL' THEN :now + 1000000 END
FROM n"""

FILL_COUNTS = """
WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < :rows - 1)
INSERT INTO vtqueue_throughput (minute, queue_name, worker_id, succeeded, failed, dead, run_times, wait_times)
SELECT :now - (n / 20) * 60000000, 'q' || (n % 5), 'w' || (n / 5 % 4), 1, 0, 0, '{}', '{}' FROM n"""

# What each statement is given, and the indexes that it must use.
HELD = json.dumps([["a" + "0" * 31, 1, "w0"], ["a" + "0" * 30 + "1", 1, "w1"]])
IDS = json.dumps(["a" + "0" * 31, "a" + "0" * 30 + "1"])
SETTLEMENTS = json.dumps([["a" + "0" * 31, 1, "w0", "READY", 1, 1, None, None, None, None]])
BURIALS = json.dumps([["a" + "0" * 31, 1, "w0", 1, None, "[]", "E", "m", "f"]])
NAMES = json.dumps(["q0", "q1"])
CLAIM = {"raw": True, "now": at(0), "resumed_at": 0, "limit": 10}
DUE, QUEUE, WORKER, EXPIRES = "vtqueue_job_due", "vtqueue_job_queue", "vtqueue_job_worker", "vtqueue_job_expires"
TABLES = {"vtqueue_job", "vtqueue_deadletter", "vtqueue_throughput"}
KEY, ROWID = "sqlite_autoindex_vtqueue_job_1", "INTEGER PRIMARY KEY"
MINUTES = "sqlite_autoindex_vtqueue_throughput_1"
MEANT = {"queue_name": "q0", "since": at(-100), "until": at(0)}
ANY = {"task_path": None, "exception_class": None}
GROUP = "vtqueue_letter_group"
PAUSES = {"vtqueue_queuestate", "sqlite_autoindex_vtqueue_queuestate_1"}  # a few rows: any way to them will do
COUNTED = "sqlite_autoindex_vtqueue_throughput_1"
LETTER, LETTER_EXPIRES = "sqlite_autoindex_vtqueue_deadletter_1", "vtqueue_letter_expires"

STATEMENTS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "claim, all queues": (due.DUE_ALL, CLAIM, [DUE]),
    "claim, named queues": (due.DUE_NAMED, {**CLAIM, "names": NAMES}, [QUEUE, ROWID]),
    "claim, many named queues": (due.DUE_LOOKED, {**CLAIM, "names": NAMES, "look": 100}, [DUE, ROWID]),
    "claim, all but the paused": (due.DUE_UNPAUSED, CLAIM, [QUEUE, ROWID]),
    "earliest, all queues": (due.EARLIEST_ALL, {"raw": True}, [DUE]),
    "earliest, named queues": (due.EARLIEST_NAMED, {"raw": True, "names": NAMES}, [QUEUE]),
    "earliest, many named queues": (due.EARLIEST_LOOKED, {"raw": True, "names": NAMES, "look": 10}, [DUE]),
    "earliest, all but the paused": (due.EARLIEST_UNPAUSED, {"raw": True}, [QUEUE]),
    "backlog, all queues": (due.BACKLOG_ALL, {"raw": True, "now": at(0)}, [DUE]),
    "backlog, named queues": (due.BACKLOG_NAMED, {"raw": True, "now": at(0), "names": NAMES}, [QUEUE]),
    "backlog, all but the paused": (due.BACKLOG_UNPAUSED, {"raw": True, "now": at(0)}, [QUEUE]),
    "names of queues": (pauses.QUEUE_NAMES, {}, [QUEUE]),
    "lease": (
        sql.LEASE,
        {"rowids": f"[{MANY + 1}, {MANY + 2}]", "worker_id": "w", "now": at(0), "lease_us": None, "attempts": 1},
        [ROWID],
    ),
    "read": (sql.READ, {"rowids": f"[{MANY + 1}, {MANY + 2}]"}, [ROWID]),
    "begin": (sql.BEGIN, {"held": HELD, "now": at(0)}, [KEY]),
    "renew": (sql.RENEW, {"held": HELD, "now": at(0)}, [KEY]),
    "not held": (sql.NOT_HELD, {"held": HELD}, [KEY]),
    "extend": (sql.EXTEND, {"id": "a" + "0" * 31, "claims": 1, "worker_id": "w", "now": 1, "lease_us": 1}, [KEY]),
    "settle": (sql.SETTLE, {"settlements": SETTLEMENTS, "result": None}, [KEY]),
    "not settled": (sql.NOT_SETTLED, {"settlements": SETTLEMENTS, "result": None}, [KEY]),
    "remove expired": (sql.REMOVE_EXPIRED, {"ids": IDS}, [KEY]),
    "bury": (sql.BURY, {"settlements": BURIALS}, [KEY]),
    "remove buried": (sql.REMOVE_BURIED, {"settlements": BURIALS}, [KEY, ROWID]),
    "not buried": (sql.NOT_BURIED, {"settlements": BURIALS}, [LETTER]),
    "bury waiting": (sql.BURY_WAITING, {"settlements": BURIALS}, [KEY]),
    "remove waiting": (sql.REMOVE_WAITING, {"settlements": BURIALS}, [KEY, ROWID]),
    "ask": (sql.ASK, {"ids": IDS, "now": at(0), "by": "anna"}, [KEY]),
    "asked now": (sql.ASKED_NOW, {"ids": IDS, "now": at(0)}, [KEY]),
    "asked": (sql.ASKED, {"held": HELD}, [KEY]),
    "note progress": (sql.NOTE_PROGRESS, {"said": HELD}, [KEY]),
    "find": (sql.FIND, {"id": "a" + "0" * 31}, [KEY, LETTER]),
    "held by": (sql.HELD_BY, {"worker_id": "w1"}, [WORKER]),
    "requeue": (
        sql.REQUEUE,
        {"ids": IDS, "now": at(0), "entry": "{}", "queue_name": None, "priority": None},
        [LETTER],
    ),
    "requeued": (sql.REQUEUED, {"ids": IDS}, [LETTER, KEY]),
    "remove requeued": (sql.REMOVE_REQUEUED, {"ids": IDS}, [LETTER, KEY]),
    "purge": (sql.PURGE, {"queue_name": "q0", "now": at(0), "limit": 100}, [QUEUE, ROWID]),
    "prunable": (sql.PRUNABLE, {"now": at(0)}, [EXPIRES, LETTER_EXPIRES]),
    "prune jobs": (sql.PRUNE_JOBS, {"now": at(0), "limit": 100}, [EXPIRES, ROWID]),
    "prune letters": (sql.PRUNE_LETTERS, {"now": at(0), "limit": 100}, [LETTER_EXPIRES, ROWID]),
    "tally": (
        counts.TALLY,
        {"worker_id": "w0", "rows": json.dumps([[at(0), "q0", 1, 0, 0, {}, {}]])},
        [],
    ),
    "counts": (counts.COUNTS, {"first": at(-300), "last": at(0)}, [COUNTED]),
    "prune counts": (counts.PRUNE_COUNTS, {"before": at(-(10**6)), "limit": 100}, [COUNTED]),
    "arrivals": (counts.ARRIVALS, {"first": "b" * 32, "last": "c" * 32, "limit": 100}, [KEY, LETTER]),
    "ahead": (
        sql.STAMPED_AHEAD,
        {"raw": True, "priority": 0, "visible_at": at(10_000), "rowid": MANY + 9, "now": at(0), "limit": 10},
        [DUE],
    ),
    "level below": (sql.LEVEL_BELOW, {"raw": True, "priority": 2}, [DUE]),
    "set right": (sql.SET_RIGHT, {"rowids": f"[{MANY + 1}, {MANY + 2}]", "now": at(0)}, [ROWID]),
    "count": (sql.COUNT, {"queue_name": "q0"}, [QUEUE]),
    "overview, sizes": (situation.QUEUES, {"limit": 100, "most": 100}, [QUEUE]),
    "overview, letters": (situation.LETTERS, {"limit": 100, "most": 100}, ["vtqueue_letter_queue"]),
    "overview, backlogs": (situation.BACKLOGS, {"names": NAMES, "now": at(0), "most": 10}, [QUEUE]),
    "overview, held": (situation.HELD, {"most": 10, "now": at(0)}, [WORKER]),
    "overview, active": (situation.ACTIVE, {"first": at(0), "last": at(600), "limit": 100}, [MINUTES]),
    "overview, flow": (situation.FLOW, {"names": NAMES, "first": at(0), "last": at(600)}, [MINUTES]),
    "overview, times": (
        situation.TIMES,
        {"names": NAMES, "first": at(0), "last": at(600), "each": 10},
        [MINUTES],
    ),
    "overview, running": (situation.RUNNING, {"workers": '["w0"]', "each": 10}, [WORKER, ROWID]),
    "groups": (letters.LETTER_GROUPS, {**MEANT, "limit": 9, "count": 9, **ANY}, [GROUP, ROWID]),
    "deaths": (letters.LETTER_DEATHS, {**MEANT, "width": 9, "groups": '[["f", "t"]]'}, [GROUP]),
    "tracebacks": (letters.LETTER_TRACEBACKS, {"ids": IDS}, [LETTER]),
    "queues of letters": (letters.LETTER_QUEUES, {"limit": 9}, ["vtqueue_letter_queue"]),
}


CLAIMS = [name for name in STATEMENTS if name.startswith("claim")]


def filled(kind: str, rows: int, state: str, visible_at: int, queues: int = 5) -> dict[str, Any]:
    """Return the values of FILL."""
    counts = {"rows": rows, "levels": LEVELS, "queues": queues}
    return {"kind": kind, "state": state, "visible_at": visible_at, "now": at(0), **counts}


@pytest.fixture(scope="module")
def full(empty_file: Path) -> Iterator[sqlite3.Connection]:
    """Return a database in memory with 100,000 finished and 100,000 future rows, and some that are held."""
    # No cache: SQLite does not plan an EXPLAIN anew when an index was dropped.
    with closing(sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)) as table:
        with closing(sqlite3.connect(empty_file)) as file:
            file.backup(table)
        table.execute(FILL, filled("f", MANY, "SUCCESSFUL", at(-100)))
        table.execute(FILL, filled("a", MANY, "READY", at(10_000)))
        table.execute(FILL, filled("b", 1000, "RUNNING", at(60)))
        table.execute(FILL_COUNTS, {"rows": MANY, "now": at(0)})
        yield table


@pytest.fixture(scope="module", params=["", "analyzed", "analyzed when it was small"])
def table(request: pytest.FixtureRequest, full: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Return the full database as it is, and after ``ANALYZE``, now or long ago: plans must not depend on it."""
    if request.param:
        full.execute("ANALYZE")
    if request.param == "analyzed when it was small":
        for index, stat in full.execute("SELECT idx, stat FROM sqlite_stat1 WHERE idx IS NOT NULL").fetchall():
            small = " ".join(["3", *["1"] * (len(stat.split()) - 1)])
            full.execute("UPDATE sqlite_stat1 SET stat = ? WHERE idx = ?", [small, index])
        full.execute("ANALYZE sqlite_master")  # reads them
    yield full
    if request.param:
        full.execute("DROP TABLE sqlite_stat1")


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


def check_plan(table: sqlite3.Connection, name: str) -> None:
    """Fail unless a statement uses its indexes, and walks over neither table."""
    statement, values, indexes = STATEMENTS[name]
    steps = plan(table, statement, values)
    told = "\n".join(steps)
    for index in indexes:
        assert re.search(rf"\bUSING (COVERING )?(INDEX )?{re.escape(index)}\b", told), f"{index} is not used:\n{told}"
    used = set(re.findall(r"\b(?:vtqueue|sqlite_autoindex)_\w+", told)) - {*TABLES, *PAUSES}
    assert used <= set(indexes), told
    assert not re.search(rf"SCAN ({'|'.join(TABLES)}|job)\b", told), told
    assert "BLOOM FILTER ON" not in told, told  # made from all rows, and, of an index with an expression, made wrong


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


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_use_their_indexes(table: sqlite3.Connection, name: str) -> None:
    """Each finds its rows by the index that was made for it, and looks at no other rows."""
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


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_seeks_each_priority_and_reads_from_the_earliest_on(table: sqlite3.Connection, claim: str) -> None:
    """Where it reads rows, that is equality on all columns of the index but the last, and a range of that: visible_at,
    or the later ones of one instant.
    """
    statement, values, _ = STATEMENTS[claim]
    reads = [step for step in plan(table, statement, values) if "visible_at" in step]
    ranges = r"visible_at<\?|visible_at>\? AND visible_at<\?|visible_at=\? AND rowid>\?"
    assert reads
    assert [step for step in reads if not re.search(rf"<expr>=\? AND priority=\? AND ({ranges})\)", step)] == []


def test_a_claim_of_named_queues_goes_on_where_it_was(table: sqlite3.Connection) -> None:
    """The next row of a name is sought from the last one on: what was taken before it is not walked over again."""
    statement, values, _ = STATEMENTS["claim, named queues"]
    told = "\n".join(plan(table, statement, values))
    assert "visible_at=? AND rowid>?)" in told
    assert "visible_at>? AND visible_at<?)" in told


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_sorts_nothing(table: sqlite3.Connection, claim: str) -> None:
    """Its order comes from the loops and the index: whatever sorts, sorts everything that is due before the LIMIT."""
    statement, values, _ = STATEMENTS[claim]
    assert not [step for step in plan(table, statement, values) if "ORDER BY" in step]


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name != "count"])
def test_the_work_does_not_grow_with_the_table(table: sqlite3.Connection, name: str) -> None:
    """A few thousand instructions, not a few for each of 200,000 rows that are none of its business."""
    statement, values, _ = STATEMENTS[name]
    assert work(table, statement, values) < 250


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_out_of_many_that_are_due_at_one_instant(table: sqlite3.Connection, claim: str) -> None:
    """After one ``publish_many`` of 100,000 a claim takes its few from the front, without looking at the rest."""
    statement, values, _ = STATEMENTS[claim]
    with undone(table):
        table.execute(FILL, filled("d", MANY, "READY", at(0)))
        rows = json.loads(table.execute(statement, values).fetchone()[0])
        taken = work(table, statement, values)
    assert len(rows) == 10
    assert {priority for _, priority, *_ in rows} == {LEVELS - 4}
    assert taken < 100


def pause(table: sqlite3.Connection, *names: str) -> None:
    """Pause queues for good."""
    table.executemany(
        "INSERT INTO vtqueue_queuestate (queue_name, paused_at, paused_by, reason) VALUES (?, 1, '', '')",
        [(name,) for name in names],
    )


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name.startswith(("claim", "earliest", "backlog"))])
def test_what_is_due_of_a_paused_queue_is_not_walked_over(table: sqlite3.Connection, name: str) -> None:
    """With 100,000 due jobs of the highest priority, which nobody may take, what is behind them is found as before."""
    statement, values, _ = STATEMENTS[name]
    with undone(table):
        before = table.execute(statement, values).fetchone(), work(table, statement, values)
        table.execute(FILL, filled("d", MANY, "READY", at(0), queues=1))
        table.execute("UPDATE vtqueue_job SET queue_name = 'paused', priority = 100 WHERE id LIKE 'd%'")
        pause(table, "paused")
        [after], effort = table.execute(statement, values).fetchone(), work(table, statement, values)
    if after in (None, float("-inf")):
        assert name.endswith(", all queues") or "many" in name  # it leaves it to the statement that goes by names
    else:
        assert after == before[0][0]
    assert effort < before[1] + 100


@pytest.mark.parametrize(
    ("claim", "most"),
    [
        ("claim, all queues", 3),
        ("claim, named queues", 7),
        ("claim, many named queues", 4),
        ("claim, all but the paused", 7),
    ],
)
def test_a_claim_from_a_thousand_queues(table: sqlite3.Connection, claim: str, most: int) -> None:
    """So many hundred instructions for each row that it takes: to name the queues must not make that many times more.

    A thousand names are looked at once, not as many times as there are jobs to take.
    """
    statement, values, _ = STATEMENTS[claim]
    names = json.dumps([f"q{number}" for number in range(1000)])
    with undone(table):
        table.execute(FILL, filled("d", MANY, "READY", at(0), queues=1000))
        values = {**values, "names": names, "limit": 400, "look": 3000}
        rows = json.loads(table.execute(statement, values).fetchone()[0])
        assert len(rows) == 400
        assert work(table, statement, values) < most * 400


def test_the_earliest_of_a_thousand_queues(table: sqlite3.Connection) -> None:
    """With many names the first rows of each priority tell, without a seek for each name."""
    statement, values, _ = STATEMENTS["earliest, many named queues"]
    names = json.dumps([f"q{number}" for number in range(1000)])
    assert table.execute(statement, {**values, "names": names}).fetchone() == (at(60),)
    assert work(table, statement, {**values, "names": names}) < 60


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


def test_settling_many_jobs_of_one_worker_is_not_quadratic(table: sqlite3.Connection) -> None:
    """Twice the jobs are twice the work, also when all are held by the same worker."""
    with undone(table):
        table.execute("UPDATE vtqueue_job SET worker_id = 'w', claims = 1 WHERE state = 'RUNNING'")

        def settling(count: int) -> int:
            rows = [(f"b{number:031x}", 1, "w", "READY", 1, at(1), None, None, None, None) for number in range(count)]
            return work(table, sql.SETTLE, {"settlements": json.dumps(rows), "result": None})

        assert settling(800) < 2.5 * settling(400)
