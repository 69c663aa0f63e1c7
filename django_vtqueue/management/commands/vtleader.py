"""``manage.py vtleader``: run a command on one instance of many."""

import logging
import os
import signal
import sys
import time
from argparse import ArgumentParser
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, OperationalError, connections

from ...core import clock
from ...core.text import printable
from ...engines import engine_for
from ...patterns.guarded_command import Guarded, reap_orphans
from ...patterns.holder import Holder
from ...patterns.lease import leader
from ...runtime.forks import handling_signals
from ...worker.logging_setup import log_lines
from ...worker.process import end_if_log_is_deleted, ending_with_program
from ..preconditions import refuse_file

logger = logging.getLogger("django_vtqueue")

FORWARDED = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH")
LEAVE = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}  # at which one that waits ends
GRACE = 1 / 5  # of the ttl: for so long the command may clean up
BETWEEN = 1.0  # seconds between two starts: a guard that cannot run dies each time
LOOK_AT_LEASE = 0.2  # seconds between two looks at the lease; a twentieth of a short ttl

HELP = """Runs COMMAND on one instance of many: waits for the leadership of NAME, runs COMMAND with its fencing token in
VTQUEUE_TOKEN, forwards signals to it, and exits with its exit code (128 + N if signal N has ended it). If the
leadership is about to be lost, COMMAND is ended before another instance can have it, and this one waits for its next
turn: COMMAND is started again then."""


class Command(BaseCommand):
    help = HELP
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="of the lease: instances with the same name take turns")
        parser.add_argument(
            "--ttl",
            type=float,
            default=30.0,
            metavar="S",
            help="seconds after which another instance takes over from one that is cut off (default: 30); for the "
            "last fifth of it COMMAND may clean up, after SIGTERM",
        )
        parser.add_argument("--using", "--database", metavar="ALIAS", help="the database (default: that of the queue)")
        parser.add_argument("command", nargs="+", metavar="COMMAND", help="with its arguments, after --")

    def handle(self, **options: Any) -> None:
        try:
            holder = leader(options["name"], options["ttl"], options["using"])
        except ValueError as error:
            raise CommandError(str(error)) from None
        if engine_for(holder.rows.database).private():
            raise CommandError("Only this process sees this database, which is in memory: it is the only instance.")
        refuse_file(holder.rows.database)
        owns_process = bool(getattr(self, "_called_from_command_line", False))
        if owns_process:
            reap_orphans()
            end_if_log_is_deleted()
        ending = ending_with_program() if owns_process else nullcontext()
        with ending, log_lines(sys.stderr if owns_process else self.stderr, options["verbosity"]):
            try:
                sys.exit(LeaderLoop(holder, options["command"]).run())
            except OperationalError as error:  # its tables are not there, say; one that passes is waited for
                raise CommandError(printable(str(error))) from error


class LeaderLoop:
    """The turns of one instance: it waits for the leadership, and runs the command as long as it has it."""

    def __init__(self, holder: Holder, command: list[str]) -> None:
        self.holder, self.command = holder, command
        self.running: Guarded | None = None
        self.leaving = self.unsaid = 0  # the signal that has asked to stop, and that was not yet forwarded

    def run(self) -> int:
        """Run the command until it ends by itself, or is asked to; return its exit code."""
        with self.on_signals():
            while True:
                logger.info("vtleader waits for %s", self.holder.name)
                # No handler raises: an exception may come up anywhere, and become another one there.
                if not self.holder.acquire(stop=lambda: bool(self.leaving)):
                    return 128 + self.leaving
                if self.leaving:
                    self.holder.release()
                    return 128 + self.leaving
                try:
                    connections.close_all()  # while the command runs, the thread that renews has one of its own
                    next_at = clock.since_boot() + BETWEEN
                    code = self.turn()
                finally:
                    with suppress(DatabaseError):  # the leadership ends by itself
                        self.holder.release()
                if code is not None:
                    return code
                logger.warning("vtleader has ended the command, for %s may pass", self.holder.name)
                while not self.leaving and clock.since_boot() < next_at:
                    time.sleep(LOOK_AT_LEASE)
                if self.leaving:
                    return 128 + self.leaving

    def turn(self) -> int | None:
        """Run the command under the present leadership; return its exit code, None if that has ended before it."""
        holder, token = self.holder, self.holder.token
        environment = {**os.environ, "VTQUEUE_TOKEN": str(token)}
        try:
            with Guarded(self.command, holder.ttl * GRACE, holder.descriptor, environment) as self.running:
                logger.info("vtleader runs %s; token %s", self.command[0], token)
                if self.unsaid:
                    self.running.forward(self.unsaid)
                self.running.keep(holder.held_until)
                while not self.running.ended(min(LOOK_AT_LEASE, holder.ttl / 20)):
                    self.running.keep(holder.held_until)
                return self.running.exit_code()
        finally:
            self.running = None

    def on_signals(self) -> AbstractContextManager[None]:
        """Forward signals during the block; those that are ignored, as nohup has it, stay so."""
        numbers = [getattr(signal, f"SIG{name}") for name in FORWARDED]
        return handling_signals((n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN), self.received)

    def received(self, number: int, frame: object) -> None:
        """Hand a signal on to the command; one that waits leaves, or has no use for it."""
        if number in LEAVE:
            self.leaving = number
        if self.running:
            self.running.forward(number)
        elif number in LEAVE:
            self.unsaid = number
