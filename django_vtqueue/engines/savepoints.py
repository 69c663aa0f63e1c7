"""Code of the project inside a transaction that goes on behind it, whatever that code does to the database."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import DatabaseError, connections


@contextmanager
def contained() -> Iterator[None]:
    """Keep an error of the database inside the block: a transaction around it can be used afterwards."""
    saved = [
        (connection, connection.savepoint())
        for connection in connections.all(initialized_only=True)
        if connection.in_atomic_block and not connection.needs_rollback
    ]
    try:
        yield
    finally:
        for connection, savepoint in saved:
            if not connection.in_atomic_block or savepoint is None:
                continue
            if not connection.needs_rollback:
                with suppress(DatabaseError):  # of PostgreSQL, after a statement that has failed
                    connection.savepoint_commit(savepoint)
                    continue
            connection.needs_rollback = False
            connection.savepoint_rollback(savepoint)
