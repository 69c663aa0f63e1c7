"""The log (WAL) beside a database file: a worker copies it into the database before it is so long that commits wait."""

import sqlite3
import threading
from contextlib import closing, suppress

LONG = 8_000_000  # bytes: others' own checkpoints (at 4 MB, part of a commit) come first
LONG_EARLY = 3_000_000  # bytes: before any commit has to make one
SLOW = 64_000_000  # bytes: to copy them takes longer than leases may wait for their renewal


def shorten(raw: sqlite3.Connection, size: int) -> int | None:
    """Copy a log of so many bytes into the database, so that it begins anew; see Engine.tidy.

    The log begins anew only after a checkpoint that has copied all of it. SQLite makes its own checkpoints as part of a
    COMMIT. As long as other connections append to the log, none of them copies all, and each COMMIT makes another one.
    Here the first checkpoint copies nearly all while others write. The second copies the rest while they wait; it
    copies nothing if a writer is at work.
    """
    [(_, length, copied)] = raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    [(busy, _, _)] = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return None if not busy else size if 0 <= copied < length / 2 else 0


class Shortening:
    """Copies a large log in a thread with a connection of its own: that takes long, and no lease may wait for it."""

    def __init__(self, path: str) -> None:
        self.path = path  # of the database
        self._kept = 0  # bytes that another connection has kept from being copied the last time
        self._thread: threading.Thread | None = None

    def begin(self, size: int) -> int:
        """Begin, unless it is under way; return the bytes that were kept from being copied the last time."""

        def copy() -> None:
            with suppress(Exception), closing(sqlite3.connect(self.path, timeout=0)) as connection:
                self._kept = shorten(connection, size) or 0

        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=copy, name="checkpoint", daemon=True)
            self._thread.start()
        return self._kept
