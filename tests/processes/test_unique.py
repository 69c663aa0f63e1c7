"""Unique keys and expiry, with real processes."""

from pathlib import Path
from uuid import UUID

import pytest
from django.db import transaction
from pytest_django import Settings

from django_vtqueue import Queue
from django_vtqueue.control import pause
from tests.project import tasks, writers

from ..conftest import ALIAS
from ..waiting import wait_until
from . import inside
from .database import Database
from .held import begin
from .running import Start


@pytest.fixture(autouse=True)
def same_settings(settings: Settings, database: Database) -> None:
    """Give this process the settings of the workers: those say where the doorbells are."""
    settings.TASKS = database.tasks


def test_a_worker_buries_what_has_expired(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Of its own queues, of paused ones, and raw ones that no worker takes: each is a dead letter that never ran.

    So is one of a paused queue that was given back.
    """
    done = tmp_path / "done"
    own = database.enqueue(tasks.note_soon, str(done), "own")
    paused = database.enqueue(tasks.note_soon.using(queue_name="paused"), str(done), "paused")
    given_back = database.enqueue(tasks.note_soon.using(queue_name="paused"), str(done), "given back")
    inside.given_back(database, given_back)
    raw = Queue("raw", using=ALIAS).publish({}, expires=0.2).hex
    pause("paused", using=ALIAS)
    wait_until(lambda: inside.now() > database.job(raw)["start_by"])
    worker = start_worker()
    wait_until(lambda: all(map(database.letter, (own, paused, given_back, raw))))
    wait_until(lambda: len(worker.lines("dead ")) >= 3)
    assert {tuple(database.outcomes(job_id)) for job_id in (own, paused, given_back, raw)} == {("expired",)}
    assert not done.exists()
    assert {database.backend.get_result(str(UUID(job_id))).status for job_id in (own, paused)} == {"FAILED"}


def test_a_busy_worker_buries_what_it_has_no_room_for(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """At its time, not only when a slot is free."""
    start_worker("--threads", "1")
    begin(database, tmp_path)
    late = database.enqueue(tasks.note_soon, str(tmp_path / "done"), "late")
    wait_until(lambda: database.letter(late))
    (tmp_path / "go").touch()


def test_a_transactional_task_whose_turn_comes_too_late(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """It was claimed in time, but waits for its turn behind another one: it is not begun any more."""
    database.options["task_modules"] = ["tests.project.writers"]
    start_worker()
    with transaction.atomic(using=ALIAS):
        first = database.enqueue(writers.say_and_sleep.using(priority=1), str(tmp_path / "said"), 7)
        late = database.enqueue(writers.append_soon, "late")
    wait_until(lambda: database.letter(late))
    database.wait_for(first)
    assert (database.outcomes(late), database.letter(late)["claims"]) == (["expired"], 1)  # type: ignore[index]
    assert database.rows("SELECT 1 FROM project_effect WHERE name = 'late'") == []


def test_a_debounce(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """While one runs, all that is enqueued is one job more, with what was enqueued last."""
    start_worker("--threads", "1")
    first = database.enqueue(tasks.hold_newest, str(tmp_path), "k", "1")
    wait_until((tmp_path / "k1started").exists)
    second, *again = [database.enqueue(tasks.hold_newest, str(tmp_path), "k", str(number)) for number in range(2, 6)]
    assert {*again} == {second}
    for name in ("k1go", "k5go"):
        (tmp_path / name).touch()
    database.wait_for(first, second)
    assert (database.result(first), database.result(second), database.unfinished()) == ("1", "5", 0)
