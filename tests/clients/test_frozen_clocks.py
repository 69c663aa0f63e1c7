"""freezegun and time-machine: a test that stops the clock is waited for no longer than it says."""

import sqlite3
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import Any

import pytest
import time_machine
from django.core.management import call_command
from django.db import OperationalError, connections
from freezegun import freeze_time

from django_vtqueue import Lease, Queue, TaskResultStatus, task, wait_for_result
from django_vtqueue.runtime.signal_safe_queue import SignalSafeQueue
from django_vtqueue.testing import run_pending
from tests.project import tasks

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["freezegun", "time-machine"])
def frozen(request: pytest.FixtureRequest) -> AbstractContextManager[Any]:
    """Return a context manager in which the time is NOON, and stands still."""
    return freeze_time(NOON) if request.param == "freezegun" else time_machine.travel(NOON, tick=False)


pytestmark = pytest.mark.timeout(60, func_only=True)  # without the start of a server


@task(timeout=0.2)
def loops() -> None:
    while True:
        pass


@pytest.fixture(params=["sqlite_file", "postgresql_database"])
def database(request: pytest.FixtureRequest, settings: Any) -> str:
    """Return the alias of an empty database of this kind, in which the queue is."""
    alias = str(request.getfixturevalue(request.param))
    settings.TASKS = {**settings.TASKS, "default": {**settings.TASKS["default"], "OPTIONS": {"database": alias}}}
    return alias


def test_a_wait_for_a_message_ends(frozen: AbstractContextManager[Any]) -> None:
    """A wait ends after its seconds, although no clock of Python goes on."""
    with frozen, pytest.raises(Empty):
        SignalSafeQueue[int]().get(0.001)


def test_a_wait_for_a_result_ends(frozen: AbstractContextManager[Any], database: str) -> None:
    """``wait_for_result`` raises TimeoutError after its seconds."""
    with frozen, pytest.raises(TimeoutError):
        wait_for_result(tasks.add.enqueue(1, 2), timeout=0.2)


def test_a_wait_for_a_lease_ends(frozen: AbstractContextManager[Any], database: str) -> None:
    """``Lease.acquire`` returns False after its timeout."""
    with frozen, Lease("import", using=database):
        assert not Lease("import", using=database).acquire(timeout=0.2)


def test_the_time_of_a_task_is_up(frozen: AbstractContextManager[Any], database: str) -> None:
    """A task's ``timeout`` ends it."""
    with frozen:
        loops.enqueue()
        (result,) = run_pending(raise_errors=False)
    assert result.errors[0].exception_class_path == "django_vtqueue.exceptions.TaskTimeout"


def test_a_wait_for_the_lock_of_sqlite_ends(frozen: AbstractContextManager[Any], sqlite_file: str) -> None:
    """A publish gives up when the database was locked for as long as its ``timeout`` says."""
    connections[sqlite_file].cursor().execute("PRAGMA busy_timeout = 200")
    with closing(sqlite3.connect(connections[sqlite_file].settings_dict["NAME"])) as other:
        other.execute("BEGIN IMMEDIATE")
        with frozen, pytest.raises(OperationalError, match="locked"):
            Queue("sensors", using=sqlite_file).publish(1)


def test_a_worker_in_the_test_drains(frozen: AbstractContextManager[Any], database: str) -> None:
    """``call_command("vtworker", drain=True)`` runs what is due, and ends."""
    with frozen:
        result = tasks.add.enqueue(1, 2)
        call_command("vtworker", drain=True, verbosity=0)
    assert tasks.add.get_result(result.id).status is TaskResultStatus.SUCCESSFUL


def test_run_pending_lets_time_pass(frozen: AbstractContextManager[Any], database: str) -> None:
    """``until`` runs what is scheduled for later on both databases, whatever moves the clock of Python."""
    with frozen:
        result = tasks.add.using(run_after=timedelta(hours=1)).enqueue(1, 2)
        assert run_pending() == []
        (done,) = run_pending(until=timedelta(hours=1))
    assert (done.id, done.return_value) == (result.id, 3)


def test_a_moved_clock_of_python_makes_jobs_due_on_sqlite_only(
    frozen: AbstractContextManager[Any], database: str
) -> None:
    """What is scheduled for later is due when the test has moved its clock; on PostgreSQL the server's clock counts."""
    result = tasks.add.using(run_after=timedelta(minutes=5)).enqueue(1, 2)
    with frozen:
        due = [done.id for done in run_pending()]
    assert due == ([result.id] if connections[database].vendor == "sqlite" else [])
