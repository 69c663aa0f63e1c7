"""What a person does while the same row is being written by a worker: both hold, in the order of their commits."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from django_vtqueue import requeueing, task
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core import clock
from django_vtqueue.core.ids import new_uuid
from django_vtqueue.engines import Engine
from django_vtqueue.models import DeadLetter, Requeue, Schedule
from django_vtqueue.queue.dead_letters import Criteria
from django_vtqueue.recurrence import control, declaring
from tests.conformance import conftest as both
from tests.pending import run_pending

alias, traced, bench, engine, backend = both.alias, both.traced, both.bench, both.engine, both.backend  # of each engine

WAITS = 0.5  # seconds for one that has to wait until the other's commit


@task
def report() -> None: ...


class Amid:
    """A function of which one call has another thread act before it returns, unless that has to wait for this one."""

    def __init__(self, function: Callable[..., Any], call: int, act: Callable[[], object]) -> None:
        self.function, self.calls, self.call, self.act = function, 0, call, act
        self.said: list[object] = []
        self.thread = threading.Thread(target=self._run)

    def __call__(self, *args: Any) -> Any:
        found = self.function(*args)
        self.calls += 1
        if self.calls == self.call:
            self.thread.start()
            self.thread.join(WAITS)
        return found

    def _run(self) -> None:
        try:
            self.said.append(self.act())
        finally:
            connections.close_all()


def letters(alias: str, count: int) -> None:
    now = clock.now()
    DeadLetter.objects.using(alias).bulk_create(
        DeadLetter(
            id=new_uuid(),
            queue_name="default",
            task_path=report.module_path,
            payload={"args": [], "kwargs": {}},
            claims=1,
            attempts=1,
            max_attempts=1,
            lease_us=60_000_000,
            enqueued_at=now,
            died_at=now - number - 1,
            exception_class="builtins.OSError",
            fingerprint="f",
        )
        for number in range(count)
    )


def declaration(expression: str) -> Schedule:
    call = {"args": [], "kwargs": {}}
    return Schedule(
        name="daily", task_path=report.module_path, expression=expression, time_zone="UTC", payload=call, declared=True
    )


def test_a_bulk_requeue_that_is_stopped_amid_a_step(backend: VTQueueBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step under way is the last one, and it says who stopped the run."""
    alias = backend.database
    letters(alias, 3)
    run = requeueing.start(Criteria(), rate=1, using=alias)
    stop = Amid(requeueing.advance, 1, lambda: requeueing.stop(run.pk, alias, by="anna"))
    monkeypatch.setattr(requeueing, "advance", stop)
    run_pending()
    stop.thread.join()
    run = Requeue.objects.using(alias).get()
    assert (stop.said, run.state, run.remark, run.requeued) == ([True], "stopped", "anna", 1)


def test_a_schedule_that_is_paused_amid_a_declaration(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the new definition, and is paused."""
    now, mine = engine.now(), {"daily": declaration("0 3 * * *")}
    declaring.write_down(engine, mine, now, started=True)
    mine["daily"] = declaration("0 4 * * *")
    # The first call is a look without a lock: whether there is anything to write.
    pause = Amid(declaring._as_declared, 2, lambda: control.pause("daily", "anna", engine.alias))
    monkeypatch.setattr(declaring, "_as_declared", pause)
    declaring.write_down(engine, mine, now, started=True)
    pause.thread.join()
    row = Schedule.objects.using(engine.alias).get()
    assert (pause.said, row.expression, row.paused_by) == ([True], "0 4 * * *", "anna")


def test_a_schedule_that_is_deleted_amid_its_resume(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was resumed, and is gone."""
    declaring.write_down(engine, {"daily": declaration("0 3 * * *")}, engine.now(), started=True)
    control.pause("daily", "anna", engine.alias)
    delete = Amid(control.set_next, 1, lambda: Schedule.objects.using(engine.alias).all().delete()[0])
    monkeypatch.setattr(control, "set_next", delete)
    assert control.resume("daily", engine.alias)
    delete.thread.join()
    assert (delete.said, Schedule.objects.using(engine.alias).count()) == ([1], 0)
