"""The transaction of a task's own writes: it keeps others from rows that it has changed, so it ends in time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ...runtime.timeouts import timekeeper
from ..deadline import Deadline

# A host that dies says nothing: for two hours the server believes in its sessions, and what they have locked is passed
# over by every claim. So the server ends a session that is silent in the middle of a transaction. It is said for the
# transaction only, for nothing is kept in the session.
END_IF_SILENT = "SELECT set_config('idle_in_transaction_session_timeout', %(milliseconds)s, true)"
MARGIN = 1000  # milliseconds for the rollback of a transaction whose time is up


class ServerDeadline(Deadline):
    """That of a transaction whose statements run in the server.

    What the task executed afterwards would be in another transaction, which psycopg begins by itself. A server that
    cannot be reached must not keep the timekeeper, and with it the limits of all other tasks: nothing here waits long.
    """

    def in_transaction(self) -> bool:
        """See Deadline."""
        return bool(self._raw.info.transaction_status)

    def roll_back(self) -> None:
        """See Deadline; the session is ended if the answer does not come."""
        ending = threading.Thread(target=self._roll_back_session, name="rollback", daemon=True)
        ending.start()
        ending.join(MARGIN / 1000)
        if ending.is_alive():
            self._raw.close()

    def _roll_back_session(self) -> None:
        with suppress(Exception):  # the task has closed the connection, or it is gone
            if self.in_transaction():
                self._raw.rollback()

    def end_statement(self) -> None:
        """See Deadline."""
        with suppress(Exception):  # the connection is gone
            self._raw.cancel_safe(timeout=MARGIN / 1000)  # cancel() keeps the interpreter while it connects


@contextmanager
def task_transaction(connection: BaseDatabaseWrapper, seconds: float, first: Callable[[], None]) -> Iterator[None]:
    """Hold a transaction of Django's for the block; see Engine.task_transaction."""
    with ExitStack() as stack:
        inside = connection.in_atomic_block  # of a TestCase, or Django raises RuntimeError
        stack.enter_context(transaction.atomic(using=connection.alias, durable=True))
        if inside:
            first()
            yield
            return
        with connection.cursor() as cursor:
            cursor.execute(END_IF_SILENT, {"milliseconds": str(round(seconds * 1000) + MARGIN)})
        deadline = ServerDeadline(connection.connection)
        try:
            with connection.execute_wrapper(deadline):
                with timekeeper.alarm(seconds, deadline.act, lambda: None):
                    first()
                deadline.check()
                with timekeeper.alarm(seconds, deadline.act, lambda: None):
                    yield
        finally:
            deadline.check()
