"""``manage.py vtqueue``: what people do with the queue of one backend, a subcommand for each."""

import os
import signal
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django.core.management.base import BaseCommand, CommandError, no_translations
from django.db import DatabaseError, OperationalError

from ...backend import VTQueueBackend
from ...core.text import printable
from ...engines import engine_for
from ...queue.named_jobs import UnclearId
from ...queue.schema import mismatch
from ..arguments import add_backend, add_ids
from ..output import SILENT, said_if_silent, writable
from ..preconditions import backend_of
from ..subcommands import jobs, leases, locktest, move, queues, schedules, show, slots, status, why, workers
from ..subcommands import list as list_


class Subcommand(NamedTuple):
    """``help``: what it does; ``add_arguments``: to a parser; ``run``: yields the lines that it writes.

    ``reads_tables``: whether it needs those of the installed version. ``interrupted``: what it says after Ctrl-C.
    """

    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[VTQueueBackend, dict[str, Any]], Iterator[str]]
    reads_tables: bool = True
    interrupted: str = "Interrupted."


SUBCOMMANDS = {
    "cancel": Subcommand(
        "Cancels jobs: one that waits becomes a dead letter, one that runs is asked to stop.",
        add_ids,
        jobs.cancel,
    ),
    "leases": Subcommand(leases.HELP, leases.add_arguments, leases.run),
    "list": Subcommand(list_.HELP, list_.add_arguments, list_.run),
    "locktest": Subcommand(locktest.HELP, locktest.add_arguments, locktest.run, reads_tables=False),
    "move": Subcommand(move.HELP, move.add_arguments, move.run, interrupted=move.INTERRUPTED),
    "pause": Subcommand(
        "Pauses a queue: no job of it is claimed, until it is resumed or the pause ends; running jobs go on.",
        queues.pause_arguments,
        queues.pause,
    ),
    "purge": Subcommand(
        "Deletes unfinished jobs, scheduled ones too, of the queues named; not those that a worker holds.",
        queues.purge_arguments,
        queues.purge,
    ),
    "quiet": Subcommand(
        "Asks workers to finish their jobs and to claim nothing, until they are stopped or asked to work again.",
        workers.quiet_arguments,
        workers.quiet,
    ),
    "requeue": Subcommand(
        "Requeues dead letters: they keep their ids and histories, and have all their attempts again.",
        jobs.requeue_arguments,
        jobs.requeue,
    ),
    "resume": Subcommand("Ends the pause of a queue, and wakes the workers.", queues.resume_arguments, queues.resume),
    "schedules": Subcommand(schedules.HELP, schedules.add_arguments, schedules.run),
    "show": Subcommand(show.HELP, show.add_arguments, show.run),
    "slots": Subcommand(slots.HELP, slots.add_arguments, slots.run),
    "status": Subcommand(status.HELP, status.add_arguments, status.run),
    "stop": Subcommand(
        "Asks workers to stop as after SIGTERM: they finish their jobs and exit.",
        workers.stop_arguments,
        workers.stop,
    ),
    "why": Subcommand(why.HELP, why.add_arguments, why.run),
}
# Django's own options, which stand before a subcommand, or, as people write them, behind it.
WITH_VALUE = (("-v", "--verbosity"), ("--settings",), ("--pythonpath",))
FLAGS = (("--traceback",), ("--no-color",), ("--force-color",), ("--skip-checks",))


class Command(BaseCommand):
    help = "Looks after the queue of one backend."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parsers = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
        for name, subcommand in SUBCOMMANDS.items():
            own = parsers.add_parser(name, help=subcommand.help, description=subcommand.help)
            add_backend(own)
            subcommand.add_arguments(own)
            for names in WITH_VALUE:
                own.add_argument(*names, type=int if "-v" in names else str, default=SUPPRESS, help=SUPPRESS)
            for names in FLAGS:
                own.add_argument(*names, action="store_true", default=SUPPRESS, help=SUPPRESS)

    @no_translations  # of the sentences that the admin shows too: the rest of what is written here has none
    def handle(self, **options: Any) -> None:
        backend = backend_of(options["backend"])
        subcommand = SUBCOMMANDS[options["subcommand"]]
        try:
            if subcommand.reads_tables:
                with said_if_silent(
                    lambda: self.stderr.write(SILENT.format(backend.database, "Ctrl-C ends this command."))
                ):
                    problem = mismatch(backend.database)
                if problem:
                    raise CommandError(f"{problem}.")
            for line in subcommand.run(backend, options):
                self.stdout.write(writable(printable(line), self.stdout))
            self.stdout.flush()
        except BrokenPipeError:  # the reader has seen enough, as ``head`` does
            if not getattr(self, "_called_from_command_line", False):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python says it once more at its end
            sys.exit(1)
        except KeyboardInterrupt:
            if not getattr(self, "_called_from_command_line", False):
                raise
            raise CommandError(subcommand.interrupted, returncode=128 + signal.SIGINT) from None
        except (UnclearId, CommandError) as error:
            raise CommandError(printable(str(error))) from error
        except DatabaseError as error:
            if not isinstance(error, OperationalError) and not engine_for(backend.database).trouble(error):
                raise
            raise CommandError(printable(f"Database {backend.database!r}: {error}")) from error
