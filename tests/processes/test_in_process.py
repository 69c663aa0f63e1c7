"""Workers in a process that has other things to do: ``call_command("vtworker", drain=True)``."""

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from django.core.checks import CheckMessage, Tags
from django.core.checks.registry import registry
from django.core.management import call_command
from django.db import OperationalError, connections
from django.db.models.signals import post_delete
from pytest_django import Settings

from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from . import inside
from .database import Database
from .inside import task_finished, task_started
from .running import Start

Work = Callable[..., str]


@pytest.fixture
def work(database: Database, settings: Settings) -> Work:
    """Return a function that drains the queue in this process, and returns the log."""
    settings.TASKS = database.tasks

    def work(**options: Any) -> str:
        log = io.StringIO()
        call_command("vtworker", drain=True, stderr=log, **options)
        return log.getvalue()

    return work


@pytest.fixture
def deletions() -> Iterator[list[object]]:
    """Listen to every deletion, as an audit log does: Django then begins a transaction for each."""
    seen: list[object] = []

    def receiver(instance: object, **kwargs: Any) -> None:
        seen.append(instance)

    post_delete.connect(receiver)
    yield seen
    post_delete.disconnect(receiver)


def test_it_has_no_children(database: Database, work: Work) -> None:
    """``processes`` is for a process of one's own: here the jobs run in threads of the caller's."""
    database.options["processes"] = 2
    job_ids = [database.enqueue(tasks.where) for _ in range(2)]
    work(processes=2)
    assert {database.result(job_id)[0] for job_id in job_ids} == {os.getpid()}


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_session_that_ends_while_a_worker_starts_is_replaced(
    database: Database, work: Work, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind a restart of the server, say: the worker begins a moment later, and does not end with a traceback."""
    job_id, ended = database.enqueue(tasks.add, 1, 2), []

    def end_session(**kwargs: Any) -> list[CheckMessage]:
        if not ended:
            ended.append(True)
            with suppress(OperationalError), connections[ALIAS].cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return []

    end_session.tags = (Tags.database,)  # type: ignore[attr-defined]
    monkeypatch.setattr(registry, "registered_checks", registry.registered_checks | {end_session})
    work()
    assert "the database cannot be reached" in caplog.text
    assert database.succeeded(job_id)


def test_a_slow_receiver_keeps_no_other_job_waiting(database: Database, work: Work) -> None:
    """While a receiver of task_finished takes its time over one job, the next one runs, and is settled."""
    first, second = (database.enqueue(tasks.add, number, 0) for number in range(2))
    heard, waited = [], []

    def receiver(task_result: Any, **kwargs: Any) -> None:
        heard.append(task_result.id)
        if len(heard) == 1:
            waited.append(wait_until(lambda: database.succeeded(first, second)))

    task_finished.connect(receiver)
    try:
        work(threads=1)
    finally:
        task_finished.disconnect(receiver)
    assert waited == [True]
    assert len(heard) == 2


def test_settling_and_claiming_in_transactions_of_their_own(
    database: Database, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where threads that compute make transactions long, each has half the statements; nothing else changes."""
    inside.long_transactions(monkeypatch)
    done = database.enqueue_many(tasks.add, [(1, 2)] * 100)
    died = [database.enqueue(tasks.raise_it, "BaseException") for _ in range(3)]
    work(threads=2)
    # Claims may be more: what was claimed ahead, and waits for its thread for 20 ms, is given back before it begins.
    assert {(row["state"], row["attempts"]) for row in map(database.job, done)} == {("SUCCESSFUL", 1)}
    assert all(database.letter(job_id)["attempts"] == 1 for job_id in died)


def test_a_turn_claims_no_more_than_others_can_wait_for(
    database: Database, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast jobs end: those of one turn, which began at one moment, are 20, and one for each thread."""
    inside.at_most_at_once(monkeypatch, 20)
    job_ids = database.enqueue_many(tasks.add, [(number, 1) for number in range(1000)])
    work(threads=2)
    begun = Counter(database.job(job_id)["started_at"] for job_id in job_ids)
    assert begun.total() == 1000
    assert max(begun.values()) <= 22


def test_where_every_deletion_is_listened_to(
    database: Database, work: Work, start_worker: Start, deletions: list[object]
) -> None:
    """A worker takes its own row away, and that of a dead one, without the transaction that deleting would begin."""
    killed = start_worker()
    wait_until(database.workers)
    killed.kill()
    job_id = database.enqueue(tasks.add, 1, 2)
    assert "waiting" not in work()
    assert database.succeeded(job_id)
    assert database.workers() == []
    assert deletions == []


def test_what_a_job_keeps_in_a_context_variable_ends_with_it(database: Database, work: Work) -> None:
    """No later job of its thread sees it, whether the task has set it, or a receiver for it: a scope of Sentry, say."""
    who: ContextVar[str] = ContextVar("who", default="nobody")
    seen = []

    def receiver(**kwargs: Any) -> None:
        seen.append(who.get())
        who.set("the last job")

    for _ in range(3):
        database.enqueue(tasks.add, 1, 2)
    for signal in (task_started, task_finished):
        signal.connect(receiver)
    try:
        work(threads=1)
    finally:
        for signal in (task_started, task_finished):
            signal.disconnect(receiver)
    assert Counter(seen) == {"nobody": 6}
