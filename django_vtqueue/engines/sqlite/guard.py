"""The guard of a database file in WAL mode: while a process has one, no process deletes the log beside that file.

SQLite deletes the log (``-wal``) when the last connection is closed. It knows other processes by their POSIX locks. A
process loses those of a file when any of its code closes any descriptor of that file, after a copy or a download.
The locks of Linux that belong to an open file description (OFD) are not lost so. A guard holds two of them, where
SQLite itself has locks for reading: all that others notice of it is one more connection.
"""

import atexit
import fcntl
import os
import signal
import sqlite3
import struct
import threading
import warnings
from contextlib import closing, suppress
from urllib.parse import quote

from .file import Inode, in_place, log_of

# Where SQLite puts its locks, as (first byte, length); a part of its file format, in its os_unix.c.
SHARED = 0x40000002, 510  # of the database: each connection reads it; who can write it alone deletes the log
INDEX_USED = 128, 1  # of the index of the log (-shm): each process reads it; who finds it free begins a new index
WRITING = 120, 2  # of the index: who commits, and who copies the log into the database

# The header of the index, which it begins with twice, as words of this machine: its version, then what that version has
# in it, and two words of checksum (https://sqlite.org/walformat.html). To an index of another version SQLite says
# "unable to open database file", before it reads, writes or copies anything.
HEADER = struct.Struct("=12I")
OTHER_VERSION = 1  # instead of 3007000
BEGUN = 12  # where that header has a byte that says so

OFD_SETLK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
OFD_SETLKW: int | None = getattr(fcntl, "F_OFD_SETLKW", None)


def _lock(descriptor: int, command: int, kind: int, place: tuple[int, int]) -> None:
    """Change a lock; raise BlockingIOError if another is in the way (SETLKW waits), OSError if there are none such."""
    fcntl.fcntl(descriptor, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, *place, 0))


def refused(header: bytes) -> bytes:
    """Return the header of an index as one of a version that SQLite refuses."""
    begun = bytearray(header.ljust(HEADER.size, b"\0"))
    begun[BEGUN] = 1
    words = list(HEADER.unpack(begun))
    words[0], first, second = OTHER_VERSION, 0, 0
    for one, two in zip(words[:10:2], words[1:10:2], strict=True):
        first = (first + one + second) % 2**32
        second = (second + two + first) % 2**32
    return HEADER.pack(*words[:10], first, second)


class Guard:
    """That of one file, in this process; ``log``: the one that no process can delete, None while the guard has no lock.

    Its descriptors stay open as long as the file is in its place: to close them would drop SQLite's own locks.
    """

    def __init__(self, path: str, inode: Inode) -> None:
        self.path, self.inode = path, inode
        self.log: Inode | None = None
        self.index: Inode | None = None
        self.over = False  # its log was deleted; see opened.judge
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
                _lock(self._opened(path), OFD_SETLK, fcntl.F_RDLCK, place)
            if self._inode(os.path.realpath(self.path)) != self.inode:  # it was exchanged just now
                return
            self.index, self.log = self._inode(self._index), self._inode(log_of(self.path))

    def _inode(self, path: str) -> Inode:
        """Return that of a file, which no other file has as long as this one is open here."""
        status = os.fstat(self._opened(path))
        return status.st_dev, status.st_ino

    def _opened(self, path: str) -> int:
        if path not in self._descriptors:
            access = os.O_RDWR if path == self._index and os.access(path, os.W_OK) else os.O_RDONLY
            self._descriptors[path] = os.open(path, access | os.O_CLOEXEC)
        return self._descriptors[path]

    def has_index(self) -> bool:
        """Return whether the index of the log is in its place, as far as that is known.

        The next process that opens the database makes another one, and writes to the same log without our locks.
        """
        return self.index is None or in_place(self._index, self.index)

    def condemn(self) -> None:
        """Have SQLite refuse the index of a log that was deleted, to all that have it open, whichever processes end.

        What they would copy into the database would be mixed with what others write by now. Commits that are under way,
        perhaps that of the caller, come first: a process of its own waits for them.
        """
        if OFD_SETLK is None or OFD_SETLKW is None or not self.log:
            return
        with _changing, suppress(OSError, RuntimeError):  # the system gives no process
            if self._condemning:
                return
            self._condemning = True
            try:
                self._condemn(OFD_SETLK)
            except BlockingIOError:
                self._leave_to_a_process(OFD_SETLKW)

    def _condemn(self, command: int) -> None:
        """While nobody can commit: who reads the index next is refused; who opens the database makes another one."""
        assert self.log
        index = self._descriptors[self._index]
        _lock(index, command, fcntl.F_WRLCK, WRITING)
        has_index = self.has_index()
        if not has_index or not in_place(log_of(self.path), self.log):  # else both were put back meanwhile
            os.pwrite(index, refused(os.pread(index, HEADER.size, 0)) * 2, 0)
            if has_index:
                os.unlink(self._index)
        _lock(index, command, fcntl.F_UNLCK, WRITING)

    def _leave_to_a_process(self, command: int) -> None:
        """Let a process wait that nobody waits for: a thread ends with this one, and may be a greenlet."""
        descriptors, self._descriptors = self._descriptors, {}  # which a forked process closes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads that it does not have: it needs none
            parent = os.fork()
        self._descriptors = descriptors
        if parent:
            with suppress(ChildProcessError):
                os.waitpid(parent, 0)
            return
        try:
            self._descriptors = {}
            if os.fork() == 0:
                self._descriptors = descriptors
                for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
                    signal.signal(number, signal.SIG_DFL)
                os.setsid()
                index = descriptors[self._index]
                os.closerange(0, index)  # sockets and pipes of that process
                os.closerange(index + 1, os.sysconf("SC_OPEN_MAX"))
                self._condemn(command)
        finally:
            os._exit(0)

    def release(self) -> None:
        """Give the locks up, so that the last process to end copies the log into the database, and deletes it.

        If one of the two files was deleted already, the locks stay until the process is gone: then no connection of it
        copies anything.
        """
        if OFD_SETLK is None or not self.log:
            return
        if not in_place(log_of(self.path), self.log) or not self.has_index():
            if in_place(self.path, self.inode):
                self.condemn()
            return
        with suppress(OSError, sqlite3.Error):
            for path, place in self._places.items():
                _lock(self._descriptors[path], fcntl.F_SETLK, fcntl.F_RDLCK, place)  # SQLite's own, if it was lost
                _lock(self._descriptors[path], OFD_SETLK, fcntl.F_UNLCK, place)
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
