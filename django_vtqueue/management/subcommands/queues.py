"""What ``vtqueue`` does with queues: pause, resume and purge them."""

import shlex
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db import connections
from django.db.models import Count, Q

from ...backend import VTQueueBackend
from ...core import states
from ...core.names import is_reserved, refusal
from ...core.text import printable
from ...engines import engine_for
from ...fields.constraints import in_state
from ...models import RESERVED, Job
from ...models.jobs import ASIDE
from ...queue import pauses
from ..arguments import login, moment, option_of, remark_on


def pause_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("--reason", default="", metavar="TEXT", help="for people who wonder why nothing runs")
    parser.add_argument(
        "--until",
        metavar="WHEN",
        help="30m, 2h, 1d; 15:00 (the next one); 2030-12-31 15:00 (default: until it is resumed)",
    )


def pause(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Pause the queue that the command line names, in the name of who has logged in."""
    name, database, now = options["queue"], backend.database, engine_for(backend.database).now()
    remark = "" if is_reserved(name) else remark_on(backend, name)
    try:
        pauses.pause(name, reason=options["reason"], until=moment(options["until"], now), by=login(), using=database)
    except ValueError as error:
        raise CommandError(str(error)) from None
    yield f"Queue {name!r} is {pauses.sentence(pauses.paused(database, now)[name])}."
    command = f"manage.py vtqueue resume{option_of(backend)} {shlex.quote(name)}"
    yield f"Running jobs go on to their end. To end the pause: {command}"
    if remark:
        yield remark


def resume_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE")


def resume(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Resume the queue that the command line names; one that is not paused is as it should be."""
    name, database = options["queue"], backend.database
    if is_reserved(name):
        raise CommandError(refusal(name))
    remark = remark_on(backend, name)
    try:
        resumed = pauses.resume(name, using=database)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if resumed:
        yield f"Queue {name!r} is resumed; the workers were woken."
        return
    paused = ", ".join(pauses.paused(database, engine_for(database).now()))
    yield f"Queue {name!r} was not paused. Paused queues: {paused or 'none'}."
    if remark:
        yield remark


def purge_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queues", nargs="*", metavar="QUEUE")
    parser.add_argument("--all", action="store_true", help="of every queue in this database")
    parser.add_argument("--yes", "--noinput", "--no-input", action="store_true", help="do not ask")


def purge(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Delete what the command line says, once that is confirmed."""
    engine = engine_for(backend.database)
    with engine.snapshot() as now:
        free, held = unfinished(backend.database, now)
    names = chosen(backend, options, free + held)
    found = {name: free[name] for name in names if free[name]}
    if found and not options["yes"]:
        given = connections[backend.database].settings_dict
        where = " on ".join(filter(None, [str(given["NAME"]), given["HOST"]]))  # an alias is the same in production
        confirm(f"Delete {counted(sum(found.values()))} ({described(found)}) from the database {where}?")
    deleted = sum(engine.purge(name, engine.now()) for name in found)
    yield f"Deleted {counted(deleted)}."
    if left := sum(held[name] for name in names):
        yield f"{counted(left)} held by a worker stayed; jobs of a dead worker come back when their leases end."


def unfinished(database: str, now: int) -> tuple[Counter[str], Counter[str]]:
    """Return how many unfinished jobs of each queue are not held, and how many are."""

    def by_queue(rows: Q) -> Counter[str]:
        jobs = Job.objects.using(database).filter(rows, ~RESERVED).order_by("queue_name")
        return Counter(dict(jobs.values_list("queue_name").annotate(Count("pk"))))

    free = by_queue(in_state(states.READY)) + by_queue(ASIDE) + by_queue(Q(lease_until__lte=now))
    return free, by_queue(Q(lease_until__gt=now))


def chosen(backend: VTQueueBackend, options: dict[str, Any], found: Counter[str]) -> list[str]:
    """Return the queues that the command line names; raise CommandError if it names none, or one unknown."""
    there = f"Queues with unfinished jobs: {described(dict(sorted(found.items()))) or 'none'}."
    if bool(options["queues"]) == options["all"]:
        raise CommandError(f"Name the queues to purge, or give --all. {there}")
    for name in filter(is_reserved, options["queues"]):
        raise CommandError(refusal(name))
    known = backend.settings.queues | set(backend.settings.handler_queues()) | found.keys()
    if backend.settings.queues and (unknown := sorted(set(options["queues"]) - known)):
        raise CommandError(f"There is no queue {', '.join(unknown)}. {there}")
    return sorted(found if options["all"] else set(options["queues"]))


def confirm(question: str) -> None:
    """Ask; raise CommandError unless the answer is yes."""
    try:
        answer = input(f"{printable(question)} [y/N] ")
    except EOFError:
        raise CommandError("No answer was given, so nothing was deleted; --yes deletes without asking.") from None
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was deleted.")


def counted(number: int) -> str:
    return f"{number:,} job{'' if number == 1 else 's'}"


def described(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in numbers.items())
