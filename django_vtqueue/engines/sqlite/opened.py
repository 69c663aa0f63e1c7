"""What a connection has opened, a database file and its log (WAL), and whether both are still in their places.

A log that was deleted, or exchanged, while its database stayed is seen by those that have it open, and by no one else.
Whoever writes on mixes the two in the database file, and destroys it. So nothing of ours goes on with such a file.
"""

import sqlite3
import time
from contextlib import suppress

from django.db.backends.base.base import BaseDatabaseWrapper

from ...core.clock import monotonic
from ...exceptions import LogDeleted, TaskTimeout
from ..routing import options_of_database
from ..trouble import when_log_is_deleted
from .condemning import in_place
from .file import SETTLED, FileExchanged, Inode, log_of, look, path_of
from .guard import Guard, guard_of, standing_guard

OPENED = "_vtqueue_opened"  # the name of an attribute of Django's connections
LOOK_AGAIN = 0.01  # seconds


class Opened:
    """What one connection of sqlite3 has opened; ``log``: None as long as there was none. ``path``: "" for memory."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.raw = connection.connection
        self.alias = connection.alias
        memory = connection.is_in_memory_db()  # type: ignore[attr-defined]
        self.path = "" if memory else path_of(str(connection.settings_dict["NAME"]))
        self.inode = look(self.path).inode if self.path else None
        self.log_path = log_of(self.path) if self.path else ""
        self.log: Inode | None = None
        self.guard: Guard | None = None

    def has_same_log(self) -> bool:
        """Return whether its log, with the index of that, is in its place, or there was none."""
        if self.log is None and self.inode and self.raw is not None and look(self.log_path).inode:
            # SQLite comes before the guard: it makes the index of a log again if nobody has that locked, after a crash.
            with suppress(sqlite3.Error):  # the next statement is told so, too
                self.raw.execute("PRAGMA schema_version").fetchall()
            self.guard = guard_of(self.alias, self.path, self.inode)
            self.log = self.guard.log or look(self.log_path).inode
        if self.log is None:
            return True
        guard = self.guard
        return in_place(self.log_path, self.log) and (not guard or (guard.has_index() and not guard.log_deleted))

    def has_same_file(self) -> bool:
        """Return whether its database file is in its place."""
        return not self.path or look(self.path).inode == self.inode

    def judge(self) -> None:
        """Raise LogDeleted, or FileExchanged if within a moment another database, or none, is in the place of this one.

        Who exchanges a database deletes the log of the old one just before.
        """
        assert self.guard  # there was a log
        settled = monotonic() + (0.0 if self.guard.log_deleted else SETTLED)
        while self.has_same_file():
            if self.log == self.guard.log:
                self.guard.condemn()
            if monotonic() >= settled:
                self.guard.log_deleted = True
                error = LogDeleted(self.path)
                for act in when_log_is_deleted:
                    act(error)
                raise error
            time.sleep(LOOK_AGAIN)
        raise FileExchanged(self.path)


def opened_by(connection: BaseDatabaseWrapper) -> Opened:
    """Return what a connection that is open has opened; it is noted when this is first called, and guarded."""
    opened: Opened | None = vars(connection).get(OPENED)
    if opened is None or opened.raw is not connection.connection:
        opened = vars(connection)[OPENED] = Opened(connection)
    return opened


def in_doubt(connection: BaseDatabaseWrapper) -> bool:
    """Return whether an open connection was not looked at yet, or its log was deleted."""
    opened: Opened | None = vars(connection).get(OPENED)
    if opened is None or opened.raw is not connection.connection:
        return True
    return opened.guard is not None and opened.guard.log_deleted


def check(connection: BaseDatabaseWrapper) -> None:
    """Raise LogDeleted, or FileExchanged, if the log of an open connection is not in its place."""
    opened = opened_by(connection)
    if not opened.has_same_log():
        opened.judge()


def check_unopened(connection: BaseDatabaseWrapper) -> None:
    """Raise LogDeleted, or FileExchanged, if a connection cannot be opened, and the log that was guarded is gone.

    SQLite says only "disk I/O error": the index in its place is that of the old log.
    """
    opened = Opened(connection)
    opened.guard = standing_guard(connection.alias)
    if opened.guard and (opened.path, opened.inode) == (opened.guard.path, opened.guard.inode):
        opened.log = opened.guard.log
        if not opened.has_same_log():
            opened.judge()


def outdated(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the file of an open connection was exchanged or deleted since the first call.

    False for a database that is no file. Raise LogDeleted if only the log was.
    """
    if connection.vendor != "sqlite":
        return False
    try:
        check(connection)
    except FileExchanged:
        return True
    return not opened_by(connection).has_same_file()


def guard_connection(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Guard the file of any new connection of Django to the database of a queue."""
    if connection.vendor != "sqlite":
        return
    try:
        if options_of_database(connection.alias):
            opened = opened_by(connection)
            if not opened.has_same_log() and opened.guard and opened.log == opened.guard.log and opened.has_same_file():
                opened.guard.condemn()
    except TaskTimeout:
        raise
    except Exception:  # settings that are wrong, apps that are not ready: then the first publish guards it
        return
