"""Recurring jobs with real workers: ``tests.ticking`` declares what a test says."""

import json
import time
from typing import Any

import pytest

from ..waiting import wait_until
from . import inside
from .database import Database
from .inside import NEVER_LOOKS, SECOND
from .running import MANAGE, Start


def declaring(*declarations: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a process whose code declares these."""
    return {"VTQUEUE_TEST_APPS": "tests.ticking", "VTQUEUE_TEST_RECURRING": json.dumps(declarations)}


def ticks(database: Database, name: str) -> list[int]:
    """Return the ticks of the jobs that have this name as their argument, in seconds."""
    rows = database.rows("SELECT due_at, payload FROM vtqueue_job ORDER BY due_at")
    return [row["due_at"] // SECOND for row in rows if name in json.loads(row["payload"])["args"]]


def schedule(database: Database, name: str) -> Any:
    [row] = database.rows("SELECT * FROM vtqueue_schedule WHERE name = ?", name)
    return row


EACH_SECOND = {"every": 1, "name": "second", "args": ["second"]}


def test_two_workers_publish_each_tick_once(database: Database, start_worker: Start) -> None:
    """One of them is killed meanwhile; the ticks go on, without a gap and without a double."""
    all_ticks = declaring({**EACH_SECOND, "missed": "all"})  # a busy machine may miss one
    first, second = (start_worker(**all_ticks) for _ in range(2))
    wait_until(lambda: len(ticks(database, "second")) >= 2)
    first.kill()
    wait_until(lambda: len(ticks(database, "second")) >= 4)
    second.terminate()
    found = ticks(database, "second")
    assert found == list(range(found[0], found[0] + len(found)))


def test_a_worker_sleeps_until_the_next_tick(database: Database, start_worker: Start) -> None:
    """It needs no look at the database for it, nor a ring: it knows the tick."""
    start_worker(constants=NEVER_LOOKS, **declaring(EACH_SECOND))
    wait_until(lambda: len(ticks(database, "second")) >= 2)


def test_a_schedule_made_elsewhere_is_noticed(database: Database, start_worker: Start) -> None:
    """A running worker runs what was made in the admin, within a second or two of its tick."""
    start_worker(**declaring())
    inside.add_schedule(database, "made", "tests.ticking.tasks.tick", 60, (int(time.time()) + 1) * SECOND)
    wait_until(lambda: ticks(database, "made"))


def test_a_deploy(database: Database, start_worker: Start) -> None:
    """New code that lacks a schedule stops it with the last old worker; code that has it again has it go on."""
    old = start_worker(**declaring(EACH_SECOND))
    wait_until(lambda: ticks(database, "second"))
    new = start_worker(**declaring({"every": 1, "name": "other", "args": ["other"]}))
    wait_until(lambda: ticks(database, "other"))
    before = len(ticks(database, "second"))
    wait_until(lambda: len(ticks(database, "second")) > before)
    old.terminate()
    stopped = len(ticks(database, "second"))
    others = len(ticks(database, "other"))
    wait_until(lambda: len(ticks(database, "other")) >= others + 2)
    assert len(ticks(database, "second")) == stopped
    new.terminate()
    start_worker(**declaring(EACH_SECOND))
    wait_until(lambda: len(ticks(database, "second")) > stopped + 1)


def test_a_drain_publishes_what_is_due(database: Database, drain: Start) -> None:
    """A host that has only cron starts ``vtworker --drain`` by that: what was missed meanwhile is run."""
    declared = declaring({"cron": "0 3 29 2 *", "name": "nightly", "args": ["nightly"]})  # far from now
    drain(**declared)
    assert ticks(database, "nightly") == []
    inside.next_tick(database, 86_400 * SECOND)
    drain(**declared)
    assert ticks(database, "nightly") == [86_400]
    assert database.unfinished() == 0


def test_the_command(database: Database, start: Start, drain: Start) -> None:
    """A process that has not imported the tasks lists what a worker has written down, and runs it."""
    declared = declaring({"cron": "0 3 29 2 *", "tz": "Europe/Paris", "name": "nightly", "args": ["nightly"]})
    drain(**declared)
    process = start(MANAGE, "vtqueue", "schedules", "run", "nightly", **declared)
    assert process.wait() == 0, process.log
    assert " was enqueued; " in process.log
    assert len(ticks(database, "nightly")) == 1


def test_what_vanishes_between_two_drains(database: Database, start: Start, drain: Start) -> None:
    """Without a worker the command's own code, whose tasks it imports for that, says what has vanished."""
    there, gone = ({"cron": "0 3 29 2 *", "name": name} for name in ("there", "gone"))
    drain(**declaring(there, gone))
    process = start(MANAGE, "vtqueue", "schedules", **declaring(there))
    assert process.wait() == 0, process.log
    [_, *lines] = process.log.splitlines()
    assert ["vanished" in line for line in lines] == [True, False]


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        ({"cron": "0 0 30 2 *"}, "'0 0 30 2 *' never comes"),
        ({"cron": "0 3 * * *", "tz": "Mars/Olympus"}, "There is no time zone 'Mars/Olympus'"),
    ],
)
def test_a_worker_refuses_a_wrong_declaration(start_worker: Start, declaration: dict[str, Any], problem: str) -> None:
    """It says at its start what is wrong, as ``manage.py check`` does, and ends."""
    worker = start_worker(ready=False, **declaring(declaration))
    assert worker.wait() == 1
    assert problem in worker.log
    assert "(vtqueue.E020)" in worker.log
    assert "Traceback" not in worker.log
