"""``python -m benchmarks.own`` on a database in use: it measures, leaves nothing behind, and touches no job."""

import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from benchmarks.own.measures import new_jobs
from benchmarks.own.place import TABLES, copied, folder_of
from django_vtqueue import Queue
from django_vtqueue.core.job import Scope
from tests.project import tasks

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.running import Running, Start
from ..waiting import wait_until

Bench = Callable[..., Running]
OPTIONS = '{{"OPTIONS": {{"transaction_mode": "{}", "init_command": "{}"}}}}'
FREE = 20  # times that a writer finds the lock free


@pytest.fixture
def bench(start: Start) -> Bench:
    """Return a function that starts a benchmark; ``seconds``: more than any test waits, unless it is short."""

    def bench(seconds: str = "100", **variables: str) -> Running:
        return start("-m", "benchmarks.own", "--seconds", seconds, **variables)

    return bench


@pytest.fixture
def filled(database: Database) -> Database:
    """Return a database with jobs in every state, and a dead letter."""
    queue = Queue("raw", using=ALIAS, max_attempts=1)
    queue.publish_many([1, 2, 3, 4])
    for end in ("ack", "nack", "extend"):
        job = queue.claim()
        assert job
        getattr(job, end)()
    database.enqueue(tasks.add, 1, 2)
    return database


