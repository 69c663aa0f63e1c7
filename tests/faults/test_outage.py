"""What the control loop does with an error of the database."""

import gc
import os
import sqlite3
import sys
import weakref
from contextlib import closing
from pathlib import Path

import pytest
from django.db import OperationalError, ProgrammingError

from django_vtqueue.engines import new_engine
from django_vtqueue.worker.outage import Outage

from ..conftest import ALIAS
from ..processes.database import Database
from ..waiting import wait_until


class Payload(str):
    """A string that can be watched."""


@pytest.mark.sqlite("no statement waits for its lock")
def test_a_turn_that_failed_leaves_nothing_in_memory(database: Database) -> None:
    """What a turn had in hand is free when its error was noted, without waiting for Python to look for cycles."""
    engine = new_engine(ALIAS, traced=False)
    outage = Outage(engine)
    held: list[weakref.ref[Payload]] = []

    def turn() -> None:
        payload = Payload("large")
        held.append(weakref.ref(payload))
        with engine.transaction():
            pytest.fail("the database is locked")

    gc.disable()
    try:
        with engine.without_lock_waits(), database.locked():
            try:
                turn()
            except OperationalError as error:
                outage.note_failure(error)
        assert [reference() for reference in held] == [None]
    finally:
        gc.enable()


@pytest.mark.sqlite("the interpreter is switched less often while its lock is held")
def test_a_broken_transaction_leaves_the_interpreter_as_it_was(database: Database) -> None:
    """How long a thread may keep the interpreter is put back also when the connection is gone at the end."""
    engine = new_engine(ALIAS, traced=False)
    usual = sys.getswitchinterval()
    with engine.without_lock_waits():
        with pytest.raises(ProgrammingError, match="closed"), engine.transaction():
            engine.connection.connection.close()  # type: ignore[attr-defined]
        assert sys.getswitchinterval() == usual
        engine.disconnect()


@pytest.mark.sqlite("another file in its place")
def test_a_database_to_which_others_write_is_opened_when_it_took_the_place_of_ours(
    database: Database, tmp_path: Path
) -> None:
    """Another file has settled when it grows no more, though other connections write to it."""
    other = tmp_path / "other.sqlite3"
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("VACUUM INTO ?", (str(other),))
    engine = new_engine(ALIAS, traced=False)
    with engine.without_lock_waits():
        assert not engine.replaced()
        os.replace(other, database.path)

        def replaced() -> bool:
            os.utime(database.path)  # as a write does
            try:
                return engine.replaced()
            except OperationalError:
                engine.disconnect()
                return False

        wait_until(replaced)
