"""The transaction of a task's own writes: it holds the write lock, so it begins fairly and ends in time."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ...core.backoff import long_hold_pause, rest_after
from ...runtime.timeouts import timekeeper
from ..deadline import Deadline
from .lock import begun_fairly

STEPS_BETWEEN_LOOKS = 10_000  # at the time in a long statement, of SQLite's machine: less than a millisecond


class WriteDeadline(Deadline):
    """That of a transaction that holds the write lock, for which every other writer waits."""

    def in_transaction(self) -> bool:
        """See Deadline."""
        return bool(self._raw.in_transaction)

    def roll_back(self) -> None:
        """See Deadline."""
        with suppress(sqlite3.ProgrammingError):  # the task has closed the connection
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Have a statement that runs end when the time is up.

        Not by ``interrupt()``: as long as the task has a cursor open, that would end the ROLLBACK as well.
        """
        self._raw.set_progress_handler(lambda: self.passed, STEPS_BETWEEN_LOOKS)
        try:
            yield
        finally:
            with suppress(sqlite3.ProgrammingError):
                self._raw.set_progress_handler(None, 0)


@contextmanager
def task_transaction(connection: BaseDatabaseWrapper, seconds: float, first: Callable[[], None]) -> Iterator[None]:
    """Hold a transaction of Django's for the block, then leave the lock to others; see Engine.task_transaction."""
    with ExitStack() as stack:
        begin = transaction.atomic(using=connection.alias, durable=True)
        if connection.in_atomic_block:  # of a TestCase, or Django raises RuntimeError
            stack.enter_context(begin)
            first()
            yield
            return
        began = inf
        stack.callback(lambda: time.sleep(rest_after(time.monotonic() - began)))
        with begun_fairly(connection, long_hold_pause):
            stack.enter_context(begin)
        began = time.monotonic()
        first()  # with the lock it waits for nothing
        deadline = WriteDeadline(connection.connection)
        try:
            with (
                deadline.watched(),
                connection.execute_wrapper(deadline),
                timekeeper.alarm(seconds, deadline.act, lambda: None),
            ):
                yield
        finally:
            deadline.check()
