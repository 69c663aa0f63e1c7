"""The guard of a database file in WAL mode: while a process has one, no process deletes the log beside that file.

SQLite deletes the log (``-wal``) when the last connection is closed. It knows other processes by their POSIX locks. A
process loses those of a file when any of its code closes any descriptor of that file, after a copy or a download.
The locks of Linux that belong to an open file description (OFD) are not lost so. A guard holds two of them, where
SQLite itself has locks for reading: all that others notice of it is one more connection.
"""

import atexit
import fcntl
import os
import sqlite3
import threading
from contextlib import closing, suppress
from urllib.parse import quote

from .condemning import OFD_SETLK, condemn, in_place, leave_to_a_process, lock
from .file import Inode, log_of

# Where SQLite puts its locks, as (first byte, length); a part of its file format, in its os_unix.c.
SHARED = 0x40000002, 510  # of the database: each connection reads it; who can write it alone deletes the log
INDEX_USED = 128, 1  # of the index of the log (-shm): each process reads it; who finds it free begins a new index


class Guard:
    """That of one file, in this process; ``log``: the one that no process can delete, None while the guard has no lock.

    Its descriptors stay open as long as the file is in its place: to close them would drop SQLite's own locks.
    """

    def __init__(self, path: str, inode: Inode) -> None:
        self.path, self.inode = path, inode
        self.log: Inode | None = None
        self.index: Inode | None = None
        self.log_deleted = False  # it was said once (opened.judge)
        real = os.path.realpath(path)
        self._index = f"{real}-shm"
        self._places = {real: SHARED, self._index: INDEX_USED}
        self._descriptors: dict[str, int] = {}
        self._condemning = self._released = False

    def stand(self) -> None:
        """Take the locks, as far as the system has them, and has a descriptor left."""
        if OFD_SETLK is None or self.log or self._released:
            return
        with suppress(OSError):
            for path, place in self._places.items():
                lock(self._opened(path), OFD_SETLK, fcntl.F_RDLCK, place)
            if self._inode(os.path.realpath(self.path)) != self.inode:  # it was exchanged just now
                return
            self.index, self.log = self._inode(self._index), self._inode(log_of(self.path))

    def _inode(self, path: str) -> Inode:
        """Return that of a file, which no other file has as long as this one is open here."""
        status = os.fstat(self._opened(path))
        return status.st_dev, status.st_ino

    def _opened(self, path: str) -> int:
        if path not in self._descriptors:
            self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._descriptors[path]

    def has_index(self) -> bool:
        """Return whether the index of the log is in its place, as far as that is known.

        The next process that opens the database makes another one, and writes to the same log without our locks.
        """
        return self.index is None or in_place(self._index, self.index)

    def condemn(self) -> None:
        """Have SQLite refuse the index of a log that was deleted, once; commits that are under way come first."""
        if OFD_SETLK is None or self._index not in self._descriptors or not self.log or not self.index:
            return
        with _changing, suppress(OSError):  # the system gives no descriptor, or no process
            if self._condemning:
                return
            self._condemning = True
            # By this way: it may have no name any more. With a file open to be written no disk can be made read-only.
            name = f"/proc/self/fd/{self._descriptors[self._index]}"
            self._descriptors[name] = os.open(name, os.O_RDWR | os.O_CLOEXEC)
            given = self._descriptors[name], (self._index, self.index), (log_of(self.path), self.log)
            try:
                condemn(*given, OFD_SETLK)
            except BlockingIOError:
                leave_to_a_process(*given)

    def release(self) -> None:
        """Give the locks up, so that the last process to end copies the log into the database, and deletes it.

        If one of the two files was deleted already, the index is condemned, and the locks stay until the process is
        gone: then no connection copies anything.
        """
        if OFD_SETLK is None or not self.log:
            return
        if not in_place(log_of(self.path), self.log) or not self.has_index():
            if in_place(self.path, self.inode):
                self.condemn()
            return
        with suppress(OSError, sqlite3.Error):
            for path, place in self._places.items():
                lock(self._descriptors[path], fcntl.F_SETLK, fcntl.F_RDLCK, place)  # SQLite's own, if it was lost
                lock(self._descriptors[path], OFD_SETLK, fcntl.F_UNLCK, place)
            uri = f"file:{quote(self.path)}?mode=rw"
            with closing(sqlite3.connect(uri, timeout=0, uri=True)) as last:  # perhaps no other one is open here
                last.execute("PRAGMA schema_version").fetchall()
        self.log = self.index = None
        self._released = True

    def close(self) -> None:
        """Close what belongs to a file that is not in its place any more, or to the parent of a forked process."""
        for descriptor in self._descriptors.values():
            with suppress(OSError):
                os.close(descriptor)
        self._descriptors = {}


_guards: dict[str, Guard] = {}  # by database alias
_changing = threading.RLock()  # a handler of a signal may open a connection amid this


def guard_of(alias: str, path: str, inode: Inode) -> Guard:
    """Return the guard of the file that an alias has now; it stands, if it can."""
    with _changing:
        guard = _guards.get(alias)
        if not guard or (guard.path, guard.inode) != (path, inode):
            if guard:
                guard.close()
            guard = _guards[alias] = Guard(path, inode)
        guard.stand()
        return guard


def standing_guard(alias: str) -> Guard | None:
    """Return the guard of the file that an alias has had last, if it stands."""
    guard = _guards.get(alias)
    return guard if guard and guard.log else None


@atexit.register
def _release_all() -> None:
    with _changing:
        for guard in _guards.values():
            guard.release()


def _forget() -> None:
    """Have a forked process begin without guards: a lock that it shares with its parent would be released by either."""
    global _changing
    _changing = threading.RLock()
    for guard in _guards.values():
        guard.close()
    _guards.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
