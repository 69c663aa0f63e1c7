"""What a test does amid the work of the package, how much of it is done at a time, and what must not be done."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connections
from django.test import RequestFactory

from django_vtqueue.admin.overview import overview
from django_vtqueue.core import clock
from django_vtqueue.engines import engine_for, portable
from django_vtqueue.queue import claims, queue
from django_vtqueue.tasks import recurring, rows

from .limited import Limited
from .moments import SECOND
from .queue import Bench

ROWS_AT_A_TIME = rows.CHUNK  # that a loop over a queryset reads


# -- how much at a time ------------------------------------------------------------------------------------------------


def loops_read(patch: pytest.MonkeyPatch, number: int) -> None:
    """Have a loop over a queryset read so many rows at a time."""
    patch.setattr(rows, "CHUNK", number)


def statements_take(patch: pytest.MonkeyPatch, payloads: int, characters: int) -> None:
    """Have a statement take so many payloads, and so long ones, at the most."""
    patch.setattr(portable, "SLICE", payloads)
    patch.setattr(portable, "MOST_CHARACTERS", characters)


def claims_end(patch: pytest.MonkeyPatch, leases: int) -> None:
    """Have a claim end so many leases of tasks, and as many of payloads, at the most."""
    patch.setattr(claims, "ENDED_BATCH", leases)


def letters_before_each_batch(bench: Bench, patch: pytest.MonkeyPatch, jobs: int) -> list[int]:
    """Have so many jobs be cancelled at a time; return the numbers of dead letters that others see before each."""
    patch.setattr("django_vtqueue.core.ids.SLICE", jobs)
    engine, seen = engine_for(bench.alias), list[int]()
    request_cancel = engine.request_cancel

    def counted(*values: Any) -> Any:
        with closing(connections[bench.alias].copy()) as other, other.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM vtqueue_deadletter")
            seen.append(cursor.fetchone()[0])
        return request_cancel(*values)

    patch.setattr(engine, "request_cancel", counted)
    return seen


# -- amid the work -----------------------------------------------------------------------------------------------------


def while_a_queue_waits(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something while ``Queue.claim`` leaves a moment to the holder of a lease that has ended."""
    patch.setattr(queue, "_gap_watches", {})
    patch.setattr(clock, "wait", lambda seconds: act())


def while_limits_are_read(limited: Limited, patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something each time when a claim has found jobs, and asks what their limits have in use."""
    look_up = limited.engine.look_up

    def looked_up(**asked: Any) -> Any:
        act()
        return look_up(**asked)

    patch.setattr(limited.engine, "look_up", looked_up)


def while_moments_are_booked(limited: Limited, patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something each time when a claim books moments for jobs that come too early."""
    book = limited.engine.book

    def booked(moments: Any) -> None:
        act()
        book(moments)

    patch.setattr(limited.engine, "book", booked)


def before_the_next_write(bench: Bench, patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, before the next transaction that writes."""
    transaction = bench.engine.transaction

    def acted() -> AbstractContextManager[object]:
        patch.setattr(bench.engine, "transaction", transaction)
        act()
        return transaction()

    patch.setattr(bench.engine, "transaction", acted)


def looks_fail(limited: Limited, patch: pytest.MonkeyPatch) -> None:
    """Have each look at what is parked raise ZeroDivisionError."""
    patch.setattr(limited.engine, "parked", lambda after, limit: 1 / 0)


# -- what must not be done ---------------------------------------------------------------------------------------------


def nothing_is_parked(limited: Limited, patch: pytest.MonkeyPatch) -> None:
    """Fail as soon as a job is parked."""
    patch.setattr(type(limited.engine), "park", lambda *args: pytest.fail("parked again"))


def nothing_is_booked(limited: Limited, patch: pytest.MonkeyPatch) -> None:
    """Fail as soon as a moment is booked."""
    patch.setattr(type(limited.engine), "book", lambda *args: pytest.fail("moved again"))


def nothing_is_written(limited: Limited, patch: pytest.MonkeyPatch) -> None:
    """Fail as soon as the right to write is taken."""
    patch.setattr(type(limited.engine), "transaction", lambda engine: pytest.fail("it writes"))


# -- time and schedules ------------------------------------------------------------------------------------------------


def later(seconds: float) -> AbstractContextManager[None]:
    """Have it be so much later for all databases in the block, as ``run_pending(until=…)`` does."""
    return clock.with_offset(round(seconds * SECOND))


@contextmanager
def no_schedules(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Know no recurring task but those of the block, and these only in it."""
    known: dict[Any, Any] = {}
    patch.setattr(recurring, "_functions", known)
    try:
        yield
    finally:
        for function in known.values():
            vars(function).pop(recurring.ATTRIBUTE, None)


def shown_to_a_superuser() -> dict[str, Any]:
    """Return what the first page of the admin shows."""
    request = RequestFactory().get("/admin/vtqueue/")
    request.user = SimpleNamespace(has_perm=lambda name: True)  # type: ignore[assignment]
    request.current_app = "admin"
    request.resolver_match = None
    models = [{"object_name": name, "admin_url": f"/{name}/"} for name in ("Job", "DeadLetter", "WorkerProcess")]
    return overview(request, [{"app_label": "vtqueue", "app_url": "/admin/vtqueue/", "models": models}])
