"""What may be wrong with a database for a while, and what is done when it is for good."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from django.db import OperationalError

from ..exceptions import VTQueueError


class Trouble(Enum):
    """What may be wrong with a database, or here, without a fault of the code: a worker waits, and tries again."""

    BUSY = "the database is locked by another connection"
    DISK = "the database cannot be written"
    UNOPENED = "the database cannot be opened"
    SCHEMA = "the queue's tables are missing or of another version"
    DAMAGED = "the database is damaged"
    GONE = "the database cannot be reached"
    MEMORY = "this process gets no more memory"
    RIGHTS = "its user lacks SELECT, INSERT, UPDATE or DELETE on a table"

    def said(self, error: BaseException) -> str:
        """Return it in words, in one line, with what the database says of it."""
        text = " ".join(str(error).split())
        return f"{self.value} ({text})" if text and self is not Trouble.BUSY else self.value


class LogDeleted(VTQueueError, OperationalError):
    """The log (WAL) of a SQLite database was deleted while processes used it; each of them has to be started anew."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the log of the database was deleted or exchanged while this process used it: {path}-wal, or its index "
            "(-shm). What was only in that log is lost, and to go on would destroy the database. Start all processes "
            "anew that use it: the site, workers, shells. What may be done to the files of a database in use: "
            "docs/backups.md"
        )
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)


# Called, by whichever thread finds it, when the log of a SQLite database was deleted under this process. A process that
# is the queue's own ends there; in any other one an error is raised (LogDeleted).
when_log_is_deleted: list[Callable[[LogDeleted], object]] = []
