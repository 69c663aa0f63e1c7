"""The transaction of a task's own writes: it holds the write lock, so it begins fairly and ends in time."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import RLock
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from ...core.timeouts import timekeeper
from ...exceptions import TaskTimeout
from .lock import retry_while_locked

LOOK = 10_000  # steps of SQLite's machine, less than a millisecond, between two looks at the time in a long statement


class Deadline:
    """Rolls a transaction back when its time is up.

    A sleep or a request to a server cannot be ended, but the write lock must not wait for it. What the task executes
    through Django afterwards is refused: without its transaction it would be committed.
    """

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.passed = False
        self._raw = raw
        self._lock = RLock()  # held while a statement runs, which may run others (an execute_wrapper of the task's own)

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        """Execute a statement of the task, as Django's ``execute_wrapper`` has it done."""
        try:
            with self._lock:
                self.check()
                if not self._raw.in_transaction:
                    raise TransactionManagementError(
                        "This task is transactional, but it has ended its transaction itself."
                    )
                return execute(*arguments)
        finally:
            if self.passed:
                self._roll_back()

    def act(self) -> None:
        """Roll back, in the thread of the timekeeper, which does not wait: a running statement does it at its end."""
        self.passed = True  # ends that statement soon
        if self._lock.acquire(blocking=False):
            try:
                self._roll_back()
            finally:
                self._lock.release()

    def _roll_back(self) -> None:
        with self._lock, suppress(sqlite3.ProgrammingError):  # the task has closed the connection
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")

    def check(self) -> None:
        """Raise TaskTimeout if the time is up."""
        if self.passed:
            raise TaskTimeout("The time of this task's transaction is up; it was rolled back.")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Have a statement that runs end when the time is up.

        Not by ``interrupt()``: as long as the task has a cursor open, that would end the ROLLBACK as well.
        """
        self._raw.set_progress_handler(lambda: self.passed, LOOK)
        try:
            yield
        finally:
            with suppress(sqlite3.ProgrammingError):
                self._raw.set_progress_handler(None, 0)


@contextmanager
def effects(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """Hold a transaction of Django's for the block; see Engine.effects."""
    with ExitStack() as stack:
        begin = transaction.atomic(using=connection.alias, durable=True)
        if connection.in_atomic_block:  # of a TestCase, or Django raises RuntimeError
            stack.enter_context(begin)
            yield
            return
        with immediate(connection):
            retry_while_locked(connection.connection, lambda: stack.enter_context(begin), time.monotonic())
        deadline = Deadline(connection.connection)
        try:
            with (
                deadline.watched(),
                connection.execute_wrapper(deadline),
                timekeeper.alarm(seconds, deadline.act, lambda: None),
            ):
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
