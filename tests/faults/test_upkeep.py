"""Pruning, and copying the log back, beside others who write."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from django.db import OperationalError

from django_vtqueue.engines import new_engine
from django_vtqueue.worker.upkeep import PRUNED_AT_ONCE, Upkeep
from tests.project import tasks

from ..conftest import ALIAS
from ..processes.database import Database
from ..waiting import wait_until

EXPIRED = (
    "UPDATE vtqueue_job SET state = 'SUCCESSFUL', worker_id = 'w', finished_at = 1, expires_at = 1, result = 'null'"
)


def test_what_a_lock_prevents_is_done_in_the_next_turn(database: Database) -> None:
    """A lock that keeps a worker from pruning delays it by no second; and it goes on as long as there is more."""
    database.enqueue_many(tasks.add, [(1, 2)] * (PRUNED_AT_ONCE + 1))
    database.write(EXPIRED)
    engine = new_engine(ALIAS, traced=False)
    upkeep = Upkeep(engine)
    with engine.impatient():
        upkeep.do(contended=False)
        assert len(database.rows("SELECT 1 FROM vtqueue_job")) == 1
        wait_until(lambda: time.monotonic() >= upkeep.prune_at)
        with database.locked(), pytest.raises(OperationalError, match="locked"):
            upkeep.do(contended=False)
        upkeep.do(contended=False)
    assert not database.rows("SELECT 1 FROM vtqueue_job")


def test_the_log_is_copied_back_early_while_others_wait(database: Database) -> None:
    """Before the commit of somebody else has to do it; where nobody waits, it is left alone for longer."""
    log = Path(f"{database.path}-wal")
    upkeep = Upkeep(engine := new_engine(ALIAS, traced=False))
    with engine.impatient(), closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("CREATE TABLE junk AS SELECT zeroblob(3500000)")
        before = log.stat().st_size
        upkeep.do(contended=False)
        assert log.stat().st_size == before
        upkeep.do(contended=True)
        assert log.stat().st_size == 0
