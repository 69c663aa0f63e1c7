"""What is done however long the database has a passing trouble."""

from django.db import InterfaceError

from django_vtqueue.engines import engine_for
from django_vtqueue.queue.until_done import until_done


def test_a_driver_that_says_that_the_connection_is_closed(sqlite_file: str) -> None:
    """Django's InterfaceError is no DatabaseError; it is waited out like any other loss of the connection."""
    tries = []

    def verb() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise InterfaceError("connection already closed")
        return "done"

    assert until_done(engine_for(sqlite_file), verb) == "done"
    assert len(tries) == 2
