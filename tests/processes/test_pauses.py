"""A real worker beside queues that are paused and resumed."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from django_vtqueue.control import pause, resume
from django_vtqueue.models import QueueState
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import Database
from .held import begin
from .inside import NEVER_LOOKS
from .running import PATIENCE, Running, Start

Drain = Callable[..., Running]


@pytest.fixture(autouse=True)
def same_settings(settings: Settings, database: Database) -> None:
    """Give this process the settings of the workers: those say where the doorbells are."""
    settings.TASKS = database.tasks


@pytest.mark.parametrize("arguments", [(), ("--queues", "a,b")], ids=" ".join)
def test_a_paused_queue_waits_until_it_is_resumed(
    database: Database, start_worker: Start, arguments: tuple[str, ...]
) -> None:
    """Nothing of it is claimed, whatever its priority, while other queues go on; then all of it runs."""
    start_worker(*arguments)
    pause("a", using=ALIAS)
    waiting = [database.enqueue(tasks.add.using(queue_name="a", priority=9), 1, 2) for _ in range(5)]
    others = [database.enqueue(tasks.add.using(queue_name="b"), 1, 2) for _ in range(5)]
    database.wait_for(*others)
    assert [database.job(job_id)["claims"] for job_id in waiting] == [0] * 5
    assert resume("a", using=ALIAS)
    database.wait_for(*waiting)


def test_resuming_wakes_the_workers(database: Database, start_worker: Start) -> None:
    """What waited runs at once: the bell was rung."""
    start_worker(constants=NEVER_LOOKS)
    pause("a", using=ALIAS)
    job_id = database.enqueue(tasks.add.using(queue_name="a"), 1, 2)
    other = database.enqueue(tasks.add.using(queue_name="b"), 1, 2)
    database.wait_for(other)
    resume("a", using=ALIAS)
    database.wait_for(job_id)


def test_when_the_pause_ends_its_jobs_run_by_themselves(database: Database, start_worker: Start) -> None:
    """A worker that knows of them wakes at the end of the pause, and not before."""
    start_worker(constants=NEVER_LOOKS)
    pause("a", until=2, using=ALIAS)
    [(end,)] = database.rows("SELECT paused_until FROM vtqueue_queuestate")
    job_id = database.enqueue(tasks.add.using(queue_name="a"), 1, 2)
    database.wait_for(job_id)
    assert 0 <= database.job(job_id)["started_at"] - end < PATIENCE * 1_000_000
    wait_until(lambda: not QueueState.objects.using(ALIAS).exists())


def test_a_job_that_runs_goes_on_to_its_end(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Its queue is paused while it runs: it succeeds. The one behind it waits."""
    start_worker("--threads", "1")
    running = begin(database, tmp_path)
    pause("default", using=ALIAS)
    behind = database.enqueue(tasks.add, 1, 2)
    other = database.enqueue(tasks.add.using(queue_name="b"), 1, 2)
    (tmp_path / "go").touch()
    database.wait_for(running, other)
    assert database.job(behind)["claims"] == 0


def test_a_drain_leaves_paused_queues(database: Database, drain: Drain) -> None:
    """--drain ends when nothing of the others is due, whether the pause has an end or not."""
    pause("a", using=ALIAS)
    pause("b", until=timedelta(hours=1), using=ALIAS)
    left = [database.enqueue(tasks.add.using(queue_name=name), 1, 2) for name in "ab"]
    done = database.enqueue_many(tasks.add, [(1, 2)] * 2)
    assert "done: 2 attempts;" in drain().lines("vtworker")[-1]
    assert database.succeeded(*done)
    assert [database.job(job_id)["claims"] for job_id in left] == [0, 0]


def test_a_drain_waits_for_pauses_that_end_in_its_time(database: Database, drain: Drain) -> None:
    """--drain-retries 60 runs what becomes due within a minute, as by the end of a pause."""
    pause("a", until=1, using=ALIAS)
    pause("b", until=timedelta(hours=1), using=ALIAS)
    soon, late = (database.enqueue(tasks.add.using(queue_name=name), 1, 2) for name in "ab")
    drain("--drain-retries", "60")
    assert database.succeeded(soon)
    assert database.job(late)["claims"] == 0
