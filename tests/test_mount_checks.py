"""``manage.py check`` of where a SQLite file is, and of what several hosts need that share one."""

import re
from pathlib import Path

import pytest

from django_vtqueue.engines.sqlite.mounts import place_of, store_result

from .projects import Project

SHARED = """
DATABASES["default"]["NAME"] = {name!r}
DATABASES["default"]["OPTIONS"] = {{
    "transaction_mode": "IMMEDIATE",
    "timeout": 60,
    "init_command": "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;",
    **{change!r},
}}
TASKS["default"]["OPTIONS"] = {{"shared_disk": True, "visibility_timeout": 300, **{options!r}}}
"""
# Other file systems, as the kernel would tell of them.
ON_NFS = """
from pathlib import Path
from django_vtqueue.engines.sqlite import mounts
mounts.MOUNTS = Path("mountinfo")
"""


def project_on(folder: Path, mount: str, settings: str = "") -> Project:
    """Return a project whose folder is on such a mount."""
    project = Project(folder, ON_NFS + settings)
    project.write("mountinfo", f"1 1 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {folder} rw - {mount}\n")
    return project


def said_by(project: Project, *command: str) -> set[str]:
    return set(re.findall(r"vtqueue\.(\w+)", project.manage(*command)))


def shared(folder: Path, change: dict[str, object] | None = None, **options: object) -> Project:
    """Return a project with ``shared_disk`` in whose folder the test has passed."""
    settings = SHARED.format(name=str(folder / "db.sqlite3"), change=change or {}, options=options)
    project = Project(folder, settings)
    store_result(str(folder), ["a", "b"], [place_of(str(folder))])
    return project


def test_a_file_on_a_network_stops_everything(tmp_path: Path) -> None:
    """On NFS ``check``, ``migrate`` and a worker stop with what was found, why it is wrong, and what else there is."""
    project = project_on(tmp_path, "nfs4 files:/export rw,vers=4.2")
    for command in [("check",), ("migrate",), ("vtworker", "--drain"), ("vtleader", "x", "true")]:
        said = project.manage(*command)
        assert said.startswith("exit 1\n"), said
        assert "(vtqueue.E030)" in said
        assert f"its file is on nfs4 (files:/export, mounted at {tmp_path})" in said
        assert "WAL needs memory that all its processes share" in said
        assert "OPTIONS['shared_disk']" in said


def test_it_can_be_silenced(tmp_path: Path) -> None:
    """Who knows better puts E030 into SILENCED_SYSTEM_CHECKS, and works."""
    project = project_on(tmp_path, "virtiofs share rw", 'SILENCED_SYSTEM_CHECKS = ["vtqueue.E030"]')
    assert project.manage("migrate").startswith("exit 0\n")
    assert project.manage("vtworker", "--drain").startswith("exit 0\n")


def test_shared_disks_are_not_any_network(tmp_path: Path) -> None:
    """With shared_disk FUSE stays an error, and so do locks that stay within a host."""
    settings = 'TASKS["default"]["OPTIONS"] = {"shared_disk": True, "visibility_timeout": 300}'
    assert "for no other network" in project_on(tmp_path, "fuse.sshfs files: rw", settings).manage("check")
    said = project_on(tmp_path, "nfs files:/export rw,nolock,lookupcache=none", settings).manage("check")
    assert "mounted with nolock: no lock is seen by another host" in said
    good = project_on(tmp_path, "nfs4 files:/export rw,lookupcache=none", settings)
    assert good.manage("check").startswith("exit 0\n")
    assert said_by(good, "check", "--database", "default") == {"E032", "W008"}


def test_shared_and_well_set(tmp_path: Path) -> None:
    """What docs/guides/shared-disk.md has as settings gets no error and no warning, in a deployment neither."""
    project = shared(tmp_path)
    assert project.manage("migrate").startswith("exit 0\n")
    assert said_by(project, "check", "--deploy", "--database", "default") == set()
    assert project.manage("vtworker", "--drain").startswith("exit 0\n")


RUN = """
from threading import Event
from django_vtqueue import Queue
stop = Event()
stop.set()
Queue("sensors").run(print, stop=stop)
"""


def test_queue_run_begins_where_a_worker_does(tmp_path: Path) -> None:
    """``Queue.run`` is refused on NFS, and with shared_disk until the test has passed; by what a worker says."""
    said = project_on(tmp_path, "nfs4 files:/export rw").python(RUN)
    assert re.search(r"ImproperlyConfigured: DATABASES\['default'\]: its file is on nfs4 .*\(vtqueue.E030\)", said)
    project = shared(tmp_path)
    assert project.python(RUN) == "exit 0\n"
    (tmp_path / "vtqueue-locktest.json").unlink()
    said = project.python(RUN)
    assert "ImproperlyConfigured: DATABASES['default']: it was not tested whether hosts can share files in" in said
    assert "(vtqueue.E032)\nOn two hosts at once: manage.py vtqueue locktest default --hosts 2" in said
    assert not project.database.exists()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"}, "journal_mode must be DELETE, not WAL"),
        ({"init_command": "PRAGMA synchronous=NORMAL"}, "synchronous must be FULL, not NORMAL"),
        ({"init_command": "PRAGMA mmap_size=1000000"}, "mmap_size must be 0, not 1000000"),
        ({"timeout": 5}, "timeout must be 10 seconds or more, not 5"),
        ({"transaction_mode": None}, "transaction_mode must be 'IMMEDIATE', not None"),
    ],
)
def test_each_setting_of_a_shared_file(tmp_path: Path, change: dict[str, object], text: str) -> None:
    """Each setting is read from the live connection; a wrong one stops a worker, and is no warning besides."""
    project = shared(tmp_path, change)
    said = project.manage("check", "--database", "default")
    assert text in said
    assert set(re.findall(r"vtqueue\.(\w+)", said)) == {"E031", "W008"}
    assert text in project.manage("vtworker", "--drain")


def test_leases_are_long(tmp_path: Path) -> None:
    """A backend, a queue or a task with shorter leases than a file server needs to start is an error (E034)."""
    project = shared(tmp_path, queue_options={"default": {"visibility_timeout": 60}})
    assert "queue 'default' has leases of 60 s; with shared_disk 300 s are the least" in project.manage("check")
    project = shared(tmp_path, visibility_timeout=299)
    assert "visibility_timeout has leases of 299 s" in project.manage("check")
    project = shared(tmp_path)
    project.write("shop/tasks.py", "from django_vtqueue import task\n@task(visibility_timeout=5)\ndef quick(): ...\n")
    assert "shop.tasks.quick has leases of 5 s" in project.manage("check")
    said = project.python("from django_vtqueue import Queue; Queue('a'); Queue('b', visibility_timeout=60)")
    assert "Queue('b'): visibility_timeout is 60 s, but with shared_disk 300 s are the least." in said
