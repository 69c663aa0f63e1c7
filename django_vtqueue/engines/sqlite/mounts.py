"""The file system under a database file: what several hosts may have mounted, and where they may share a file."""

import json
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...core import clock
from ...core.clock import SECOND

MOUNTS = Path("/proc/self/mountinfo")  # see proc_pid_mountinfo(5)
RESULT = "vtqueue-locktest.json"  # in the folder of the database: where `vtqueue locktest` has passed
MOST_SKEW = 10.0  # seconds by which the clock of a host may differ from that of the disk

SHARED = ("nfs", "nfs4", "lustre", "gfs2", "ocfs2", "ceph", "gpfs")  # where OPTIONS["shared_disk"] is allowed
# Where it is not: networks, clusters of which nothing is known, folders of a virtual machine's host, or Windows.
UNFIT = (
    *("cifs", "smb3", "smbfs", "fuse", "fuseblk", "afs", "coda"),
    *("beegfs", "wekafs", "panfs", "pvfs2", "orangefs", "acfs"),
    *("9p", "virtiofs", "vboxsf", "prl_fs", "vmhgfs", "hgfs", "drvfs"),
)
LOCAL = ("fuse.fuse-overlayfs",)  # the root of a container that runs without root
# Options of mounts: locks stay within one host.
LOCAL_LOCKS = {
    "nolock",
    "local_lock=all",
    "local_lock=posix",
    "nobrl",
    "noflock",
    "localflock",
    "localflocks",
    "lockproto=lock_nolock",
}
# An NFS mount needs one of these. Without it a host may not see, for a minute, the journal of another host that was
# killed in a transaction, and would use pages that are half written.
FRESH_NAMES = {"lookupcache=none", "lookupcache=pos", "noac"}


class Mount(NamedTuple):
    """A mounted file system: its kind, what is mounted, where, and the options."""

    kind: str
    source: str
    point: str
    options: frozenset[str]

    def __str__(self) -> str:
        return f"{self.kind} ({self.source}, mounted at {self.point})"

    @property
    def networked(self) -> bool:
        """Whether another kernel may use its files, or answers for them."""
        return self.kind in SHARED or (self.kind.partition(".")[0] in UNFIT and self.kind not in LOCAL)


def mount_of(path: str, mounts: bytes | None = None) -> Mount | None:
    """Return the mount under a path, which need not exist; None where the system does not tell (no Linux).

    ``mounts``: what stands in /proc/self/mountinfo.
    """
    if mounts is None:
        try:
            mounts = MOUNTS.read_bytes()
        except OSError:
            return None
    real, found = os.path.realpath(path), None
    for line in os.fsdecode(mounts).splitlines():
        before, _, behind = line.partition(" - ")
        _, _, _, _, point, options, *_ = before.split(" ")
        kind, source, more = behind.split(" ", 2)
        point, source = unescaped(point), unescaped(source)
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and (found is None or len(point) >= len(found.point)):  # of two at one place the last one is seen
            found = Mount(kind, source, point, frozenset(f"{options},{more}".split(",")))
    return found


def unescaped(text: str) -> str:
    """Return a name as it is: the kernel has written spaces, # and some more as octal numbers."""
    return re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), text)


def wrong_mount(mount: Mount | None, *, shared: bool) -> str:
    """Return what is wrong with a mount for a SQLite file, as the end of a sentence; "" if nothing is known to be.

    ``shared``: several hosts write to the file, in the way that OPTIONS["shared_disk"] has them write.
    """
    if mount is None or not mount.networked:
        return ""
    if not shared:
        return (
            f"its file is on {mount}. The file must be on a local disk: WAL needs memory that all its processes share, "
            "and those of another host do not, so the file may be destroyed"
        )
    if mount.kind not in SHARED:
        return f"its file is on {mount}; OPTIONS['shared_disk'] is for {', '.join(SHARED)}, and for no other network"
    if lying := sorted(mount.options & LOCAL_LOCKS):
        return f"its file is on {mount}, mounted with {', '.join(lying)}: no lock is seen by another host"
    if mount.kind.startswith("nfs") and not mount.options & FRESH_NAMES:
        return f"its file is on {mount}, mounted without lookupcache=none: journals of other hosts are seen too late"
    return ""


def place_of(folder: str) -> str:
    """Return what tells a folder on a mount from its copy elsewhere, the same on each host that mounts it alike."""
    mount = mount_of(folder)
    of = f"{mount.kind} {mount.source}" if mount else "unknown"
    return f"{of} {os.stat(folder).st_ino}"


def store_result(folder: str, hosts: list[str], places: list[str]) -> None:
    """Note in a folder that the test has passed there, between these hosts, which see it at these places."""
    result = {"passed_at": clock.from_instant(clock.now()).isoformat(), "hosts": hosts, "places": places}
    path = Path(folder, RESULT)
    path.with_suffix(".new").write_text(json.dumps(result, indent=2) + "\n")
    path.with_suffix(".new").replace(path)


def has_passed(folder: str) -> bool:
    """Return whether the test has passed in a folder, mounted as it is here."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return place_of(folder) in json.loads(Path(folder, RESULT).read_text())["places"]
    return False


def clock_offset(folder: str) -> float:
    """Return by how many seconds the clock of this host is ahead of the one that stamps new files in a folder."""
    began = clock.now() / SECOND
    with tempfile.TemporaryFile(dir=folder) as file:
        stamp = os.fstat(file.fileno()).st_mtime
    return max(began - stamp, 0.0) or min(clock.now() / SECOND - stamp, 0.0)
