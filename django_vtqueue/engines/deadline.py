"""The end of a transaction of a task's own writes whose time is up, whatever the task is doing then."""

from collections.abc import Callable
from threading import RLock
from typing import Any

from django.db.transaction import TransactionManagementError

from ..exceptions import TaskTimeout


class Deadline:
    """Rolls a transaction back when its time is up.

    A sleep or a request to a server cannot be ended, but others must not wait for it. What the task executes through
    Django afterwards is refused: without its transaction it would be committed.
    """

    def __init__(self, raw: Any) -> None:
        self.passed = False
        self._raw = raw  # the driver's connection
        self._lock = RLock()  # held while a statement runs, which may run others (an execute_wrapper of the task's own)

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        """Execute a statement of the task, as Django's ``execute_wrapper`` has it done."""
        try:
            with self._lock:
                self.check()
                if not self.in_transaction():
                    raise TransactionManagementError(
                        "This task is transactional, but it has ended its transaction itself."
                    )
                return execute(*arguments)
        finally:
            if self.passed:
                self._roll_back()

    def act(self) -> None:
        """Roll back, in the thread of the timekeeper, which does not wait: a running statement does it at its end."""
        self.passed = True
        if self._lock.acquire(blocking=False):
            try:
                self._roll_back()
            finally:
                self._lock.release()
        else:
            self.end_statement()

    def check(self) -> None:
        """Raise TaskTimeout if the time is up."""
        if self.passed:
            raise TaskTimeout("The time of this task's transaction is up; it was rolled back.")

    def _roll_back(self) -> None:
        with self._lock:
            self.roll_back()

    def in_transaction(self) -> bool:
        """Return whether the connection is in a transaction."""
        raise NotImplementedError

    def roll_back(self) -> None:
        """End the transaction, if there is one; the task may have closed the connection."""
        raise NotImplementedError

    def end_statement(self) -> None:
        """Have the statement that runs end soon."""
