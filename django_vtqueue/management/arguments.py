"""What several commands take: the backend, jobs, queues, durations, moments; and who runs them."""

import getpass
import re
import shlex
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, time, timedelta

from django.core.management.base import CommandError
from django.utils.dateparse import parse_datetime

from ..backend import VTQueueBackend
from ..conf import MOST_AT_ONCE
from ..core.clock import from_instant, to_instant
from ..core.humanize import local
from ..core.ids import SHORTEST
from ..engines import engine_for
from ..inspection.state import limits_for
from ..models import DeadLetter, Job
from ..queue import pauses
from ..queue.limits import NO_LIMITS, Limits
from ..queue.named_jobs import digits_of, only, some
from ..tasks.compat import DEFAULT_TASK_BACKEND_ALIAS


def add_backend(parser: ArgumentParser) -> None:
    """Add the option that names it."""
    parser.add_argument(
        "--backend", default=DEFAULT_TASK_BACKEND_ALIAS, metavar="ALIAS", help="entry of TASKS (default: default)"
    )


def option_of(backend: VTQueueBackend) -> str:
    """Return the option that names a backend, as part of a command line; "" for the default one."""
    return "" if backend.alias == DEFAULT_TASK_BACKEND_ALIAS else f" --backend {shlex.quote(backend.alias)}"


def positive(text: str, most: int | None = None) -> int:
    """Return a whole number above 0, for argparse; ``most``: the largest one."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1 or (most and number > most):
        raise ArgumentTypeError(f"must be a whole number, 1 {f'to {most}' if most else 'or more'}, not {text!r}.")
    return number


def not_empty(text: str) -> str:
    """Return a text, for argparse; an empty one, of a shell's variable say, would stand for something else."""
    if not text:
        raise ArgumentTypeError("must not be empty; leave the option out if it does not matter.")
    return text


def at_once(text: str) -> int:
    """Return how many threads or processes there are to be, for argparse."""
    return positive(text, MOST_AT_ONCE)


def seconds(text: str) -> float:
    """Return a number of seconds from 0 on, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:  # nan is neither
        raise ArgumentTypeError(f"must be a number of seconds, 0 or more, not {text!r}.")
    return number


UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration_or_moment(text: str) -> timedelta | datetime | None:
    """Return what a command line means by 30m, 2h, 1d, or by 2030-12-31 15:00; None if it is neither."""
    if found := re.fullmatch(r"(\d{1,6})([smhd])", text):
        return timedelta(**{UNITS[found[2]]: int(found[1])})
    try:
        return parse_datetime(text)
    except ValueError:
        return None


def moment(given: str | None, now: int) -> datetime | timedelta | None:
    """Return when a pause is to end; a time of day is the next one. Raise CommandError for what is no moment."""
    if given is None:
        return None
    with suppress(ValueError):
        if re.fullmatch(r"\d\d:\d\d(:\d\d)?", given):
            return next_time(time.fromisoformat(given), now)
    end = duration_or_moment(given)
    if end is not None:
        return end if isinstance(end, timedelta) else from_instant(to_instant(end))
    raise CommandError(f"--until is {given!r}, but must be as 30m, 2h or 1d, as 15:00, or as 2030-12-31 15:00.")


def next_time(given: time, now: int) -> datetime:
    """Return the next moment at which it is this time of day in ``TIME_ZONE``."""
    today = datetime.combine(local(from_instant(now)).date(), given)
    return from_instant(next(end for days in (0, 1) if (end := to_instant(today + timedelta(days))) > now))


# -- jobs --------------------------------------------------------------------------------------------------------------


def add_ids(parser: ArgumentParser, of: str = "of a job", nargs: str = "+") -> None:
    """Add the argument that names jobs or dead letters."""
    parser.add_argument("ids", nargs=nargs, metavar="ID", help=f"{of}, or its last {SHORTEST} digits or more")


def entry_of(given: str, database: str) -> Job | DeadLetter | None:
    """Return the job or dead letter of an id, or of its last digits; None if there is none. Raise UnclearId."""
    digits = digits_of(given)
    jobs, letters = Job.objects.using(database), DeadLetter.objects.using(database)
    found: list[Job | DeadLetter] = [*some(jobs, digits), *some(letters, digits)]
    now = {entry.pk: entry for entry in found}  # one that has died or was requeued just now may be there twice
    return only(list(now.values()) or some(jobs, digits), given)


@contextmanager
def read_at_once(given: str, database: str) -> Iterator[tuple[Job | DeadLetter | None, Limits, int]]:
    """Give the block the job or dead letter of an id, the limits of its queue, and the instant as of which it is read.

    All that the block reads is as of that instant. The task is loaded before: its module may take long, and write.
    """
    entry, limits = entry_of(given, database), NO_LIMITS
    if entry:
        limits = limits_for(entry.queue_name, database, entry.task_path)
    with engine_for(database).snapshot() as now:
        yield entry and entry_of(str(entry.pk), database), limits, now


# -- queues ------------------------------------------------------------------------------------------------------------


def remark_on(backend: VTQueueBackend, name: str) -> str:
    """Return what to say of a name that may be mistyped: neither jobs nor settings have it; "" if one of them does.

    Raise CommandError where the settings say which queues there are.
    """
    engine = engine_for(backend.database)
    there, now = engine.queue_names(), engine.now()
    known = backend.settings.queues | backend.settings.queue_options.keys()
    if name in {*known, *there, *pauses.paused(backend.database, now)}:
        return ""
    if backend.settings.queues:
        raise CommandError(f"There is no queue {name!r}. There are: {', '.join(sorted({*known, *there}))}.")
    return f"No job of {name!r} is there. Queues with unfinished jobs: {', '.join(there) or 'none'}."


# -- who runs it -------------------------------------------------------------------------------------------------------


def login() -> str:
    """Return who runs the command; "" where the system does not know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container without an entry for this user
        return ""
