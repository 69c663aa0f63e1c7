"""The looks of a wait at a database file share a connection."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from .processes.database import Database
from .waiting import shared, wait_until


@pytest.fixture
def database(empty_file: Path, tmp_path: Path) -> Database:
    """Return a database file that nothing else has opened."""
    return Database(Path(shutil.copy(empty_file, tmp_path / "db.sqlite3")), "")


def opened(database: Database) -> bool:
    """Return whether this process has the file open."""
    return any(os.path.samefile(file, database.path) for file in Path("/proc/self/fd").iterdir() if file.exists())


def test_they_see_what_others_write(database: Database) -> None:
    """Each sees what is there by then; their connection ends with the wait, and that of another look with the look."""
    seen, connections = [], set()

    def look() -> bool:
        seen.append(len(database.workers()))
        connections.add(shared.connection)
        database.add_worker(f"worker-{len(seen)}", 1)
        return len(seen) == 4

    wait_until(look)
    assert (seen, len(connections), opened(database)) == ([0, 1, 2, 3], 1, False)
    assert (len(database.workers()), opened(database)) == (4, False)


def test_a_wait_within_a_wait(database: Database) -> None:
    """It has a connection of its own; the outer one goes on with its own."""
    connections = []

    def look() -> bool:
        database.workers()
        connections.append(shared.connection)
        wait_until(lambda: database.workers() == [])
        return len(connections) == 2

    wait_until(look)
    assert connections[0] is connections[1]
    assert not opened(database)


def test_an_exchanged_file(database: Database, empty_file: Path, tmp_path: Path) -> None:
    """The look after the exchange is at the new file."""
    other = Path(shutil.copy(empty_file, tmp_path / "other"))
    Database(other, "").add_worker("other", 1)

    def look() -> bool:
        if database.workers():
            return True
        os.replace(other, database.path)
        return False

    wait_until(look)
    assert not opened(database)


def test_a_look_that_fails(database: Database) -> None:
    """Its connection is closed, and the next look has another one."""
    failed = []

    def look() -> bool:
        if not failed:
            with pytest.raises(sqlite3.OperationalError, match="no such column"):
                database.rows("SELECT missing")
            failed.append(opened(database))
        return database.workers() == []

    wait_until(look)
    assert (failed, opened(database)) == ([False], False)
