"""``manage.py vtqueue``: what people do with the queue of one backend, a subcommand for each."""

from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError, no_translations

from ...queue.lookup import UnclearId
from ...queue.schema import mismatch
from ..arguments import add_backend, backend_of
from ..subcommands import cancel, pause, purge, quiet, requeue, resume, show, status, stop, why
from ..subcommands import list as list_

SUBCOMMANDS = {
    module.__name__.rpartition(".")[2]: module
    for module in (cancel, list_, pause, purge, quiet, requeue, resume, show, status, stop, why)
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
            own = parsers.add_parser(name, help=subcommand.HELP, description=subcommand.HELP)
            add_backend(own)
            subcommand.add_arguments(own)
            for names in WITH_VALUE:
                own.add_argument(*names, type=int if "-v" in names else str, default=SUPPRESS, help=SUPPRESS)
            for names in FLAGS:
                own.add_argument(*names, action="store_true", default=SUPPRESS, help=SUPPRESS)

    @no_translations  # of the sentences that the admin shows too: the rest of what is written here has none
    def handle(self, **options: Any) -> None:
        backend = backend_of(options["backend"])
        if problem := mismatch(backend.database):
            raise CommandError(f"{problem}.")
        try:
            for line in SUBCOMMANDS[options["subcommand"]].run(backend, options):
                self.stdout.write(line)
        except UnclearId as error:
            raise CommandError(str(error)) from error
