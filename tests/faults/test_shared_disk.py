"""A SQLite file that several hosts share, on disks that keep their word and on disks that lie."""

import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..waiting import wait_until
from . import words
from .shared_disk import SharedDisk, compile_lies, why_not
from .wall_clock import WallClock

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"no hosts can be made here: {why_not()}")

WRONG = 60  # seconds by which a clock is off
OLD = """UPDATE vtqueue_job SET state = 'SUCCESSFUL', worker_id = 'w', finished_at = 1, kept_until = 1, result = 'null'
WHERE id = (SELECT min(id) FROM vtqueue_job WHERE queue_name = 'old')"""

DIES_HALF_WAY = """
import django; django.setup()
import os, signal
from django.db import connection, transaction
from shop.tasks import note
with transaction.atomic():
    connection.cursor().execute("PRAGMA cache_size = 5")
    for number in range(200):
        note.enqueue("nowhere", "x" * 10_000)
    assert os.path.getsize(connection.settings_dict["NAME"]) > 1_500_000  # it is not only in memory
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("migrated") / "db.sqlite3"


@pytest.fixture
def disk(tmp_path: Path, doorbells: str, migrated: Path) -> Iterator[SharedDisk]:
    disk = SharedDisk(tmp_path, doorbells, migrated)
    yield disk
    disk.clean_up()


def noted(path: Path) -> list[tuple[str, str]]:
    """Return which jobs have run, and on which host."""
    return [(text, host) for text, host in map(str.split, path.read_text().splitlines())] if path.exists() else []


# -- the test of the locks ---------------------------------------------------------------------------------------------


def test_workers_start_where_two_hosts_have_tested_the_locks(disk: SharedDisk, tmp_path: Path) -> None:
    """A worker is refused before the test has passed from two hosts, also on a copy of the folder; not after it."""
    refused = disk.start(1, "vtworker", "--drain")
    assert refused.wait() == 1
    assert "(vtqueue.E032)" in refused.log
    assert "manage.py vtqueue locktest default --hosts 2" in refused.log
    assert not disk.path.exists()

    tests = disk.on_both("vtqueue", "locktest", "default")
    assert [test.process.returncode for test in tests] == [0, 0], tests[0].log
    assert set((disk.passed() or {})["hosts"]) == {"host1", "host2"}
    assert os.listdir(disk.folder) == ["vtqueue-locktest.json"]
    assert disk.project.manage("migrate").startswith("exit 0\n")
    worker = disk.start(1, "vtworker", "--drain")
    assert worker.wait() == 0, worker.log

    shutil.copytree(disk.folder, tmp_path / "copy")
    disk.folder.rename(tmp_path / "first")
    (tmp_path / "copy").rename(disk.folder)
    refused = disk.start(1, "vtworker", "--drain")
    assert refused.wait() == 1
    assert "(vtqueue.E032)" in refused.log


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ("locks", "a file was locked here while another host had it locked"),
        ("pages", "a write of another host under a lock was not seen: the cache of this host is stale"),
        ("names", "the cache of names is stale. On NFS mount with lookupcache=none"),
    ],
)
def test_lies_are_found(disk: SharedDisk, tmp_path: Path, lie: str, reason: str) -> None:
    """Locks that stay within a host, a stale page cache and a stale cache of names fail the test, on both hosts."""
    library = str(compile_lies(tmp_path))
    for test in disk.on_both("vtqueue", "locktest", str(disk.folder), VTQUEUE_LIE=lie, LD_PRELOAD=library):
        assert test.process.returncode == 1
        assert re.search(rf"FAILED\. host\d: .*{reason}", test.log), test.log
        assert "Traceback" not in test.log
    assert disk.passed() is None


def test_a_lie_of_one_host_is_found(disk: SharedDisk, tmp_path: Path) -> None:
    """One host with a stale cache is enough to fail, whichever of them begins."""
    liar = disk.start(1, "vtqueue", "locktest", "default", VTQUEUE_LIE="names", LD_PRELOAD=str(compile_lies(tmp_path)))
    other = disk.start(2, "vtqueue", "locktest", "default")
    assert (liar.wait(), other.wait()) == (1, 1)
    assert "FAILED. host1: a journal" in other.log
    assert disk.passed() is None


def test_two_processes_of_one_host_test_nothing(disk: SharedDisk) -> None:
    """Two runs on one host fail, and say that they share a kernel."""
    tests = [disk.start(1, "vtqueue", "locktest", "default") for _ in range(2)]
    assert [test.wait() for test in tests] == [1, 1]
    assert "these are not 2 hosts but one (host1), whose processes share a kernel" in tests[0].log


def test_a_test_that_is_interrupted_ends_on_all_hosts(disk: SharedDisk) -> None:
    """Ctrl-C on one host ends the test on the other one, which says so; nothing has passed, and nothing is left."""
    tests = [disk.start(host, "vtqueue", "locktest", "default") for host in (1, 2)]
    tests[0].wait_for("hosts: ")
    tests[0].signal(signal.SIGINT)
    assert tests[1].wait() == 1
    assert "host1 has left before the end; start all again" in tests[1].log
    assert tests[0].wait() != 0
    assert os.listdir(disk.folder) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["default", "--wait", "0"], "1 of 2 hosts came within 0 s. Nothing was tested."),
        (["default", "--hosts", "1"], "--hosts is 1, but must be 2 or more"),
        (["/nowhere"], "/nowhere is neither the alias of a SQLite file nor a folder"),
    ],
)
def test_what_cannot_be_tested(disk: SharedDisk, arguments: list[str], reason: str) -> None:
    """A host that stays alone, and wrong arguments, end with exit code 1 and the reason; nothing is left behind."""
    test = disk.start(1, "vtqueue", "locktest", *arguments)
    assert test.wait() == 1
    assert reason in test.log
    assert os.listdir(disk.folder) == []


def test_a_clock_that_is_wrong_fails_the_test(disk: SharedDisk, tmp_path: Path) -> None:
    """The hosts' clocks are compared, too."""
    wall = WallClock(tmp_path)
    wall.set(-WRONG)
    tests = [
        disk.start(1, "vtqueue", "locktest", "default"),
        disk.start(2, "vtqueue", "locktest", "default", **wall.variables),
    ]
    assert [test.wait() for test in tests] == [1, 1]
    assert re.search(r"the clocks agree: FAILED\..*the clock of host2 is -\d+ s off", tests[0].log)


