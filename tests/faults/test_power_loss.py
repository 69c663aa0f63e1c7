"""The machine crashes while publishers and a worker write: what its disk may hold then opens, and goes on."""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ..processes.database import Database
from ..processes.running import Running, Start
from ..waiting import wait_until
from .scale import scaled
from .writes import Disk, Event, compile_shim, events, everything, nothing, some

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler is needed to see the syncs"),
    pytest.mark.sqlite("what its file keeps; a server is killed in test_server.py"),
]

PUBLISHED = scaled(100, 2_000)  # by each of two publishers
CRASHES = scaled(45, 1_500)
DRAINED = scaled(1, 30)  # of these crashes
LEASE = 1  # seconds

CONNECTION = """{"OPTIONS": {
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=200; PRAGMA synchronous=%s;"
}}"""


class Recorded:
    """The writes and syncs of two publishers and a worker on a database file."""

    def __init__(self, database: Database, log: Path) -> None:
        self.before = database.path.read_bytes()
        self.log = log
        self._path = database.path

    def run(self, start: Start, start_worker: Start, **variables: str) -> None:
        """Have them work, until all is published; then stop the worker somewhere in its work."""
        with closing(sqlite3.connect(self._path)) as keeper:  # the last connection to close would remove the WAL
            keeper.execute("SELECT count(*) FROM vtqueue_job").fetchone()
            folder = self.log.with_name("executed")
            folder.mkdir()
            worker = start_worker(ready=False, **variables)
            command = ("-m", "tests.processes.publisher", str(PUBLISHED), str(folder))
            publishers = [start(*command, **variables) for _ in range(2)]
            assert [publisher.wait() for publisher in publishers] == [0, 0], [it.log for it in publishers]
            wait_until(lambda: any(folder.iterdir()))  # the worker is at its jobs
            assert worker.terminate() == 0
            checkpoint = f"import sqlite3; sqlite3.connect({str(self._path)!r}).execute('PRAGMA wal_checkpoint')"
            assert start("-c", checkpoint, **variables).wait() == 0  # of those amid writes it may be that none ended
            self.check_that_nothing_is_missing()

    def check_that_nothing_is_missing(self) -> None:
        """The log is whole: replayed, it gives the files as they are."""
        disk = Disk(self.before)
        for event in events(self.log):
            disk.take(event)
        for file, path in ((b"D", self._path), (b"W", Path(f"{self._path}-wal"))):
            assert disk.files[file].after_crash(everything) == path.read_bytes()
            assert disk.syncs[file]

    def moments(self, chance: random.Random) -> Iterator[Disk]:
        """Yield the disk at random moments."""
        happened = list(events(self.log))
        chosen = set(chance.sample(range(len(happened)), CRASHES))
        disk = Disk(self.before)
        for number, event in enumerate(happened):
            disk.take(event)
            if number in chosen:
                yield disk


def jobs_in(path: Path) -> set[str]:
    """Return the ids of the jobs in a database that was left by a crash, and is not damaged."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {row[0] for row in connection.execute("SELECT id FROM vtqueue_job")}


def missing(disk: Disk, present: set[str]) -> int:
    """Return how many of the jobs are lost that publishers rely on; they must be the last of each publisher."""
    lost = 0
    for promised in disk.promised.values():
        found = [job for job in promised if job in present]
        assert found == promised[: len(found)]
        lost += len(promised) - len(found)
    return lost


@pytest.fixture
def finish(database: Database, drain: Callable[..., Running]) -> Callable[[Path], None]:
    """Return a function that works off what is left in a copy of the database, after the machine has started again."""

    def finish(path: Path) -> None:
        present = jobs_in(path)
        drain("--drain-retries", str(5 * LEASE), VTQUEUE_TEST_DB=str(path))
        left = Database(path, database.options["doorbells"])
        rows = left.rows("SELECT id, state FROM vtqueue_job")
        assert {tuple(row) for row in rows} == {(job, "SUCCESSFUL") for job in present}

    return finish


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_a_crash_of_the_machine(
    database: Database,
    start: Start,
    start_worker: Start,
    finish: Callable[[Path], None],
    tmp_path: Path,
    synchronous: str,
) -> None:
    """After a crash at any moment the database is sound and its queue finishes, whatever of the unsynced is lost.

    With FULL every job is there whose publishing had returned; with NORMAL only each publisher's last may be missing.
    """
    database.options |= {"visibility_timeout": LEASE}
    log = tmp_path / "disk.log"
    log.touch()
    recorded = Recorded(database, log)
    shim = {"LD_PRELOAD": str(compile_shim(tmp_path)), "VTQUEUE_DISK_LOG": str(log)}
    recorded.run(start, start_worker, **shim, VTQUEUE_TEST_CONNECTION=CONNECTION % synchronous)
    shutil.rmtree(database.options["doorbells"])  # a machine that has crashed keeps no sockets

    chance, lost = random.Random(1), 0
    for number, disk in enumerate(recorded.moments(chance), 1):
        kept: Callable[[Event], Event | None] = [nothing, some(chance), everything][number % 3]
        path = disk.crash(tmp_path / f"crash-{number}", kept)
        lost += missing(disk, jobs_in(path))
        if number % (CRASHES // DRAINED) == 0:
            finish(path)
        shutil.rmtree(path.parent)
    assert bool(lost) == (synchronous == "NORMAL")
    print(f"{synchronous}: {CRASHES} crashes, {lost} published jobs missing in all")
