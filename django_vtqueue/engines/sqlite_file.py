"""The file of a database, told from another one that has been put in its place.

It is looked at by ``stat`` only: opening and closing it would drop the locks that SQLite holds in this process.
"""

import os
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError


class FileMissing(OperationalError):
    """There is no file at the path of a database."""


class File:
    """What lies at a database's path, and the log (WAL) beside it, as they were at the last look.

    Both count: commits into a log that was taken away are seen by nobody else.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.path = path_of(str(connection.settings_dict["NAME"]))
        self._file = inode(self.path)
        self.forget_log()

    def forget_log(self) -> None:
        """Take the log as it will be at the next look: the last connection that is closed removes it."""
        self._log: tuple[int, int] | None = None

    def check(self) -> None:
        """Raise FileMissing if there is no file."""
        if inode(self.path) is None:
            raise FileMissing(f"there is no file {self.path}")

    def replaced(self) -> bool:
        """Look, and return whether there is another file than at the last look; raise FileMissing if there is none."""
        self.check()
        file, log = inode(self.path), inode(os.path.realpath(self.path) + "-wal")
        replaced = file != self._file or self._log not in (None, log)
        self._file, self._log = file, None if replaced else log
        return replaced


_files: "WeakKeyDictionary[BaseDatabaseWrapper, File]" = WeakKeyDictionary()


def outdated(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a connection that is kept open leads to a file that was replaced or deleted since the last call.

    False for what is no file.
    """
    if connection.vendor != "sqlite" or connection.is_in_memory_db():  # type: ignore[attr-defined]
        return False
    if connection not in _files:
        _files[connection] = File(connection)
    try:
        return _files[connection].replaced()
    except FileMissing:
        return True


def path_of(name: str) -> str:
    """Return the absolute path behind the NAME of a database, which may be a URI."""
    return os.path.abspath(unquote(urlsplit(name).path) if name.startswith("file:") else name)


def inode(path: str) -> tuple[int, int] | None:
    """Return what tells a file from every other one that exists; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
