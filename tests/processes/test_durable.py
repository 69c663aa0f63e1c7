"""Durable tasks in real workers, which are killed."""

import re
import signal
from pathlib import Path

import pytest
from django.db import connections

from django_vtqueue import send_event
from tests.project import durable
from tests.project.models import Effect

from ..conftest import ALIAS
from ..waiting import wait_until
from . import inside
from .conftest import both_engines
from .database import Database
from .inside import awaited
from .running import Start


def effects(database: Database) -> dict[str, int]:
    rows = database.rows("SELECT name, count(*) AS made FROM project_effect GROUP BY name")
    return {row["name"]: row["made"] for row in rows}


def test_transactional_steps_are_made_once(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Killed inside of each step and behind it, the job goes on where it was: each step's writes are there once."""
    job_id = database.enqueue(durable.killed_in_steps)
    once = tmp_path / "once"
    once.mkdir()
    while not database.succeeded(job_id):
        worker = start_worker("--threads", "1", ready=False, VTQUEUE_TEST_ONCE=str(once))
        wait_until(lambda: worker.ended() or database.succeeded(job_id))  # noqa: B023
        worker.clean_up()
    assert effects(database) == {"step 0": 1, "step 1": 1}
    assert database.outcomes(job_id) == ["worker died"] * 4


@pytest.mark.parametrize("of_rows", [False, True], ids=["list", "rows"])
def test_a_loop_that_is_killed_at_each_item(
    database: Database, start_worker: Start, tmp_path: Path, of_rows: bool
) -> None:
    """Killed at every place of every item, a loop goes on where it was: what each item does is there once."""
    database.options.update(backoff=0, max_attempts=0)  # the job's worker died: its task's own are not asked
    rows = Effect.objects.using(ALIAS).bulk_create(Effect(name=f"row {number}", value=7) for number in range(3))
    job_id = database.enqueue(durable.killed_at_each_item, of_rows)
    connections[ALIAS].close()
    (tmp_path / "once").mkdir()
    while not database.succeeded(job_id):
        worker = start_worker("--threads", "1", ready=False, VTQUEUE_TEST_ONCE=str(tmp_path / "once"))
        wait_until(lambda: worker.ended() or database.succeeded(job_id))  # noqa: B023
        worker.clean_up()
    made = {f"step {row if of_rows else 1_000_000 + number}": 1 for number, row in enumerate(rows)}
    assert effects(database) == {**{row.name: 1 for row in rows}, **made}
    assert database.outcomes(job_id) == ["worker died"] * 9


def test_children_of_a_supervisor_that_are_killed(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """With ``--processes`` the same: the supervisor replaces each child that dies in a step, or behind it."""
    job_id = database.enqueue(durable.killed_in_steps)
    (tmp_path / "once").mkdir()
    start_worker(
        *("--processes", "2", "--threads", "1"),
        constants=inside.tuned(start=0),  # it starts the next one at once
        VTQUEUE_TEST_ONCE=str(tmp_path / "once"),
    )
    database.wait_for(job_id)
    assert effects(database) == {"step 0": 1, "step 1": 1}
    assert database.outcomes(job_id) == ["worker died"] * 4


def test_an_order_in_real_workers(database: Database, start_worker: Start) -> None:
    """A job gives its slot back while it waits, and an event wakes it at once, through the doorbell."""
    worker = start_worker("--threads", "1", constants=inside.LOOKS_SELDOM)
    first, second = database.enqueue(durable.order, 1), database.enqueue(durable.order, 2)
    for job_id in (first, second):
        wait_until(lambda: awaited(database, job_id) == "shipped")  # noqa: B023
    assert send_event(first, "shipped", 5, using=ALIAS)
    wait_until(lambda: awaited(database, first) == "two weeks")
    assert effects(database) == {"charge": 1}
    [line] = wait_until(lambda: [line for line in worker.lines("wait ") if "two weeks" in line])
    assert line.startswith(f"wait  tests.project.durable.order …{first[-8:]} sleep 'two weeks' until 20")
    assert database.outcomes(first) == []
    connections[ALIAS].close()


def test_a_lost_lease(database: Database, start_worker: Start) -> None:
    """A task whose lease is lost inside a step writes nothing, and the one that holds the job does."""
    job_id = database.enqueue(durable.loses_its_lease)
    worker = start_worker()
    database.wait_for(job_id)
    assert worker.lines("lost")
    assert [record["value"] for record in inside.steps_of(database, job_id)] == [8]


def test_a_loop_in_a_worker_that_stops(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A worker that is asked to stop gets the slot of a loop back between two items; the next one goes on there."""
    job_id = database.enqueue(durable.walks, str(tmp_path), 6)
    worker = start_worker()
    wait_until(lambda: (tmp_path / "items").exists() and (tmp_path / "items").read_text() == "0\n1\n2\n")
    worker.signal(signal.SIGTERM)
    worker.wait_for("stopping")
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert (database.job(job_id)["state"], database.job(job_id)["attempts"]) == ("SCHEDULED", 0)
    start_worker()
    database.wait_for(job_id)
    assert (tmp_path / "items").read_text() == "".join(f"{item}\n" for item in range(6))
    assert database.outcomes(job_id) == []


@both_engines
@pytest.mark.parametrize("text", ["\\u0000", "\\ud800"])
def test_steps_edited_by_hand(database: Database, start_worker: Start, text: str) -> None:
    """What no database reads in a text: it refuses the edit, or that costs no other job anything."""
    parents = [database.enqueue(durable.gathers_elsewhere, name) for name in ("edited", "other")]
    start_worker("--queues", "default")
    wait_until(lambda: all(awaited(database, parent) for parent in parents))
    try:
        database.write("UPDATE vtqueue_job SET steps = replace(steps, 'made', ?) WHERE id = ?", text, parents[0])
    except Exception as refused:
        if not re.search("Unicode|json", str(refused)):
            raise
    start_worker("--queues", "elsewhere")
    wait_until(lambda: not database.unfinished())
    assert database.succeeded(parents[1])
    assert effects(database) == {"edited": 1, "other": 1}