def contents(database: Database) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of all tables, and with them how those are defined."""
    found = {"sqlite_master": [tuple(row) for row in database.rows("SELECT * FROM sqlite_master ORDER BY name")]}
    for (name,) in database.rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
        found[name] = [tuple(row) for row in database.rows(f'SELECT rowid, * FROM "{name}"')]
    found["sqlite_master"] = [(*row[:3], row[4]) for row in found["sqlite_master"]]  # not the number of a page
    return found


def copies(database: Database) -> int:
    return sum(len(database.rows("SELECT 1 FROM sqlite_master WHERE name = ?", copy)) for copy in TABLES.values())


def measuring(database: Database) -> bool:
    """Return whether a benchmark has begun to write."""
    return bool(copies(database) and database.rows(f"SELECT 1 FROM {TABLES['vtqueue_job']} LIMIT 1"))


def nothing_is_left(database: Database) -> bool:
    return not copies(database) and not folder_of(str(database.path)).exists()


@pytest.fixture
def unharmed(filled: Database) -> Iterator[Database]:
    """Return a database in use; what is in it must be the same after the test, and nothing else be there."""
    before = contents(filled)
    assert len(before["vtqueue_job"]) == 4
    assert len(before["vtqueue_deadletter"]) == 1
    yield filled
    assert contents(filled) == before
    assert nothing_is_left(filled)


def test_it_measures_beside_real_jobs(unharmed: Database, bench: Bench) -> None:
    """It says how fast each is, and that nothing is to be changed; no row of any table is another afterwards."""
    running = bench("1")
    assert running.wait() == 0, running.log
    for what in ("enqueue one job", "enqueue 100 at once", "claim and settle 10 in a transaction", "WAL, FULL"):
        assert re.search(rf"^{what} +[1-9][0-9,]* +[0-9.]+ .s +[0-9.]+ .s +[0-9.]+$", running.log, re.MULTILINE)
    assert "db.sqlite3 (wal, normal)" in running.log
    assert "Nothing to change." in running.log
    assert "alive" not in running.log


def test_pauses_do_not_count(database: Database) -> None:
    """What is measured is the claim of jobs also while a queue of the same name is paused."""
    Queue("default", using=ALIAS).pause()
    with copied(ALIAS) as copy:
        copy.insert(new_jobs(3))
        assert len(copy.due(Scope(None, raw=False), 10, copy.now())) == 3
    assert nothing_is_left(database)


def test_after_a_kill_the_next_run_leaves_nothing(unharmed: Database, bench: Bench) -> None:
    """A killed run leaves its table and its folder; the next one drops them, at its end too."""
    killed = bench()
    wait_until(lambda: measuring(unharmed) or killed.ended())
    killed.kill()
    assert copies(unharmed)
    assert folder_of(str(unharmed.path)).exists()
    again = bench("1")
    assert again.wait() == 0, again.log


def test_one_at_a_time_until_ctrl_c(unharmed: Database, bench: Bench) -> None:
    """A second one is refused while the first runs, and takes nothing away from it.

    Ctrl-C in mid-run: it cleans up, says so without a traceback, and ends with 130.
    """
    first = bench()
    wait_until(lambda: measuring(unharmed) or first.ended())
    second = bench("1")
    assert second.wait() == 1
    assert second.log.splitlines()[-1].startswith("CommandError: Another benchmark runs on ")
    assert copies(unharmed)
    assert not first.ended()
    first.signal(signal.SIGINT)
    assert first.wait() == 130
    assert first.log.splitlines()[-1] == "CommandError: Stopped; nothing of the benchmark is left."
    assert "Traceback" not in first.log


def test_a_full_disk(unharmed: Database, bench: Bench) -> None:
    """Where the file cannot grow it says so, and what to do, and still leaves nothing."""
    pages = unharmed.rows("PRAGMA page_count")[0][0] + 12
    init = f"PRAGMA journal_mode=WAL; PRAGMA max_page_count={pages};"
    running = bench(VTQUEUE_TEST_CONNECTION=OPTIONS.format("IMMEDIATE", init))
    assert running.wait() == 1
    assert running.log.splitlines()[-1].startswith(
        "CommandError: Not measured: the database cannot be written: database or disk is full. Free some space"
    )


def test_a_folder_that_cannot_be_written(unharmed: Database, bench: Bench) -> None:
    """Something else in the way of its folder: it names that, and writes nothing."""
    in_the_way = folder_of(str(unharmed.path))
    in_the_way.write_text("")
    running = bench("1")
    assert running.wait() == 1
    assert "CommandError: Not measured: " in running.log
    assert str(in_the_way) in running.log
    in_the_way.unlink()


def test_a_locked_database(unharmed: Database, bench: Bench) -> None:
    """Where another process holds the write lock for longer than writers wait, it says so."""
    with unharmed.locked():
        running = bench("1", VTQUEUE_TEST_TIMEOUT="0.1")
        assert running.wait() == 1
    assert "Not measured: the database is locked by another connection" in running.log


def test_a_live_site(database: Database, bench: Bench, start_worker: Start) -> None:
    """It warns of live workers; meanwhile they run jobs, and a writer that does not wait finds the lock free often."""
    worker = start_worker()
    wait_until(database.workers)
    running = bench()
    wait_until(lambda: measuring(database) or running.ended())
    job_id = database.enqueue(tasks.add, 1, 2)
    database.wait_for(job_id)
    free = 0
    with closing(sqlite3.connect(database.path, timeout=0, isolation_level=None)) as connection:

        def writes() -> bool:
            nonlocal free
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.execute("ROLLBACK")
            free += 1
            return free >= FREE

        wait_until(lambda: writes() or running.ended())
    assert not running.ended(), running.log
    running.signal(signal.SIGINT)
    running.wait()
    assert free >= FREE
    assert f":{worker.pid}): while they have jobs" in running.log


def test_the_journal_mode_is_not_changed(unharmed: Database, bench: Bench) -> None:
    """With a rollback journal it says what WAL would bring, and how it is set; the file stays as it is."""
    unharmed.leave()
    unharmed.write("PRAGMA journal_mode = DELETE")
    running = bench("1", VTQUEUE_TEST_CONNECTION=OPTIONS.format("DEFERRED", ""))
    assert running.wait() == 0, running.log
    assert "Its journal mode is 'delete', not WAL" in running.log
    assert '"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"' in running.log
    assert "Nothing to change" not in running.log
    assert unharmed.rows("PRAGMA journal_mode")[0][0] == "delete"
