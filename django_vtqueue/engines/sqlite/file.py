"""The file of a database: whether it is still the one that was opened, or another one is in its place.

It is only looked at by ``stat``: to open and close it would drop the locks that SQLite holds in this process.
"""

import os
import time
from math import inf
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError

SETTLED = 1.0  # seconds without a change: a new file may be half copied, and the old one's log still lie beside it

Inode = tuple[int, int]


class Look(NamedTuple):
    """What ``stat`` says of a file."""

    inode: Inode | None = None  # no other file that exists has the same; None if there is no file
    size: int = 0


class FileExchanged(OperationalError):
    """The file of a database is gone, or another one has been put in its place.

    ``passes_in``: the seconds until that one may be opened; infinity if that is not known.
    """

    def __init__(self, path: str, passes_in: float = inf) -> None:
        super().__init__(f"its file was exchanged or deleted, or is out of reach: {path}")
        self.passes_in = passes_in


class File:
    """What lies at a database's path."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.path = path_of(str(connection.settings_dict["NAME"]))
        self.exchanged = False  # since the engine has last asked, and set it back
        self._opened = look(self.path).inode
        self._log_path = log_of(self.path)
        self._seen: tuple[Inode | None, int] | None = None
        self._settled_at = 0.0  # monotonic

    def check(self) -> None:
        """Raise FileExchanged if the file that was opened is no longer there."""
        if look(self.path).inode != self._opened:
            self._opened = self._seen = None
            raise FileExchanged(self.path)

    def log_size(self) -> int:
        """Return the bytes of the log; 0 if there is none."""
        return look(self._log_path).size

    def open(self) -> None:
        """Note which file is about to be opened; raise FileExchanged until a file that is new there has settled."""
        inode, size = look(self.path)
        if inode and inode == self._opened:
            return
        if (inode, size) != self._seen:
            self._seen, self._settled_at = (inode, size), time.monotonic() + SETTLED
        if not inode:
            raise FileExchanged(self.path)
        if (left := self._settled_at - time.monotonic()) > 0:
            raise FileExchanged(self.path, left)
        self._opened, self.exchanged = inode, True
        self._log_path = log_of(self.path)


def never_created(params: dict[str, Any]) -> dict[str, Any]:
    """Return what a connection is opened with, so that SQLite creates no file where one was deleted just now.

    A file system may give that one the inode of the file that is gone: then they could not be told apart.
    """
    name = str(params["database"])
    if ":memory:" in name or "mode=" in name:
        return params
    if not name.startswith("file:"):
        name = f"file:{quote(os.path.abspath(name))}"
    return {**params, "database": f"{name}{'&' if '?' in name else '?'}mode=rw"}


def path_of(name: str) -> str:
    """Return the absolute path behind the NAME of a database, which may be a URI."""
    return os.path.abspath(unquote(urlsplit(name).path) if name.startswith("file:") else name)


def log_of(path: str) -> str:
    """Return where SQLite keeps the log of a database: beside the file itself, whatever links lead there."""
    return os.path.realpath(path) + "-wal"


def look(path: str) -> Look:
    """Return what a file looks like now."""
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno is None:  # TaskTimeout, which is raised in a thread at any call
            raise
        return Look()
    return Look((status.st_dev, status.st_ino), status.st_size)
