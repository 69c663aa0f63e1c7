"""What the control loop does with an error of the database."""

import gc
import weakref

import pytest
from django.db import OperationalError

from django_vtqueue.engines import new_engine
from django_vtqueue.worker.trouble import Episode

from ..conftest import ALIAS
from ..processes.database import Database


class Payload(str):
    """A string that can be watched."""


def test_a_turn_that_failed_leaves_nothing_in_memory(database: Database) -> None:
    """What a turn had in hand is free when its error was noted, without waiting for Python to look for cycles."""
    engine = new_engine(ALIAS, traced=False)
    episode = Episode(engine)
    held: list[weakref.ref[Payload]] = []

    def turn() -> None:
        payload = Payload("large")
        held.append(weakref.ref(payload))
        with engine.transaction():
            pytest.fail("the database is locked")

    gc.disable()
    try:
        with engine.impatient(), database.locked():
            try:
                turn()
            except OperationalError as error:
                episode.failed(error)
        assert [reference() for reference in held] == [None]
    finally:
        gc.enable()
