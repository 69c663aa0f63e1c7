"""The statements of the lists, with many rows: each looks at its slice of them, by its index, and sorts nothing."""

import json
import sqlite3
from typing import Any

import pytest

from django_vtqueue.engines.sqlite import walks as lists
from django_vtqueue.engines.sqlite.lists import EARLIEST

from ..fake_clock import at
from .database import plan, work

SLICE = 500
VALUES: dict[str, Any] = {
    **dict.fromkeys(("queue_name", "task_path", "worker_id", "exception_class", "fingerprint", "acknowledged")),
    **{"text": "%none%", "in_payload": "%none%", "digits": "123456", "word": "none", "now": at(0), "slice": SLICE},
    **{
        "first_id": "",
        "end_id": "g",
        "holder": "",
        "after": "g",
        "since": EARLIEST,
        "died_at": b"",
        "limit": 100,
    },
    **dict.fromkeys(("raw", "priority", "due_at")),
    "levels": json.dumps([[priority, raw, EARLIEST] for priority in range(3, -4, -1) for raw in (0, 1)]),
    "end": "",
    "length": 6,
}
HELD = {"holder": "", "after": 0}
QUEUE = {"queue_name": "q0"}
INDEXES = {
    "newest": "sqlite_autoindex_vtqueue_job_1",
    "held": "vtqueue_job_worker",
    "waiting": "vtqueue_job_due",
    "waiting of queue": "vtqueue_job_queue",
}
OF_WALK: dict[str, dict[str, Any]] = {"newest": {}, "held": HELD, "waiting": {}, "waiting of queue": QUEUE}

STATEMENTS = {
    **{f"jobs {name} {text}": (sql, OF_WALK[name], INDEXES[name]) for (name, text), sql in lists.PAGES.items()},
    **{f"count {name}": (sql, OF_WALK[name], INDEXES[name]) for name, sql in lists.COUNTS.items()},
    **{f"levels {name}": (sql, OF_WALK[name], INDEXES[name]) for name, sql in lists.LEVELS.items()},
    **{f"letters {name} {text}": (sql, {}, lists.GROUPS[name][0]) for (name, text), sql in lists.LETTERS.items()},
    **{f"ids {table}": (sql, {}, "sqlite_autoindex") for table, sql in lists.IDS_ENDING.items()},
    **{f"names {table} {column}": (sql, {}, "vtqueue") for (table, column), sql in lists.NAMES.items()},
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_lists_use_their_indexes(table: sqlite3.Connection, name: str) -> None:
    """No statement of a list walks over a table, sorts, or builds something of all rows; with ANALYZE or without."""
    statement, own, index = STATEMENTS[name]
    told = "\n".join(plan(table, statement, VALUES | own))
    reads = [step for step in told.splitlines() if step.endswith((" job", " letter")) or " USING " in step]
    assert [step for step in reads if index not in step and "VIRTUAL TABLE" not in step] == [], told
    assert "TEMP B-TREE FOR ORDER BY" not in told, told
    assert "BLOOM FILTER" not in told, told


@pytest.mark.parametrize("name", [name for name in STATEMENTS if "letters" not in name])
def test_a_slice_is_the_work(table: sqlite3.Connection, name: str) -> None:
    """Where nothing that is sought is among 200,000 rows, a slice of them is looked at, and no more."""
    statement, own, _ = STATEMENTS[name]
    assert work(table, statement, VALUES | own) < SLICE * 2


@pytest.mark.parametrize("name", ["newest", "waiting"])
def test_a_page_that_is_full_looks_no_further(table: sqlite3.Connection, name: str) -> None:
    """Of a slice of 20,000 rows only so many are looked at as a page shows."""
    values = VALUES | {"word": "", "slice": 20_000}
    steps = 0

    def tick() -> int:
        nonlocal steps
        steps += 1
        return 0

    table.set_progress_handler(tick, 100)
    cursor = table.execute(lists.PAGES[name, False], values)
    assert len(cursor.fetchmany(50)) == 50
    table.set_progress_handler(None, 0)
    cursor.close()
    assert steps < 100
