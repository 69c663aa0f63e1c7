"""What may be wrong with a database for a while, and what is done when it is for good."""

from collections.abc import Callable
from enum import Enum

from ..exceptions import LogDeleted


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


# Called, by whichever thread finds it, when the log of a SQLite database was deleted under this process. A process that
# is the queue's own ends there; in any other one an error is raised (LogDeleted).
when_log_is_deleted: list[Callable[[LogDeleted], object]] = []
