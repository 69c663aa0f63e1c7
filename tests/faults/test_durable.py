"""Durable tasks under a storm of kills: 5 steps, sleeps, an event and 3 children each."""

import json
import random
import time
from collections import Counter

import pytest
from django.db import connections

from django_vtqueue import send_event
from tests.project import durable

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.running import Start
from ..waiting import wait_until
from .scale import each_engine, scaled

FLOWS = scaled(60, 2000)
WORKERS = scaled(2, 4)
KILLS = (0.5, 1.5)  # seconds between two


@pytest.mark.timeout(scaled(300, 3600))
@each_engine
def test_a_storm(database: Database, start_worker: Start) -> None:
    """Every task ends; each step was made at least once, each transactional one, and each child, exactly once."""
    database.options.update(visibility_timeout=5, backoff=0, max_attempts=0, result_ttl=None)
    flows = database.enqueue_many(durable.flow, [(number,) for number in range(FLOWS)])
    for job_id in flows[::2]:  # before anything waits for it
        assert send_event(job_id, "go", 1, using=ALIAS)
    workers = [start_worker("--threads", "4", ready=False) for _ in range(WORKERS)]
    wait_until(lambda: database.rows("SELECT 1 FROM project_effect"))
    chance, later = random.Random(7), flows[1::2]
    kills, began = 0, time.monotonic()
    while database.unfinished():
        time.sleep(chance.uniform(*KILLS))
        for job_id in later[: FLOWS // 8]:
            assert send_event(job_id, "go", 1, using=ALIAS)
        del later[: FLOWS // 8]
        if time.monotonic() - began < scaled(20.0, 600.0):
            victim = chance.randrange(WORKERS)
            workers[victim].kill()
            workers[victim] = start_worker("--threads", "4", ready=False)
            kills += 1
    connections[ALIAS].close()
    assert database.succeeded(*flows[:500])
    assert database.rows("SELECT count(*) FROM vtqueue_deadletter")[0][0] == 0
    rows = database.rows("SELECT name, count(*) AS made FROM project_effect GROUP BY name")
    made = Counter({row["name"]: row["made"] for row in rows})
    once = [
        f"{kind} {number}" for kind in ("first", "third", "child 0", "child 1", "child 2") for number in range(FLOWS)
    ]
    assert {name: made[name] for name in once if made[name] != 1} == {}
    often = [f"{kind} {number}" for kind in ("second", "fourth", "fifth") for number in range(FLOWS)]
    assert [name for name in often if not made[name]] == []
    again = sum(made[name] - 1 for name in often)
    attempts = sum(len(json.loads(row["history"])) for row in database.rows("SELECT history FROM vtqueue_job"))
    print(f"{FLOWS} flows, {kills} kills, {attempts} attempts cut off, {again} steps made again")
