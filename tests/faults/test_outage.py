"""What the control loop does with an error of the database."""

import gc
import os
import sqlite3
import weakref
from contextlib import closing
from pathlib import Path

import pytest
from django.db import OperationalError

from ..conftest import ALIAS
from ..processes.database import Database
from ..waiting import wait_until
from .inside import ControlLoop


class Payload(str):
    """A string that can be watched."""


@pytest.mark.sqlite("no statement waits for its lock")
def test_a_turn_that_failed_leaves_nothing_in_memory(database: Database) -> None:
    """What a turn had in hand is free when its error was noted, without waiting for Python to look for cycles."""
    loop = ControlLoop(ALIAS)
    held: list[weakref.ref[Payload]] = []

    def turn() -> None:
        payload = Payload("large")
        held.append(weakref.ref(payload))
        with loop.transaction():
            pytest.fail("the database is locked")

    gc.disable()
    try:
        with loop.without_waiting(), database.locked():
            try:
                turn()
            except OperationalError as error:
                loop.note(error)
        assert [reference() for reference in held] == [None]
    finally:
        gc.enable()


@pytest.mark.sqlite("another file in its place")
def test_a_database_to_which_others_write_is_opened_when_it_took_the_place_of_ours(
    database: Database, tmp_path: Path
) -> None:
    """Another file has settled when it grows no more, though other connections write to it."""
    other = tmp_path / "other.sqlite3"
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute("VACUUM INTO ?", (str(other),))
    loop = ControlLoop(ALIAS)
    with loop.without_waiting():
        assert not loop.replaced()
        os.replace(other, database.path)

        def replaced() -> bool:
            os.utime(database.path)  # as a write does
            try:
                return loop.replaced()
            except OperationalError as error:
                loop.note(error)
                return False

        wait_until(replaced)
