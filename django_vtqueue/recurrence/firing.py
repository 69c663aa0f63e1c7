"""A schedule whose tick has come publishes its job, and moves on to the next tick."""

import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

from django.db.models import QuerySet

from ..backend import VTQueueBackend
from ..core.clock import from_instant, to_instant
from ..core.ids import parse_id
from ..core.ticks import MOST_MISSED, Ticks, to_run
from ..engines import Engine
from ..exceptions import QueueFull
from ..models import Job, Schedule
from ..models.jobs import UNFINISHED
from ..queue.back_pressure import publishes_as_a_job
from ..runtime.aside import Call
from ..tasks.compat import Task, TaskResult, TaskResultDoesNotExist
from ..tasks.lookup import loaded_task
from ..tasks.results import change
from ..tasks.signals import Later
from .runs import JOBS_KEPT, Run, noted, read

logger = logging.getLogger("django_vtqueue")

KEY = "schedule:"  # before its name: the unique key of the jobs of a schedule without overlap


def due(database: str, now: int) -> list[Schedule]:
    """Return the schedules whose next tick has come, the earliest first."""
    return list(_waiting(database).filter(next_at__lte=now).order_by("next_at"))


def earliest(database: str, after: int | None = None) -> int | None:
    """Return the earliest next tick, of those later than an instant; None if there is none."""
    rows = _waiting(database) if after is None else _waiting(database).filter(next_at__gt=after)
    found = rows.order_by("next_at").values_list("next_at", flat=True).first()
    return None if found is None else to_instant(found)


def _waiting(database: str):  # type: ignore[no-untyped-def]
    return Schedule.objects.using(database).filter(next_at__isnull=False, paused_at=None)


def fire(engine: Engine, backend: VTQueueBackend, row: Schedule, now: int, later: Later) -> bool:
    """Publish what is due of a schedule and move it on to its next tick, in one transaction.

    ``later``: is given what sends the signals, after the commit.
    Return whether it was published, or met its last job, which has not ended; not if another worker has done it, or
    nothing that was missed is run. Raise QueueFull, and leave the ticks for which the queue has no room, and ValueError
    if its ticks cannot be computed: another worker's machine may know its time zone. What else prevents a job is
    logged; then only the ticks after it come.
    """
    next_at, ticks = to_instant(cast(Any, row.next_at)), Ticks(row.expression, row.time_zone)
    run, more = to_run(ticks, next_at, now, row.missed)
    run = run if row.overlap else run[:1]
    following, left, signals = ticks.after(now), list[int](), list[Call]()
    try:
        with engine.atomic():
            if not _moved(engine, row, following):
                return False
            if run:
                task = cast(Task, loaded_task(row.task_path))
                published = publish(backend, task, row, run, signals.append, jitter_us=row.jitter_us)
                if left := run[len(published) :]:
                    _waiting(engine.alias).filter(pk=row.pk).update(next_at=left[0])
    except Exception as error:
        if isinstance(error, QueueFull) or engine.trouble(error):
            raise
        logger.warning("schedule %r: its job cannot be published, so this tick is left out: %r", row.name, error)
        _moved(engine, row, following)
        return False
    for tell in signals:
        later(tell)
    if more and not left:
        missed = f"{from_instant(next_at):%Y-%m-%d %H:%M:%S %Z}".strip()
        told = "schedule %r: of the ticks missed since %s only the last %d are run"
        logger.warning(told, row.name, missed, MOST_MISSED)
    if left:
        row.next_at = from_instant(left[0])
        return fire(engine, backend, row, now, later)  # raises QueueFull, unless there is room by now
    return bool(run)


def _moved(engine: Engine, row: Schedule, following: int | None) -> bool:
    """Move a schedule on, unless another process has done it, or has paused it."""
    return bool(_waiting(engine.alias).filter(pk=row.pk, next_at=row.next_at).update(next_at=following))


def publish(
    backend: VTQueueBackend, task: Task, row: Schedule, ticks: Sequence[int], later: Later, *, jitter_us: int = 0
) -> list[TaskResult]:
    """Publish a job for each of these ticks, and note them in the row of the schedule, which the caller has locked.

    Stop where the queue has no room for more; raise QueueFull if it has none at all. Without overlap there is none
    while a job of the schedule, in whatever queue it is now, has not ended. The key is for one that was requeued since,
    whose end is noted already.
    """
    task = task.using(
        **{name: value for name in ("queue_name", "priority") if (value := getattr(row, name)) not in ("", None)}
    )
    call = (row.payload["args"], row.payload["kwargs"])
    key = None if row.overlap else KEY + row.name
    table = Schedule.objects.using(backend.database).filter(pk=row.pk)
    before = noted(table.values_list("recent", flat=True).first(), backend.database, backend.now())
    if not row.overlap:
        for pk in unfinished(backend.database, before, backend.now()).values_list("pk", flat=True):
            with suppress(TaskResultDoesNotExist):  # it has just ended
                change(result := backend.get_result(str(pk)), duplicate=True)
                return [result]
    enqueue = publishes_as_a_job(backend.enqueue_tick)  # it has no user who could be told that the queue is full
    results: list[TaskResult] = []
    for tick in ticks:
        try:
            results.append(enqueue(task, call, tick + random.randrange(jitter_us + 1), key, later))
        except QueueFull:
            if not results:
                raise
            break
    new = [
        {"id": job_id.hex, "at": tick}
        for tick, result in zip(ticks, results, strict=False)
        if not getattr(result, "duplicate", False) and (job_id := parse_id(result.id))
    ]
    table.update(recent=[*reversed(new), *before][:JOBS_KEPT], **({"last_at": new[-1]["at"]} if new else {}))
    return results


def unfinished(database: str, runs: Sequence[Run], now: int) -> QuerySet[Job]:
    """Return the jobs of these runs that have not ended: without overlap a schedule waits for their end.

    Not those that are overdue, which are never run: who publishes buries one that has the key.
    """
    jobs = Job.objects.using(database).filter(UNFINISHED, pk__in=[UUID(run["id"]) for run in runs])
    return jobs.exclude(worker_id="", start_by__lte=now)


def note_ends(engine: Engine, name: str, now: int) -> bool:
    """Note in a schedule what its last jobs have come to; return whether one of them has not ended."""
    table = Schedule.objects.using(engine.alias).filter(pk=name)
    recent = read(table.values_list("recent", flat=True).first())
    if noted(recent, engine.alias, now) != recent:
        with engine.atomic():
            row = table.select_for_update().values_list("recent", flat=True)  # else it may overwrite a new job
            recent = noted(row.first(), engine.alias, now)
            table.update(recent=recent)
    return any("state" not in run for run in recent)
