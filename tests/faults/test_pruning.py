"""Pruning beside others who write."""

import pytest
from django.db import OperationalError

from django_vtqueue.engines import new_engine
from django_vtqueue.worker.chores import PRUNED_AT_ONCE, Chores
from django_vtqueue.worker.crew import Crew
from tests.project import tasks

from ..conftest import ALIAS
from ..processes.database import Database

EXPIRED = (
    "UPDATE vtqueue_job SET state = 'SUCCESSFUL', worker_id = 'w', finished_at = 1, expires_at = 1, result = 'null'"
)


def test_what_a_lock_prevents_is_done_in_the_next_turn(database: Database) -> None:
    """A lock that keeps a worker from pruning delays it by no second; and it goes on as long as there is more."""
    database.enqueue_many(tasks.add, [(1, 2)] * (PRUNED_AT_ONCE + 1))
    database.write(EXPIRED)
    engine = new_engine(ALIAS, traced=False)
    chores = Chores(engine, database.backend, Crew(engine, database.backend, "w:1:a", [], 1, ""), lambda: 0)
    with engine.impatient():
        chores.do()
        assert chores.at == 0.0  # there is one left
        with database.locked(), pytest.raises(OperationalError, match="locked"):
            chores.do()
        assert chores.at == 0.0
        chores.do()
        assert chores.at > 0.0
    assert not database.rows("SELECT 1 FROM vtqueue_job")
