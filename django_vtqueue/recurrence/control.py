"""What people see of schedules, and do with them: each with its state and its last runs; pause, resume, run now."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

from django.db.models import F

from ..backend import VTQueueBackend
from ..core.ticks import Ticks
from ..engines import engine_for
from ..models import Schedule
from ..queue.arguments import checked_by
from ..runtime.aside import Call
from ..tasks.compat import InvalidTask, TaskResult
from ..tasks.lookup import find_task
from .declaring import set_next, vanished
from .firing import publish
from .runs import read, states_of, with_states

ACTIVE, PAUSED, VANISHED, OVER = "active", "paused", "vanished", "over"


class Listed(NamedTuple):
    """``state``: active, paused, vanished (see declaring.py), over (it never comes again).

    ``runs``: the latest first, each with its state; see recurrence/runs.py.
    """

    row: Schedule
    state: str
    words: str
    runs: list[dict[str, Any]]


def listed(database: str, rows: Iterable[Schedule] | None = None) -> list[Listed]:
    """Return these schedules, or all of a database, by name."""
    with engine_for(database).snapshot() as now:
        rows = list(Schedule.objects.using(database).order_by("name") if rows is None else rows)
        runs = {row.name: read(row.recent) for row in rows}
        known = states_of(chain.from_iterable(runs.values()), database, now)
    gone = vanished(rows, database, now) if rows else set()  # it may import the project's tasks
    return [Listed(row, state_of(row, gone), words(row), with_states(runs[row.name], known)) for row in rows]


def words(row: Schedule) -> str:
    return Ticks(row.expression, row.time_zone).in_words()


def state_of(row: Schedule, gone: set[str]) -> str:
    if row.name in gone:
        return VANISHED
    if row.paused_at is not None:
        return PAUSED
    return OVER if row.next_at is None else ACTIVE


def pause(name: str, by: str, database: str) -> bool:
    """Have a schedule publish nothing until it is resumed; return False if it is paused already, or not there."""
    return bool(
        _of(name, database, paused_at=None).update(paused_at=engine_for(database).now(), paused_by=checked_by(by))
    )


def resume(name: str, database: str) -> bool:
    """Have a schedule go on with its next tick to come: of a pause nothing is missed. Return False as ``pause``."""
    engine = engine_for(database)
    with engine.atomic():
        row = _of(name, database, paused_at__isnull=False).select_for_update().first()
        if row is None:
            return False
        row.paused_at, row.paused_by = None, ""
        set_next(row, engine.now())
        row.save(using=database, update_fields=["paused_at", "paused_by", "next_at"])
    return True


def run_now(row: Schedule, database: str, task_modules: Sequence[str] = ()) -> TaskResult:
    """Publish a job of a schedule at once, whatever its ticks and its pause.

    ``task_modules``: see find_task. Raise UnknownTask, and what ``enqueue`` raises.
    """
    task = find_task(row.task_path, task_modules)
    backend = cast(VTQueueBackend, task.get_backend())
    if getattr(backend, "database", None) != database:
        raise InvalidTask(f"{row.task_path} is of TASKS[{task.backend!r}], which keeps no jobs in {database!r}.")
    engine = engine_for(database)
    signals: list[Call] = []
    with engine.atomic():
        _of(row.name, database).update(last_at=F("last_at"))  # locks the row before a key, as a tick does
        [result] = publish(backend, task, row, [engine.now()], signals.append)
    for tell in signals:
        tell()
    return result


def _of(name: str, database: str, **conditions: Any):  # type: ignore[no-untyped-def]
    return Schedule.objects.using(database).filter(pk=name, **conditions)
