"""What a person does while the same row is being written by a worker: both hold, in the order of their commits."""

from typing import Any

import pytest

from django_vtqueue import control, task
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.models import Requeue, Schedule
from tests.pending import run_pending

from .bench import (
    DAY,
    Bench,
    amid_a_declaration,
    amid_a_requeue,
    amid_a_resume,
    declare,
    pause_schedule,
    resume_schedule,
    stop_requeue,
)

PAST = -1000 * DAY  # before the real clock's now


@task
def report() -> None: ...


def letters(bench: Bench, count: int) -> None:
    """Store dead letters of a task."""
    call: dict[str, Any] = {"args": [], "kwargs": {}}
    bench.publish(*[call] * count, now=PAST, queue="default", task=report.module_path)
    for job in bench.claim(PAST, queues=None, raw=False):
        assert bench.bury(job, PAST)


def schedule(bench: Bench, expression: str) -> None:
    declare(bench, "daily", report.module_path, expression)


def test_a_bulk_requeue_that_is_stopped_amid_a_step(
    backend: VTQueueBackend, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step under way is the last one, and it says who stopped the run."""
    letters(bench, 3)
    run = control.requeue_matching(rate=1, using=bench.alias)
    stop = amid_a_requeue(monkeypatch, lambda: stop_requeue(bench, run, by="anna"))
    run_pending()
    assert stop.said() == [True]
    run = Requeue.objects.using(bench.alias).get()
    assert (run.state, run.remark, run.requeued) == ("stopped", "anna", 1)


def test_a_schedule_that_is_paused_amid_a_declaration(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the new definition, and is paused."""
    schedule(bench, "0 3 * * *")
    pause = amid_a_declaration(monkeypatch, lambda: pause_schedule(bench, "daily", "anna"))
    schedule(bench, "0 4 * * *")
    assert pause.said() == [True]
    row = Schedule.objects.using(bench.alias).get()
    assert (row.expression, row.paused_by) == ("0 4 * * *", "anna")


def test_a_schedule_that_is_deleted_amid_its_resume(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was resumed, and is gone."""
    schedule(bench, "0 3 * * *")
    pause_schedule(bench, "daily", "anna")
    delete = amid_a_resume(monkeypatch, lambda: Schedule.objects.using(bench.alias).all().delete()[0])
    assert resume_schedule(bench, "daily")
    assert delete.said() == [1]
    assert not Schedule.objects.using(bench.alias).exists()