# -- workers -----------------------------------------------------------------------------------------------------------


def test_one_shot_workers_on_several_hosts(disk: SharedDisk, tmp_path: Path) -> None:
    """Workers that cron starts in the same second on three hosts run each job once; each claim names its host."""
    disk.trust()
    disk.enqueue(f"for n in range(60): note.enqueue({str(tmp_path / 'noted')!r}, str(n))")
    drains = [disk.start(host, "vtworker", "--drain") for host in (1, 2, 3) for _ in range(2)]
    assert [drain.wait() for drain in drains] == [0] * 6, "\n".join(drain.log for drain in drains)
    done = disk.rows("SELECT state, count(*), sum(attempts) FROM vtqueue_job GROUP BY state")
    assert done == [("SUCCESSFUL", 60, 60)], "\n".join(drain.log for drain in drains)
    assert Counter(text for text, _ in noted(tmp_path / "noted")) == {str(number): 1 for number in range(60)}
    assert {host for _, host in noted(tmp_path / "noted")} <= {"host1", "host2", "host3"}
    assert disk.rows("PRAGMA integrity_check") == [("ok",)]


def test_workers_that_stay(disk: SharedDisk, tmp_path: Path, doorbells: str) -> None:
    """Workers of two hosts find what a third one has published by looking; there are no doorbells, and no WAL."""
    disk.trust()
    workers = [disk.start(host, "vtworker", "--threads", "2") for host in (1, 2)]
    for worker in workers:
        worker.wait_ready()
    disk.enqueue(f"for n in range(20): note.enqueue({str(tmp_path / 'noted')!r}, str(n))", host=3)
    wait_until(lambda: len(noted(tmp_path / "noted")) == 20)
    assert {path.name for path in Path(doorbells).rglob("*") if path.is_socket()} == set()
    hosts = "SELECT DISTINCT host FROM vtqueue_workerprocess ORDER BY host"
    wait_until(lambda: disk.rows(hosts) == [("host1",), ("host2",)])
    assert not Path(f"{disk.path}-wal").exists()
    assert [worker.terminate() for worker in workers] == [0, 0]


