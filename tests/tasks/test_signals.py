"""Signals of the Tasks framework that nobody receives are not sent, nor is a result made for them."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any
from unittest import mock

import pytest
from django.dispatch import Signal
from pytest_django import Settings

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core import history
from django_vtqueue.core.failures import Failure
from django_vtqueue.core.job import HeldJob, Scope
from django_vtqueue.core.settlement import failed
from django_vtqueue.engines import engine_for
from django_vtqueue.exceptions import UnknownTask
from django_vtqueue.execution.execute import execute
from django_vtqueue.execution.outcomes import Outcome, announce, burial
from django_vtqueue.queue.claims import Claims, collect
from django_vtqueue.tasks import lookup
from django_vtqueue.tasks.compat import (
    FRAMEWORK_LOGGER,
    TaskResultStatus,
    signals,
    task_enqueued,
    task_finished,
    task_started,
)
from django_vtqueue.tasks.signals import received
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.thread_pool import Pool
from tests import project
from tests.conformance.conftest import configure
from tests.project import limited, tasks
from tests.project.broken import BROKEN

from ..waiting import PATIENCE

SIGNALS = [task_enqueued, task_started, task_finished]


@pytest.fixture
def backend(sqlite_file: str, settings: Settings) -> VTQueueBackend:
    return configure(settings, sqlite_file)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Have the framework's log written from WARNING on, as a worker does where nobody would see more."""
    framework = logging.getLogger(FRAMEWORK_LOGGER)
    framework.setLevel(logging.WARNING)
    yield
    framework.setLevel(logging.NOTSET)


@contextmanager
def connected(signal: Signal, **options: Any) -> Iterator[list[Any]]:
    """Receive a signal during the block; gives the results that were told."""
    results: list[Any] = []

    def receiver(task_result: Any, **kwargs: Any) -> None:
        results.append(task_result)

    signal.connect(receiver, **options)
    try:
        yield results
    finally:
        options.pop("weak", None)
        assert signal.disconnect(receiver, **options)


def held(backend: VTQueueBackend) -> HeldJob:
    """Return the one job that is due, claimed."""
    engine = engine_for(backend.database)
    with engine.transaction():
        taken = Claims(engine).claim([Scope(None, raw=False)], 1, "host:1:a", engine.now())
    [job] = collect(engine, taken)
    return job


def outcome_of(backend: VTQueueBackend, enqueue: Callable[[], object], *, inline: bool = False) -> Outcome:
    enqueue()
    return execute(held(backend), backend, inline=inline)


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_receiver_in_the_place_of_the_log_is_told(signal: Signal) -> None:
    """Whatever it is known by: Django only compares what it is given."""
    [log] = [function for function in vars(signals).values() if id(function) == signal.receivers[0][0][0]]
    signal.disconnect(log)
    try:
        assert not received(signal)
        with connected(signal, dispatch_uid=["mine"]):
            assert received(signal)
    finally:
        signal.connect(log)


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_receiver_is_told(signal: Signal) -> None:
    """However it was connected: for all senders or for one, held weakly or not."""
    assert not received(signal)
    how: list[dict[str, Any]] = [{}, {"weak": False}, {"sender": VTQueueBackend}, {"dispatch_uid": "mine"}]
    for options in how:
        with connected(signal, **options):
            assert received(signal)
    assert not received(signal)


