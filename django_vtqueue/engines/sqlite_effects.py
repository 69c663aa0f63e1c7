"""The transaction of a task's own writes: it holds the write lock, so it begins fairly and ends in time."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..exceptions import TaskTimeout
from ..limits import timekeeper
from .sqlite_lock import insist, own_patience

INTERRUPTED_EVERY = 0.05  # seconds: an interrupt reaches only a statement that is running


class Deadline:
    """Rolls a transaction back when its time is up, whatever the task's code does then.

    A sleep or a request to a server cannot be ended, but the write lock must not wait for it. What the task executes
    afterwards is refused: without its transaction it would be committed.
    """

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.passed = False
        self._raw = raw
        self._lock = Lock()  # held while a statement runs

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        """Execute a statement of the task, as Django's ``execute_wrapper`` has it done."""
        with self._lock:
            self.check()
            return execute(*arguments)

    def act(self) -> None:
        """Roll back; called in the timekeeper's thread."""
        while not self._lock.acquire(timeout=INTERRUPTED_EVERY):
            self._raw.interrupt()
        try:
            self.passed = True
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
        finally:
            self._lock.release()

    def check(self) -> None:
        """Raise TaskTimeout if the time is up."""
        if self.passed:
            raise TaskTimeout("The time of this task's transaction is up; it was rolled back.")


@contextmanager
def effects(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """Hold a transaction of Django's for the block; see Engine.effects."""
    with ExitStack() as stack:
        begin = transaction.atomic(using=connection.alias, durable=True)
        if connection.in_atomic_block:  # of a TestCase, or Django raises RuntimeError
            stack.enter_context(begin)
            yield
            return
        with own_patience(connection.connection) as patience, immediate(connection):
            insist(lambda: stack.enter_context(begin), patience)
        deadline = Deadline(connection.connection)
        try:
            with connection.execute_wrapper(deadline), timekeeper.alarm(seconds, deadline.act, lambda: None):
                yield
        finally:
            deadline.check()


@contextmanager
def immediate(connection: Any) -> Iterator[None]:
    """Have Django take the write lock with BEGIN, whatever the settings say."""
    usual, connection.transaction_mode = connection.transaction_mode, "IMMEDIATE"
    try:
        yield
    finally:
        connection.transaction_mode = usual