def test_a_hot_journal_is_rolled_back_by_another_host(disk: SharedDisk, tmp_path: Path) -> None:
    """A publisher is killed when half of its transaction is in the file; a worker of another host sees none of it."""
    disk.trust()
    worker = disk.start(2, "vtworker")
    worker.wait_ready()
    dead = disk.start(1, "-c", DIES_HALF_WAY)
    assert dead.wait() == -9, dead.log
    disk.enqueue(f"note.enqueue({str(tmp_path / 'noted')!r}, 'after')", host=3)
    wait_until(lambda: noted(tmp_path / "noted"))
    assert noted(tmp_path / "noted") == [("after", "host2")]
    assert worker.terminate() == 0
    assert disk.rows("SELECT count(*) FROM vtqueue_job") == [(1,)]
    assert disk.rows("PRAGMA integrity_check") == [("ok",)]


def test_a_job_of_a_dead_host_goes_on_at_another(disk: SharedDisk, tmp_path: Path) -> None:
    """A living holder is not taken for dead by another host; the job of a killed one runs when its lease has ended."""
    disk.trust()
    disk.enqueue(f"hold.enqueue({str(tmp_path)!r})")
    first = disk.start(1, "vtworker")
    wait_until((tmp_path / "started").exists)
    second = disk.start(2, "vtworker")
    second.wait_ready()
    disk.enqueue(f"note.enqueue({str(tmp_path / 'noted')!r}, 'beside')")
    wait_until(lambda: noted(tmp_path / "noted"))
    running = "SELECT claims FROM vtqueue_job WHERE state = 'RUNNING'"
    wait_until(lambda: disk.rows(running) == [(1,)])  # and the other one is settled

    first.kill()
    (tmp_path / "go").touch()
    disk.rows("UPDATE vtqueue_job SET lease_until = 1 WHERE state = 'RUNNING'")  # as if 5 minutes had passed
    wait_until(lambda: disk.rows("SELECT claims FROM vtqueue_job WHERE state = 'SUCCESSFUL' AND claims > 1") == [(2,)])
    assert second.terminate() == 0


def test_a_host_whose_clock_is_wrong_claims_nothing(disk: SharedDisk, tmp_path: Path) -> None:
    """A worker does not start with a wrong clock, stops claiming when it goes wrong, and goes on when it is set.

    Meanwhile it ends no lease, which by its clock has ended, in its maintenance either.
    """
    disk.trust()
    wall = WallClock(tmp_path)
    wall.set(WRONG)
    refused = disk.start(1, "vtworker", "--drain", **wall.variables)
    assert refused.wait() == 1
    assert re.search(r"the clock of this host is \d+ s ahead of that of the disk.*\(vtqueue.E033\)", refused.log)

    wall.set(0)
    worker = disk.start(1, "vtworker", **wall.variables)
    worker.wait_ready()
    wall.set(WRONG)
    worker.wait_for("claims nothing")
    disk.enqueue(f"note.enqueue({str(tmp_path / 'noted')!r}, 'first')")
    drain = disk.start(2, "vtworker", "--drain")
    assert drain.wait() == 0, drain.log
    assert noted(tmp_path / "noted") == [("first", "host2")]
    disk.enqueue("for _ in range(4): note.enqueue('nowhere', 'x')")
    disk.rows("UPDATE vtqueue_job SET queue_name = 'held' WHERE id = (SELECT max(id) FROM vtqueue_job)")
    disk.rows("UPDATE vtqueue_job SET queue_name = 'old' WHERE state = 'READY' AND queue_name <> 'held'")
    later, ended = words.now() + WRONG * words.SECOND // 2, "state = 'RUNNING', worker_id = 'gone', lease_us = 1"
    disk.rows(f"UPDATE vtqueue_job SET {ended}, lease_until = ? WHERE queue_name = 'held'", later)
    for left in (2, 1, 0):  # looks of maintenance, of which the first or the second one would end it
        disk.rows(OLD)
        wait_until(lambda left=left: len(disk.rows("SELECT 1 FROM vtqueue_job WHERE queue_name = 'old'")) == left)
    assert words.now() < later
    assert disk.rows("SELECT state FROM vtqueue_job WHERE queue_name = 'held'") == [("RUNNING",)]
    wall.set(0)
    worker.wait_for("agrees with that of the disk again")
    disk.enqueue(f"note.enqueue({str(tmp_path / 'noted')!r}, 'second')")
    wait_until(lambda: len(noted(tmp_path / "noted")) == 2)
    assert noted(tmp_path / "noted")[1] == ("second", "host1")
    assert worker.terminate() == 0
