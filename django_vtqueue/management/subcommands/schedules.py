"""What ``vtqueue`` does with schedules: lists them, pauses and resumes one, runs one now."""

import shlex
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from ...backend import VTQueueBackend
from ...core.clock import to_instant
from ...core.humanize import duration
from ...engines import engine_for
from ...exceptions import UnknownTask, VTQueueError
from ...models import Schedule
from ...recurrence import control
from ...recurrence.control import Listed, listed
from ...tasks.compat import InvalidTask
from ..arguments import login, option_of
from ..output import add_json, ago, as_json, iso, table

HELP = "Lists schedules: when each runs next, how its last job ended. Or pauses, resumes or runs one."
TITLES = ("schedule", "when", "state", "next", "last", "ended", "ran")
ACTIONS = ("list", "pause", "resume", "run")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help="default: list")
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the schedule, to pause, resume or run it")
    add_json(parser)


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Do what the command line says."""
    action, name, database = options["action"], options["name"], backend.database
    if action == "list":
        if name:
            command = command_line(backend, "run", name)
            raise CommandError(f"schedules list takes no name; to run it now: {command}")
        return show(database, as_values=options["json"])
    found = Schedule.objects.using(database).filter(pk=name).first()
    if found is None:
        names = Schedule.objects.using(database).order_by("name").values_list("name", flat=True)
        what = f"There is no schedule {name!r}." if name else f"Name the schedule: schedules {action} NAME."
        raise CommandError(f"{what} There are: {', '.join(names) or 'none; a worker stores those of the code'}.")
    return {"pause": pause, "resume": resume, "run": run_now}[action](found, backend)


def command_line(backend: VTQueueBackend, action: str, name: str) -> str:
    """Return what does something with a schedule."""
    return f"manage.py vtqueue schedules{option_of(backend)} {action} {shlex.quote(name)}"


def show(database: str, *, as_values: bool) -> Iterator[str]:
    """Show a line for each schedule, or a JSON list."""
    now, rows = engine_for(database).now(), listed(database)
    if as_values:
        yield as_json([described(each) for each in rows])
    elif rows:
        yield from table([TITLES, *(row(each, now) for each in rows)])
    else:
        yield "There are no schedules: a worker stores those of @recurring when it starts."


def row(each: Listed, now: int) -> Sequence[Any]:
    """Return the columns of a schedule."""
    last = each.runs[0] if each.runs else {}
    unit = "s" if each.row.expression.startswith("every ") else ""
    upcoming = each.state not in ("paused", "vanished") and each.row.next_at
    return [
        each.row.name,
        " ".join(filter(None, (each.row.expression, unit, each.row.time_zone))),
        each.state,
        coming(to_instant(upcoming), now) if upcoming else "",
        ago(last["at"], now) if last else "",
        last.get("state", ""),
        duration(last["ran"]) if "ran" in last else "",
    ]


def coming(instant: int, now: int) -> str:
    return f"in {duration(instant - now)}" if instant > now else f"due since {duration(now - instant)}"


def described(each: Listed) -> dict[str, Any]:
    """Return what a program reads of a schedule."""
    schedule = each.row
    return {
        "name": schedule.name,
        "task": schedule.task_path,
        "expression": schedule.expression,
        "time_zone": schedule.time_zone,
        "words": each.words,
        "missed": schedule.missed,
        "overlap": schedule.overlap,
        "jitter": schedule.jitter_us / 1_000_000,
        "declared": schedule.declared,
        "state": each.state,
        "paused_by": schedule.paused_by or None,
        "next": iso_of(schedule.next_at),
        "last": iso_of(schedule.last_at),
        "runs": [
            {
                "id": run["id"],
                "at": iso(run["at"]),
                "state": run["state"],
                "seconds": run["ran"] / 1_000_000 if "ran" in run else None,
            }
            for run in each.runs
        ],
    }


def iso_of(moment: datetime | None) -> str | None:
    return iso(to_instant(moment)) if moment else None


def pause(schedule: Schedule, backend: VTQueueBackend) -> Iterator[str]:
    """Pause a schedule in the name of who has logged in."""
    if not control.pause(schedule.name, login(), backend.database):
        yield f"Schedule {schedule.name!r} is paused already."
        return
    yield f"Schedule {schedule.name!r} is paused. To go on: {command_line(backend, 'resume', schedule.name)}"


def resume(schedule: Schedule, backend: VTQueueBackend) -> Iterator[str]:
    """Resume a schedule; one that is not paused is as it should be."""
    try:
        resumed = control.resume(schedule.name, backend.database)
    except ValueError as error:  # this machine does not know its time zone
        raise CommandError(str(error)) from error
    if not resumed:
        yield f"Schedule {schedule.name!r} was not paused."
        return
    schedule.refresh_from_db(using=backend.database)
    now = engine_for(backend.database).now()
    following = coming(to_instant(schedule.next_at), now) if schedule.next_at else "never: it has no tick to come"
    yield f"Schedule {schedule.name!r} goes on; next: {following}."


def run_now(schedule: Schedule, backend: VTQueueBackend) -> Iterator[str]:
    """Publish a job of a schedule at once."""
    try:
        result = control.run_now(schedule, backend.database, backend.settings.task_modules)
    except (UnknownTask, InvalidTask, VTQueueError, TypeError, ValueError) as error:
        raise CommandError(str(error)) from error
    if getattr(result, "duplicate", False):
        yield f"Nothing was enqueued: job {result.id} of it is not finished."
        return
    yield f"Job {result.id} was enqueued; the ticks of {schedule.name!r} stay as they are."
