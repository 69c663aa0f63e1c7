"""Many processes on one database."""

import re
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from tests.project import tasks

from ..waiting import wait_until
from . import inside
from .database import Database
from .running import Start

PUBLISHED = 1600  # by each of two publishers
WAITED = "the database is locked by another connection; waiting. Nothing is lost."  # no error: a busy machine


def test_four_workers_and_two_publishers_run_every_job_once(
    database: Database, start: Start, start_worker: Start, tmp_path: Path
) -> None:
    """Four workers and two publishers at work on one database: each job runs, none twice, and no lock is an error.

    The workers' heartbeats go on meanwhile. What one claimed ahead and gave back has more claims than attempts.
    """
    done = tmp_path / "done"
    done.mkdir()
    workers = [start_worker(ready=False, constants=inside.tuned(heartbeat=2)) for _ in range(4)]
    wait_until(lambda: len(database.workers()) == 4)  # each looks for jobs by then
    publishers = [start("-m", "tests.processes.publisher", str(PUBLISHED), str(done)) for _ in range(2)]
    assert [publisher.wait() for publisher in publishers] == [0, 0], [publisher.log for publisher in publishers]
    published = [line for publisher in publishers for line in publisher.log.split()]
    wait_until(lambda: not database.unfinished())
    executed = Counter(line for file in done.iterdir() for line in file.read_text().split())
    assert executed == Counter(published)
    outcomes = database.rows("SELECT state, attempts, history, count(*) FROM vtqueue_job GROUP BY 1, 2, 3")
    assert [tuple(row) for row in outcomes] == [("SUCCESSFUL", 1, "[]", len(published))]
    wait_until(lambda: all(row["heartbeat_at"] > row["started_at"] for row in database.workers()))
    assert sorted(row["pid"] for row in database.workers()) == sorted(worker.pid for worker in workers)
    for worker in workers:
        assert worker.terminate() == 0
        log = worker.log.replace(WAITED, "")
        assert not re.search("locked|Traceback|^(lost|retry|dead) ", log, re.MULTILINE), log
    assert len(list(done.iterdir())) == 4, "a worker got nothing to do"


@pytest.mark.sqlite("the log (WAL)")
def test_the_log_of_the_database_is_kept_short(database: Database, start_worker: Start) -> None:
    """Where no other process does it, a worker copies the write-ahead log back and has it begin anew."""
    log = Path(f"{database.path}-wal")
    start_worker()
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE junk (data)")
        while log.stat().st_size <= 8_000_000:  # the worker may cut it meanwhile
            connection.execute("INSERT INTO junk VALUES (zeroblob(1000000))")
        wait_until(lambda: log.stat().st_size < 4_000_000)


@pytest.mark.sqlite("the log (WAL)")
def test_the_log_is_kept_short_while_jobs_are_run(database: Database, start_worker: Start) -> None:
    """What the worker itself writes is copied back between its turns; it need not come to rest for that."""
    log, sizes = Path(f"{database.path}-wal"), [0]
    database.enqueue_many(tasks.add, [(1, 2)] * 20_000)
    with closing(sqlite3.connect(database.path)) as keeper:  # the last connection to close would remove it
        keeper.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        worker = start_worker("--drain", ready=False)
        wait_until(lambda: sizes.append(log.stat().st_size) or worker.process.poll() is not None)
    assert max(sizes) < 10_000_000
    assert any(after < before for before, after in pairwise(sizes))


@pytest.mark.sqlite("the log (WAL)")
def test_a_log_that_cannot_be_kept_short_is_told_once(database: Database, start_worker: Start) -> None:
    """While a reader keeps the log from beginning anew, the worker says what is wrong; when it ends, the log is cut."""
    log = Path(f"{database.path}-wal")
    worker = start_worker()
    with closing(sqlite3.connect(database.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM vtqueue_job").fetchone()
        with closing(sqlite3.connect(database.path, isolation_level=None)) as writer:
            writer.execute("CREATE TABLE junk (data)")
            for _ in range(70):
                writer.execute("INSERT INTO junk VALUES (zeroblob(1000000))")
            worker.wait_for("the WAL file has grown beyond 64 MB")
            writer.execute("INSERT INTO junk VALUES (zeroblob(1000000))")
    wait_until(lambda: log.stat().st_size < 4_000_000)
    assert worker.log.count("the WAL file") == 1
