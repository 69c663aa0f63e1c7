"""``vtqueue pause``: no job of a queue is claimed, for a while or until it is resumed."""

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, time, timedelta
from typing import Any

from django.core.management.base import CommandError
from django.utils.dateparse import parse_datetime

from ...backend import VTQueueBackend
from ...core.clock import from_instant, to_instant
from ...core.humanize import local
from ...engines import engine_for
from ...queue.pauses import pause, paused, sentence
from ..arguments import login, remark_on

HELP = "Pauses a queue: no job of it is claimed, until it is resumed or the pause ends; what runs goes on to its end."
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("--reason", default="", metavar="TEXT", help="for people who wonder why nothing runs")
    parser.add_argument(
        "--until", metavar="WHEN", help="30m, 2h, 1d; 15:00 (the next one); 2030-12-31 15:00 (default: it is resumed)"
    )


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Pause the queue that the command line names, in the name of who has logged in."""
    name, database, now = options["queue"], backend.database, engine_for(backend.database).now()
    remark = remark_on(backend, name)
    try:
        pause(name, reason=options["reason"], until=moment(options["until"], now), by=login(), using=database)
    except ValueError as error:
        raise CommandError(str(error)) from None
    yield f"Queue {name!r} is {sentence(paused(database, now)[name])}."
    yield f"What runs goes on to its end. To end the pause: manage.py vtqueue resume {name}"
    if remark:
        yield remark


def moment(given: str | None, now: int) -> datetime | timedelta | None:
    """Return when a pause is to end; a time of day is the next one. Raise CommandError for what is no moment."""
    if given is None:
        return None
    if found := re.fullmatch(r"(\d{1,6})([smhd])", given):
        return timedelta(**{UNITS[found[2]]: int(found[1])})
    with suppress(ValueError):
        if re.fullmatch(r"\d\d:\d\d(:\d\d)?", given):
            return next_time(time.fromisoformat(given), now)
        if end := parse_datetime(given):
            return from_instant(to_instant(end))
    raise CommandError(f"--until is {given!r}, but must be as 30m, 2h or 1d, as 15:00, or as 2030-12-31 15:00.")


def next_time(given: time, now: int) -> datetime:
    """Return the next moment at which it is this time of day in ``TIME_ZONE``."""
    today = datetime.combine(local(from_instant(now)).date(), given)
    return from_instant(next(end for days in (0, 1) if (end := to_instant(today + timedelta(days))) > now))
