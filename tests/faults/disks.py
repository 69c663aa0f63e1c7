"""Disks that can be full: a small file system of a test's own, or a limit on file sizes, which needs no privilege."""

import ctypes
import errno
import os
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

SMALL = 16 * 2**10  # bytes: less than SQLite needs to open a database, more than the log of a worker
CLONE_NEWNS = 0x20000

LIMITED = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({SMALL}, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class LimitedDisk:
    """The disk that there is: a worker's files cannot grow (RLIMIT_FSIZE)."""

    launcher = ("-c", LIMITED)  # what starts a worker that is to find the disk full

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, database: Path, pid: int | None = None) -> None:
        """Let no file of a process grow beyond the log (WAL) of a database; None: of one that ``launcher`` starts."""
        if pid is not None:
            limit = Path(f"{database}-wal").stat().st_size
            assert limit > SMALL
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def free(self, pid: int) -> None:
        """Let them grow again."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class SmallDisk:
    """A file system in memory, which only this process and what it starts can see."""

    launcher = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, database: Path | None = None, pid: int | None = None) -> None:
        """Leave no byte free for any process."""
        with suppress(OSError), (self.folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self, pid: int | None = None) -> None:
        """Leave some room."""
        (self.folder / "filler").unlink(missing_ok=True)

    def remount(self, option: str) -> None:
        """Make it ``ro`` or ``rw``."""
        subprocess.run(["mount", "-o", f"remount,{option}", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, mebibytes: int = 2) -> Iterator[SmallDisk]:
    """Mount a small disk on a folder, in a mount namespace of this thread's own, for the block.

    Skip where it is forbidden.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.getcwd()
    outside = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNS):
            assert ctypes.get_errno() == errno.EPERM
            pytest.skip("no file system may be mounted here: that needs CAP_SYS_ADMIN")
        try:
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(folder)]
            if subprocess.run(mount, check=False).returncode:
                pytest.skip("no file system may be mounted here")
            yield SmallDisk(folder)
        finally:
            assert libc.setns(outside, CLONE_NEWNS) == 0
            os.chdir(here)
    finally:
        os.close(outside)


@contextmanager
def reading(database: Path) -> Iterator[None]:
    """Keep a reader open, so that the log (WAL) can only grow: nothing in it may be written over."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM vtqueue_job").fetchone()
        yield
