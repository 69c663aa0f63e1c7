"""Having SQLite refuse the index of a log (WAL) that was deleted, to all that have it open, whichever processes end.

What they would copy into the database would be mixed with what others write by now. As a program, which imports nothing
of the package, it waits for those that write: ``python condemning.py DESCRIPTOR INDEX DEVICE INODE LOG DEVICE INODE``.
"""

import fcntl
import os
import struct
import sys
from contextlib import suppress
from errno import ENOENT, ENOTDIR

# Where SQLite puts a lock in the index, as (first byte, length); a part of its file format, in its os_unix.c.
WRITING = 120, 2  # who commits, and who copies the log into the database

# The header of the index, which it begins with twice, as words of this machine: its version, then what that version has
# in it, and two words of checksum (https://sqlite.org/walformat.html). To an index of another version SQLite says
# "unable to open database file", before it reads, writes or copies anything.
HEADER = struct.Struct("=12I")
OTHER_VERSION = 1  # instead of 3007000
BEGUN = 12  # where that header has a byte that says so

OFD_SETLK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
OFD_SETLKW: int | None = getattr(fcntl, "F_OFD_SETLKW", None)

Place = tuple[str, tuple[int, int]]  # of a file: its path, and the device and inode that it had there


def lock(descriptor: int, command: int, kind: int, place: tuple[int, int]) -> None:
    """Change a lock; raise BlockingIOError if another is in the way (SETLKW waits), OSError if there are none such."""
    fcntl.fcntl(descriptor, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, *place, 0))


def in_place(path: str, inode: tuple[int, int]) -> bool:
    """Return whether a file is where it was, as far as the system says."""
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno is None:  # TaskTimeout, which is raised in a thread at any call
            raise
        return error.errno not in (ENOENT, ENOTDIR)
    return (status.st_dev, status.st_ino) == inode


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


def condemn(descriptor: int, index: Place, log: Place, command: int) -> None:
    """While no process can commit: who reads the index next is refused; who opens the database makes another one.

    Nothing is done if both files were put back meanwhile. Raise BlockingIOError as ``lock`` does.
    """
    lock(descriptor, command, fcntl.F_WRLCK, WRITING)
    has_index = in_place(*index)
    if not has_index or not in_place(*log):
        os.pwrite(descriptor, refused(os.pread(descriptor, HEADER.size, 0)) * 2, 0)
        if has_index:
            os.unlink(index[0])
    lock(descriptor, command, fcntl.F_UNLCK, WRITING)


def leave_to_a_process(descriptor: int, index: Place, log: Place) -> None:
    """Have a new process wait for commits, perhaps of this one: a thread ends with that, and may be a greenlet.

    Raise OSError if it cannot be started.
    """
    python = sys.executable
    if not os.path.basename(python).startswith("python"):  # a server that has an interpreter in it
        python = os.path.join(sys.exec_prefix, "bin", "python3")
    words = [str(word) for path, inode in (index, log) for word in (path, *inode)]
    started = os.posix_spawn(
        python,
        [python, "-I", __file__, str(descriptor), *words],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, descriptor, descriptor)],  # which makes it one that is inherited
        setsid=True,
    )
    with suppress(ChildProcessError):
        os.waitpid(started, 0)  # it goes on in a process that is no child of this one


if __name__ == "__main__":
    given = int(sys.argv[1])
    os.closerange(0, given)  # sockets and pipes of that process
    os.closerange(given + 1, os.sysconf("SC_OPEN_MAX"))
    if os.fork() == 0 and OFD_SETLKW is not None:
        places = [(path, (int(device), int(inode))) for path, device, inode in (sys.argv[2:5], sys.argv[5:8])]
        condemn(given, places[0], places[1], OFD_SETLKW)
    os._exit(0)
