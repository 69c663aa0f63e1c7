"""Which file systems are recognised under a database file, and where several hosts may share one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from django_vtqueue.engines.sqlite import mounts
from django_vtqueue.engines.sqlite.mounts import clock_offset, has_passed, mount_of, place_of, store_result, wrong_mount

MOUNTINFO = rb"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 27 0:30 / /srv rw,noatime - nfs4 files:/export rw,vers=4.2,hard,local_lock=none,lookupcache=none,addr=10.0.0.1
31 30 0:31 / /srv/old rw - nfs files:/old rw,vers=3,nolock,local_lock=all,lookupcache=pos
32 30 0:32 / /srv/cached rw - nfs4 files:/export rw,vers=4.2,hard,local_lock=none
33 30 254:1 / /srv/disk rw - xfs /dev/vdb rw
34 27 0:34 / /mnt/with\040space rw - cifs //files/share rw,vers=3.1.1,nobrl
35 27 0:35 / /mnt/plan9 rw - 9p host0 rw,trans=virtio
36 27 0:36 / /mnt/virtio rw - virtiofs share rw
37 27 0:37 / /mnt/ssh rw,nosuid - fuse.sshfs me@files: rw,user_id=0
38 27 0:38 / /mnt/lustre rw - lustre 10.0.0.2@tcp:/farm rw,localflock
39 27 0:39 / /mnt/ceph rw - ceph mon:/ rw
40 27 0:40 / /mnt/over rw - overlay overlay rw,lowerdir=/a
41 27 254:2 / /mnt/twice rw - ext4 /dev/vdc rw
42 27 0:42 / /mnt/twice rw - nfs4 files:/twice rw
""".lstrip()


@pytest.mark.parametrize(
    ("path", "kind", "alone", "shared"),
    [
        ("/home/db.sqlite3", "ext4", "", ""),
        ("/srv/db.sqlite3", "nfs4", "WAL needs memory", ""),
        ("/srv/old/db.sqlite3", "nfs", "WAL needs memory", "mounted with local_lock=all, nolock"),
        ("/srv/cached/db.sqlite3", "nfs4", "WAL needs memory", "mounted without lookupcache=none"),
        ("/srv/disk/db.sqlite3", "xfs", "", ""),
        ("/srv/diskette", "nfs4", "WAL needs memory", ""),
        ("/mnt/with space/db.sqlite3", "cifs", "WAL needs memory", "for no other network"),
        ("/mnt/plan9/db.sqlite3", "9p", "WAL needs memory", "for no other network"),
        ("/mnt/virtio/db.sqlite3", "virtiofs", "WAL needs memory", "for no other network"),
        ("/mnt/ssh/db.sqlite3", "fuse.sshfs", "WAL needs memory", "for no other network"),
        ("/mnt/lustre/db.sqlite3", "lustre", "WAL needs memory", "mounted with localflock"),
        ("/mnt/ceph/db.sqlite3", "ceph", "WAL needs memory", ""),
        ("/mnt/over/db.sqlite3", "overlay", "", ""),
        ("/mnt/twice/db.sqlite3", "nfs4", "WAL needs memory", "lookupcache=none"),
    ],
)
def test_file_systems_by_what_the_kernel_says(path: str, kind: str, alone: str, shared: str) -> None:
    """The mount is that of the longest path above the file, the last of two; each kind has the text that it needs."""
    mount = mount_of(path, MOUNTINFO)
    assert mount
    assert mount.kind == kind
    for text, expected in [(wrong_mount(mount, shared=False), alone), (wrong_mount(mount, shared=True), shared)]:
        assert expected in text
        assert bool(text) == bool(expected)
        assert not text or str(mount) in text


@pytest.mark.parametrize(
    "kind",
    ["beegfs", "wekafs", "panfs", "orangefs", "pvfs2", "coda", "acfs", "vmhgfs", "hgfs", "fuse.vmhgfs-fuse", "drvfs"],
)
def test_clusters_and_shares_of_hosts(kind: str) -> None:
    """Other file systems of several machines are no local disk, and not allowed with shared_disk."""
    mount = mount_of("/mnt/db.sqlite3", f"27 1 0:9 / /mnt rw - {kind} share rw\n".encode())
    assert "WAL needs memory" in wrong_mount(mount, shared=False)
    assert "for no other network" in wrong_mount(mount, shared=True)


def test_the_root_of_a_container() -> None:
    """Containers that run without root may have theirs on FUSE, on a local disk all the same."""
    mount = mount_of("/app/db.sqlite3", b"27 1 0:9 / / rw - fuse.fuse-overlayfs fuse-overlayfs rw\n")
    assert mount
    assert wrong_mount(mount, shared=False) == ""


def test_a_system_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no mountinfo nothing is known, and nothing is wrong."""
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "none")
    assert mount_of(str(tmp_path)) is None
    assert wrong_mount(None, shared=False) == ""
    assert wrong_mount(None, shared=True) == ""


def test_the_mount_of_a_link_is_that_of_its_target(tmp_path: Path) -> None:
    """A database that is reached over a symbolic link is where the link leads."""
    (tmp_path / "link").symlink_to("/srv")
    mount = mount_of(str(tmp_path / "link" / "db.sqlite3"), MOUNTINFO)
    assert mount
    assert mount.point == "/srv"


# A FUSE file system whose server has ended: the kernel lists it, and whoever looks into it gets an error.
FUSE = """
import os, sys
from django_vtqueue.engines.sqlite.mounts import mount_of, wrong_mount
folder = sys.argv[1]
fuse = os.open("/dev/fuse", os.O_RDWR)
libc = __import__("ctypes").CDLL(None, use_errno=True)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"sshfs#files", folder.encode(), b"fuse", 0, options):
    raise OSError(__import__("ctypes").get_errno(), "mount")
os.close(fuse)
print(wrong_mount(mount_of(folder + "/db.sqlite3"), shared=False))
"""


@pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK) or os.getuid() != 0, reason="no FUSE may be mounted here")
def test_a_file_system_that_the_kernel_has_mounted(tmp_path: Path) -> None:
    """A real FUSE mount is recognised, although its server is gone."""
    command = ["unshare", "--mount", sys.executable, "-c", FUSE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"its file is on fuse (sshfs#files, mounted at {tmp_path})" in done.stdout, done.stderr


def test_a_result_holds_where_it_was_stored(tmp_path: Path) -> None:
    """The result of the test counts in its folder; not in a copy, and not if it is damaged or of another mount."""
    folder = tmp_path / "folder"
    folder.mkdir()
    assert not has_passed(str(folder))
    store_result(str(folder), ["a", "b"], [place_of(str(folder)), "nfs4 files:/export 5"])
    assert has_passed(str(folder))
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "vtqueue-locktest.json").write_bytes((folder / "vtqueue-locktest.json").read_bytes())
    assert not has_passed(str(copy))
    for text in ["", "[]", "{}", '{"places": 1}', '{"places": ["nfs4 files:/export 5"]}']:
        (folder / "vtqueue-locktest.json").write_text(text)
        assert not has_passed(str(folder))


def test_the_clock_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local disk has the clock of its host, to some milliseconds; what a host is ahead or behind is told."""
    assert abs(clock_offset(str(tmp_path))) < 1
    right = mounts.clock.now
    for off in (60, -60):
        monkeypatch.setattr(mounts.clock, "now", lambda off=off: right() + off * 1_000_000)
        assert abs(clock_offset(str(tmp_path)) - off) < 1
    assert os.listdir(tmp_path) == []
