"""What people do amid a step of a worker, or of each other: the step is held up until it is done, or has to wait."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from django_vtqueue import requeueing
from django_vtqueue.models import Requeue, Schedule
from django_vtqueue.recurrence import control, declaring

from .queue import Bench

WAITS = 0.5  # seconds for one that has to wait until the other's commit


class Amid:
    """A function of which one call has another thread act before it returns, unless that has to wait for this one."""

    def __init__(self, function: Callable[..., Any], call: int, act: Callable[[], object]) -> None:
        self.function, self.calls, self.call, self.act = function, 0, call, act
        self.thread = threading.Thread(target=self._run)
        self._said: list[object] = []

    def __call__(self, *args: Any) -> Any:
        found = self.function(*args)
        self.calls += 1
        if self.calls == self.call:
            self.thread.start()
            self.thread.join(WAITS)
        return found

    def said(self) -> list[object]:
        """Return what the act has returned, once it is done."""
        self.thread.join()
        return self._said

    def _run(self) -> None:
        try:
            self._said.append(self.act())
        finally:
            connections.close_all()


def amid_a_requeue(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> Amid:
    """Do something amid the first step of a requeue of many dead letters."""
    amid = Amid(requeueing.advance, 1, act)
    patch.setattr(requeueing, "advance", amid)
    return amid


def amid_a_declaration(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> Amid:
    """Do something while a worker writes a declaration of its code down, behind the look whether there is one."""
    amid = Amid(declaring._as_declared, 2, act)
    patch.setattr(declaring, "_as_declared", amid)
    return amid


def amid_a_resume(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> Amid:
    """Do something while a schedule is resumed."""
    amid = Amid(vars(control)["set_next"], 1, act)
    patch.setattr(control, "set_next", amid)
    return amid


def stop_requeue(bench: Bench, run: Requeue, by: str) -> bool:
    """Stop a requeue of many dead letters, as people do; return whether it went on."""
    return requeueing.stop(run.pk, bench.alias, by=by)


def declare(bench: Bench, name: str, task_path: str, expression: str) -> None:
    """Have a worker that has just started write down what its code says of a schedule."""
    call: dict[str, Any] = {"args": [], "kwargs": {}}
    row = Schedule(name=name, task_path=task_path, expression=expression, time_zone="UTC", payload=call, declared=True)
    declaring.write_down(bench.engine, {name: row}, bench.now(), started=True)


def pause_schedule(bench: Bench, name: str, by: str) -> bool:
    """Pause a schedule, as people do; return whether it was not paused."""
    return control.pause(name, by, bench.alias)


def resume_schedule(bench: Bench, name: str) -> bool:
    """Resume a schedule, as people do; return whether it was paused."""
    return control.resume(name, bench.alias)
