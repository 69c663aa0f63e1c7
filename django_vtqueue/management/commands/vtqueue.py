"""``manage.py vtqueue``: what people do with the queue of one backend, a subcommand for each."""

from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError, no_translations

from ...queue.lookup import UnclearId
from ...queue.schema import mismatch
from ..arguments import add_backend, add_ids, backend_of
from ..subcommands import jobs, queues, show, status, why, workers
from ..subcommands import list as list_

# Each subcommand: what its help says, what adds its arguments to a parser, and what yields the lines that it writes.
SUBCOMMANDS = {
    "cancel": (
        "Cancels jobs: one that waits becomes a dead letter, one that runs is asked to stop.",
        add_ids,
        jobs.cancel,
    ),
    "list": (list_.HELP, list_.add_arguments, list_.run),
    "pause": (
        "Pauses a queue: no job of it is claimed, until it is resumed or the pause ends; what runs goes on to its end.",
        queues.pause_arguments,
        queues.pause,
    ),
    "purge": (
        "Deletes unfinished jobs, scheduled ones too, of the queues named; not those that a worker holds.",
        queues.purge_arguments,
        queues.purge,
    ),
    "quiet": (
        "Asks workers to finish what they run and to claim nothing, until they are stopped or asked to work again.",
        workers.quiet_arguments,
        workers.quiet,
    ),
    "requeue": (
        "Requeues dead letters: they keep their ids and histories, and have all their attempts again.",
        jobs.requeue_arguments,
        jobs.requeue,
    ),
    "resume": ("Ends the pause of a queue, and wakes the workers.", queues.resume_arguments, queues.resume),
    "show": (show.HELP, show.add_arguments, show.run),
    "status": (status.HELP, status.add_arguments, status.run),
    "stop": (
        "Asks workers to stop as after SIGTERM: they finish what they run and exit.",
        workers.stop_arguments,
        workers.stop,
    ),
    "why": (why.HELP, why.add_arguments, why.run),
}
# Django's own options, which stand before a subcommand, or, as people write them, behind it.
WITH_VALUE = (("-v", "--verbosity"), ("--settings",), ("--pythonpath",))
FLAGS = (("--traceback",), ("--no-color",), ("--force-color",), ("--skip-checks",))


class Command(BaseCommand):
    help = "Looks after the queue of one backend."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parsers = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
        for name, (text, add_own, _run) in SUBCOMMANDS.items():
            own = parsers.add_parser(name, help=text, description=text)
            add_backend(own)
            add_own(own)
            for names in WITH_VALUE:
                own.add_argument(*names, type=int if "-v" in names else str, default=SUPPRESS, help=SUPPRESS)
            for names in FLAGS:
                own.add_argument(*names, action="store_true", default=SUPPRESS, help=SUPPRESS)

    @no_translations  # of the sentences that the admin shows too: the rest of what is written here has none
    def handle(self, **options: Any) -> None:
        backend = backend_of(options["backend"])
        if problem := mismatch(backend.database):
            raise CommandError(f"{problem}.")
        _help, _add_arguments, run = SUBCOMMANDS[options["subcommand"]]
        try:
            for line in run(backend, options):
                self.stdout.write(line)
        except UnclearId as error:
            raise CommandError(str(error)) from error
