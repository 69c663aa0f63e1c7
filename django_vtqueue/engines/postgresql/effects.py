"""The transaction of a task's own writes: it keeps others from rows that it has changed, so it ends in time."""

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


class Deadline:
    """Rolls a transaction back when its time is up; what the task executes afterwards is refused.

    It would be executed in another transaction, which psycopg begins by itself.
    """

    def __init__(self, raw: Any) -> None:
        self.passed = False
        self._raw = raw
        self._lock = RLock()  # held while a statement runs, which may run others (an execute_wrapper of the task's own)

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        """Execute a statement of the task, as Django's ``execute_wrapper`` has it done."""
        try:
            with self._lock:
                self.check()
                if not self._in_transaction():
                    raise TransactionManagementError(
                        "This task is transactional, but it has ended its transaction itself."
                    )
                return execute(*arguments)
        finally:
            if self.passed:
                self._roll_back()

    def act(self) -> None:
        """Roll back, in the thread of the timekeeper, which does not wait: a running statement is cancelled."""
        self.passed = True
        if self._lock.acquire(blocking=False):
            try:
                self._roll_back()
            finally:
                self._lock.release()
        else:
            with suppress(Exception):  # the connection is gone
                self._raw.cancel()

    def check(self) -> None:
        """Raise TaskTimeout if the time is up."""
        if self.passed:
            raise TaskTimeout("The time of this task's transaction is up; it was rolled back.")

    def _in_transaction(self) -> bool:
        return bool(self._raw.info.transaction_status)

    def _roll_back(self) -> None:
        with self._lock, suppress(Exception):  # the task has closed the connection, or it is gone
            if self._in_transaction():
                self._raw.rollback()


@contextmanager
def effects(connection: BaseDatabaseWrapper, seconds: float) -> Iterator[None]:
    """Hold a transaction of Django's for the block; see Engine.effects."""
    began = time.monotonic()
    with ExitStack() as stack:
        inside = connection.in_atomic_block  # of a TestCase, or Django raises RuntimeError
        stack.enter_context(transaction.atomic(using=connection.alias, durable=True))
        if inside:
            yield
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")  # psycopg begins a transaction with its first statement
        deadline = Deadline(connection.connection)
        left = max(seconds - (time.monotonic() - began), 0.0)
        try:
            with connection.execute_wrapper(deadline), timekeeper.alarm(left, deadline.act, lambda: None):
                yield
        finally:
            deadline.check()
