"""``vtqueue purge``: delete the jobs of queues that are not held."""

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Count, Q

from ...backend import VTQueueBackend
from ...engines import engine_for
from ...models import WAITING, Job

HELP = "Deletes unfinished jobs, scheduled ones too, of the queues named; not those that a worker holds."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queues", nargs="*", metavar="QUEUE")
    parser.add_argument("--all", action="store_true", help="of every queue in this database")
    parser.add_argument("--yes", "--noinput", "--no-input", action="store_true", help="do not ask")


def run(backend: VTQueueBackend, options: dict[str, Any]) -> Iterator[str]:
    """Delete what the command line says, once that is confirmed."""
    engine = engine_for(backend.database)
    free, held = unfinished(backend.database, engine.now())
    names = chosen(backend, options, free + held)
    found = {name: free[name] for name in names if free[name]}
    if found and not options["yes"]:
        confirm(f"Delete {counted(sum(found.values()))} ({described(found)})?")
    deleted = sum(engine.purge(name, engine.now()) for name in found)
    yield f"Deleted {counted(deleted)}."
    if left := sum(held[name] for name in names):
        yield f"{counted(left)} held by a worker stayed; what a dead one holds comes back when its lease ends."


def unfinished(database: str, now: int) -> tuple[Counter[str], Counter[str]]:
    """Return how many unfinished jobs of each queue are not held, and how many are."""

    def by_queue(rows: Q) -> Counter[str]:
        jobs = Job.objects.using(database).filter(rows).order_by("queue_name")
        return Counter(dict(jobs.values_list("queue_name").annotate(Count("pk"))))

    return by_queue(WAITING) + by_queue(Q(lease_until__lte=now)), by_queue(Q(lease_until__gt=now))


def chosen(backend: VTQueueBackend, options: dict[str, Any], found: Counter[str]) -> list[str]:
    """Return the queues that the command line names; raise CommandError if it names none, or one unknown."""
    there = f"Queues with unfinished jobs: {described(dict(sorted(found.items()))) or 'none'}."
    if bool(options["queues"]) == options["all"]:
        raise CommandError(f"Name the queues to purge, or give --all. {there}")
    known = backend.settings.queues | set(backend.settings.handler_queues()) | found.keys()
    if backend.settings.queues and (unknown := sorted(set(options["queues"]) - known)):
        raise CommandError(f"There is no queue {', '.join(unknown)}. {there}")
    return sorted(found if options["all"] else set(options["queues"]))


def confirm(question: str) -> None:
    """Ask; raise CommandError unless the answer is yes."""
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        raise CommandError(
            "No terminal is there to confirm it, so nothing was deleted; --yes deletes without asking."
        ) from None
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was deleted.")


def counted(number: int) -> str:
    return f"{number:,} job{'' if number == 1 else 's'}"


def described(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in numbers.items())
