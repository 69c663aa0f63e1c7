"""Declarations become rows. In a deploy workers of old and of new code run side by side, and all of it must hold.

A worker publishes only for rows that are as its own code declares them (``runnable``). So at any time a row should be
as the code of some live worker has it: each says in its row of WorkerProcess what it declares. At its start a worker
writes down its own declarations, since what is started last is most probably new. Later it does so only where the row
is as no live worker declares it: those that did have left. A row that no live worker declares at all has vanished from
the code: it is never run, and it is not deleted, for with the next deploy it may be back. Where no worker lives, as
between two drains, the code of the process that asks says what has vanished. It always says so of a row of the admin,
for no worker says which tasks it has: the row has vanished if its task does not exist.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b

from django.db.models import Q

from ..conf import configured
from ..core.clock import SECOND, from_instant, to_instant
from ..core.ticks import Ticks
from ..engines import Engine, database_of
from ..exceptions import UnknownTask
from ..models import Schedule
from ..queue.workers import live_workers
from ..tasks.lookup import find_task, import_task_modules, loaded_task
from ..tasks.recurring import declarations

logger = logging.getLogger("django_vtqueue")

DEFINITION = ("task_path", "expression", "time_zone", "payload", "missed", "overlap", "jitter_us")
OVERDUE = 60 * SECOND  # after its tick: no worker runs it
WRONG_CLOCK = 7 * 24 * 3600 * SECOND  # a tick was run so long from now: the clock was wrong then


def declared(backend_alias: str) -> dict[str, Schedule]:
    """Return what loaded code declares for the tasks of a backend, as rows that are not stored, by name."""
    found = {}
    for name, each in declarations():
        if (task := each.task) and task.backend == backend_alias:
            found[name] = Schedule(
                name=name,
                task_path=each.path,
                expression=each.expression,
                time_zone=each.zone_name,
                payload={"args": each.args, "kwargs": each.kwargs},
                missed=each.missed,
                overlap=each.overlap,
                jitter_us=each.jitter_us,
                declared=True,
            )
    return found


def mark(row: Schedule) -> str:
    """Return the name of a schedule with a hash of its definition, as a worker says that it declares it."""
    definition = json.dumps([getattr(row, name) for name in DEFINITION], sort_keys=True)
    return f"{blake2b(definition.encode(), digest_size=6).hexdigest()} {row.name}"


def marks(rows: Iterable[Schedule]) -> str:
    """Return the text that a worker has in its row."""
    return "\n".join(map(mark, rows))


def runnable(row: Schedule, mine: Mapping[str, Schedule], backend_alias: str) -> bool:
    """Return whether a worker of a backend, with these declarations, may publish for a row."""
    if row.declared:
        return row.name in mine and mark(mine[row.name]) == mark(row)
    task = loaded_task(row.task_path)
    return task is not None and task.backend == backend_alias


def vanished(rows: Iterable[Schedule], database: str, now: int) -> set[str]:
    """Return the names of those rows that the code of no live worker declares; if none lives, this process's own code.

    None at all, if the task modules do not import here. Of the rows made in the admin: those that no worker has run for
    a minute since they were due, and whose task does not exist here.
    """
    backends = {alias: entry for alias, entry in configured().items() if database_of(entry) == database}
    modules = tuple(name for entry in backends.values() for name in entry.task_modules)
    if workers := live_workers(database, now):
        known = {line.partition(" ")[2] for worker in workers for line in worker.schedules.splitlines()}
    elif imported(modules):
        known = {name for alias in backends for name in declared(alias)}
    else:
        return set()
    late = from_instant(now - OVERDUE)

    def is_gone(row: Schedule) -> bool:
        if row.declared:
            return row.name not in known
        return row.next_at is not None and row.next_at < late and unknown(row.task_path, modules)

    return {row.name for row in rows if is_gone(row)}


@cache
def imported(modules: tuple[str, ...]) -> bool:
    """Import all task modules, and these, as a worker does at its start; return whether they can be imported here."""
    try:
        import_task_modules(modules)
    except (Exception, SystemExit):
        return False
    return True


def unknown(path: str, modules: Sequence[str]) -> bool:
    """Return whether there is no such task; not if its module does not import here: elsewhere it may."""
    with suppress(Exception, SystemExit):
        try:
            find_task(path, modules)
        except UnknownTask:
            return True
    return False


def write_down(engine: Engine, mine: Mapping[str, Schedule], now: int, *, started: bool) -> None:
    """Write declarations into the table: new ones, and changed ones if that is this worker's part (see above).

    ``started``: this worker has just been started.
    """
    if _to_write(engine, mine, now, started):
        with engine.atomic():
            # All that may be written are locked, in one order: no other process pauses one of them meanwhile.
            table = Schedule.objects.using(engine.alias).select_for_update().order_by("name")
            list(table.filter(Q(name__in=list(mine)) | _stamped_ahead(now)).values_list("name"))
            for row in _to_write(engine, mine, now, started):
                row.save(using=engine.alias)
    if started:
        for row in Schedule.objects.using(engine.alias).filter(name__in=list(mine), declared=False):
            logger.warning("schedule %r was made in the admin, and code declares it too: rename one of them", row.name)


def _to_write(engine: Engine, mine: Mapping[str, Schedule], now: int, started: bool) -> list[Schedule]:
    """Return new rows, and changed ones as they are to be."""
    table = Schedule.objects.using(engine.alias)
    there = {row.name: row for row in table.filter(name__in=list(mine))}
    found, alive = [], None
    for name, declaration in mine.items():
        row = there.get(name)
        if row is None:
            row = Schedule(name=name)
        elif not row.declared or mark(row) == mark(declaration):
            continue
        elif not started:
            alive = _alive(engine, now) if alive is None else alive
            if mark(row) in alive:
                continue
        found.append(_as_declared(row, declaration, now))
    return [*found, *_of_a_wrong_clock(engine, now)]


def _alive(engine: Engine, now: int) -> set[str]:
    return {line for worker in live_workers(engine.alias, now) for line in worker.schedules.splitlines()}


def _as_declared(row: Schedule, declaration: Schedule, now: int) -> Schedule:
    """Return a row with a definition; its next tick stays, unless its ticks are others."""
    ticks = (row.expression, row.time_zone)
    for name in (*DEFINITION, "declared"):
        setattr(row, name, getattr(declaration, name))
    if (row.expression, row.time_zone) != ticks:
        set_next(row, now, changed=True)
    return row


def _stamped_ahead(now: int) -> Q:
    far = from_instant(now + WRONG_CLOCK)
    return Q(last_at__gt=far) | Q(next_at__gt=far)


def _of_a_wrong_clock(engine: Engine, now: int) -> list[Schedule]:
    """Return the rows that a clock has written that was far ahead: they would wait for years.

    Either their last tick was run by it, or it has left ticks out, or the row is new: its next tick is not the next.
    """
    far = from_instant(now + WRONG_CLOCK)
    found = []
    for row in Schedule.objects.using(engine.alias).filter(_stamped_ahead(now)):
        with suppress(ValueError):  # its time zone is not known here
            next_at, ran = row.next_at, row.last_at is not None and row.last_at > far
            if ran:
                row.last_at = None
            set_next(row, now)
            if ran or (next_at and row.next_at and next_at > row.next_at):
                found.append(row)
    return found


def set_next(row: Schedule, now: int, *, changed: bool = False) -> None:
    """Have a schedule run at the first of its ticks that is to come: if the clock was set back, behind the last one.

    ``changed``: its ticks are others than before.
    """
    ticks, last = Ticks(row.expression, row.time_zone), now if row.last_at is None else to_instant(row.last_at)
    if changed or ticks.after(last - 1) != last:  # it was no tick of these: people may have published a job
        last = now
    following = ticks.after(max(now, last))
    row.next_at = None if following is None else from_instant(following)
