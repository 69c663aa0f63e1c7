"""What may be wrong with a database for a while."""

from enum import Enum


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