def test_the_task_of_a_dead_letter_is_not_loaded(backend: VTQueueBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import may be what its worker has died of; a receiver that enqueues it again does so with all its options."""
    limited.in_order.enqueue("", 0, 7, 1)
    job = held(backend)
    monkeypatch.delattr(project, "limited")
    monkeypatch.delitem(sys.modules, limited.__name__)
    monkeypatch.setattr(lookup, "found_tasks", {})
    failure = Failure("django_vtqueue.exceptions.WorkerDied", "Its worker died.", "", "")
    letter = failed(job, history.WORKER_DIED, failure, backend.now(), None)
    with connected(task_finished) as results:
        announce(burial(letter, backend), backend)
    [result] = results
    assert result.task.module_path == limited.in_order.module_path
    assert limited.__name__ not in sys.modules
    result.task.using(priority=5).enqueue(*result.args, **result.kwargs)
    assert (again := held(backend)).priority == 5
    assert (again.concurrency_key, again.max_attempts) == (job.concurrency_key, job.max_attempts)
    gone = replace(job, task_path="tests.project.limited.gone")
    with connected(task_finished) as results:
        announce(burial(failed(gone, history.WORKER_DIED, failure, backend.now(), None), backend), backend)
    with pytest.raises(UnknownTask, match="limited has no task of that name"):
        results[0].task.enqueue()


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_receiver_in_the_place_of_djangos_is_told(signal: Signal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may disconnect what writes Django's log, and connect its own."""
    with connected(signal), monkeypatch.context() as patch:
        patch.setattr(signal, "receivers", signal.receivers[1:])
        assert received(signal)
        patch.setattr(signal, "receivers", [])
        assert not received(signal)


def test_a_receiver_that_bears_the_name_of_djangos_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a decorator gives it one; another function of that name is another one, too."""
    [(_, reference, *_)] = task_finished.receivers

    @wraps(reference())
    def mine(**kwargs: Any) -> None:
        pass

    monkeypatch.setattr(task_finished, "receivers", [])
    task_finished.connect(mine)
    assert received(task_finished)


@pytest.mark.parametrize("name", ["send", "send_robust"])
def test_a_mock_in_the_place_of_send_is_told(name: str) -> None:
    """As a project's tests may have it."""
    with mock.patch.object(task_started, name):
        assert received(task_started)
    assert not received(task_started)


@pytest.mark.parametrize(
    ("signal", "level"),
    [(task_enqueued, logging.DEBUG), (task_started, logging.INFO), (task_finished, logging.INFO)],
)
def test_the_log_is_told_at_its_level(signal: Signal, level: int, caplog: pytest.LogCaptureFixture) -> None:
    """Django writes that a task was enqueued at DEBUG, the rest at INFO."""
    with caplog.at_level(level, logger=FRAMEWORK_LOGGER):
        assert received(signal)
    with caplog.at_level(level + 1, logger=FRAMEWORK_LOGGER):
        assert not received(signal)


def test_djangos_log_has_its_lines(backend: VTQueueBackend, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever asks for them has all three, and nothing else is needed for it."""
    with caplog.at_level(logging.DEBUG, logger=FRAMEWORK_LOGGER):
        announce(outcome_of(backend, lambda: tasks.add.enqueue(1, 2)), backend)
    words = [record.getMessage().partition("path=tests.project.tasks.add ")[2] for record in caplog.records]
    assert words == ["enqueued backend=default", "state=RUNNING", "state=SUCCESSFUL"]


def test_without_receivers_no_result_is_made(backend: VTQueueBackend) -> None:
    """A job that went well is stored, and that is all."""
    outcome = outcome_of(backend, lambda: tasks.add.enqueue(1, 2))
    assert outcome.settlement.result == "3"
    assert outcome.result is None
    assert not announce(outcome, backend)


def test_a_receiver_of_the_end_alone(backend: VTQueueBackend) -> None:
    """It is told all there is to tell, though nobody wanted to know of the start."""
    with connected(task_finished) as finished:
        assert announce(outcome_of(backend, lambda: tasks.add.using(priority=7).enqueue(1, b=2)), backend)
    [result] = finished
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 3)
    assert (result.args, result.kwargs, result.task.priority) == ([1], {"b": 2}, 7)
    assert result.worker_ids == ["host:1:a"]
    assert result.enqueued_at <= result.started_at <= result.finished_at


def test_a_failure_is_always_told(backend: VTQueueBackend, caplog: pytest.LogCaptureFixture) -> None:
    """At ERROR: whatever the level below it, the log line with the traceback is written, and mail to ADMINS sent."""
    outcome = outcome_of(backend, lambda: tasks.raise_it.enqueue("BaseException"))
    assert outcome.result is not None
    assert outcome.result.errors
    assert announce(outcome, backend)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("kind", ["exit", *BROKEN])
def test_whatever_receivers_raise_is_logged(
    backend: VTQueueBackend, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """However broken it is, and what the task has raised: nothing comes of it for what is told next."""
    error = SystemExit(3) if kind == "exit" else BROKEN[kind]()
    told: list[str] = []

    def receiver(task_result: Any, **kwargs: Any) -> None:
        told.append(task_result.id)
        raise error

    counts: list[int] = []
    ended = threading.Event()
    log = WorkerLog()
    log.listeners.append(lambda jobs: counts.append(jobs) or len(counts) < 3 or ended.set())
    pool = Pool(1, backend, log, lambda outcome: None)
    pool.start()
    finished = [outcome_of(backend, lambda: tasks.raise_it.enqueue("BaseException")) for _ in range(3)]
    task_finished.connect(receiver)
    try:
        pool.announce(finished)
        assert ended.wait(PATIENCE)
        pool.stop(10)
    finally:
        task_finished.disconnect(receiver)
    assert counts == [1, 1, 1]
    assert told == [outcome.result.id for outcome in finished if outcome.result]
    assert "met an error and goes on" not in caplog.text


def test_who_runs_jobs_inline_is_given_their_results(backend: VTQueueBackend) -> None:
    """``run_pending`` returns them, whoever else listens."""
    outcome = outcome_of(backend, lambda: tasks.add.enqueue(1, 2), inline=True)
    assert outcome.result is not None
    assert outcome.result.return_value == 3


def test_a_task_that_takes_the_context_has_its_result(backend: VTQueueBackend) -> None:
    """With the attempt and all, though no signal is sent."""
    outcome = outcome_of(backend, lambda: tasks.fail_first.enqueue(0))
    assert outcome.settlement.result == "1"
