"""The full database, as it is and after ANALYZE."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ..fake_clock import at
from .database import FILL, FILL_COUNTS, FILL_LETTERS, MANY, filled


@pytest.fixture(scope="module")
def full(empty_file: Path) -> Iterator[sqlite3.Connection]:
    """Return a database in memory with 100,000 finished and 100,000 scheduled rows, some in the line, and some held."""
    # No cache: SQLite does not plan an EXPLAIN anew when an index was dropped.
    with closing(sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)) as table:
        with closing(sqlite3.connect(empty_file)) as file:
            file.backup(table)
        table.execute(FILL, filled("f", MANY, "SUCCESSFUL", at(-100)))
        table.execute(FILL, filled("a", MANY, "SCHEDULED", at(10_000)))
        table.execute(FILL, filled("9", 1000, "READY", at(-1)))
        table.execute(FILL, filled("b", 1000, "RUNNING", at(60)))
        table.execute(FILL_COUNTS, {"rows": MANY, "now": at(0)})
        table.execute(FILL_LETTERS, {"rows": MANY // 5, "now": at(0)})
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
