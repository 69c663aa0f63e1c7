import json
import os
import signal
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import OperationalError

from django_vtqueue import SlotCycle
from sleepers.busy import count_busy
from sleepers.processes import Process
from sleepers.reconcile import reconcile

ENOUGH = 0.1  # seconds of a turn in which one more process is certainly started, also on a machine with much to do


class Command(BaseCommand):
    help = "Starts what should run and is missing, in this instance's time slot."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--slots", type=int, default=5)
        parser.add_argument("--period", type=float, default=5.0, help="seconds")
        parser.add_argument("--guard", type=float, default=0.05, help="seconds")
        parser.add_argument("--without-slots", action="store_true", help="act at any time, as the others do")
        parser.add_argument("--journal", default=os.devnull, help="a file to which each start is written")

    def handle(self, **options: Any) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what ends leaves no zombie
        journal = Journal(options["journal"])
        count_busy(journal.busy)
        while True:
            try:
                self.watch(journal, options)
            except OperationalError:  # locked while it joins: it tries again
                time.sleep(0.01)

    def watch(self, journal: "Journal", options: dict[str, Any]) -> None:
        journal.acts = bool(options["without_slots"])
        if options["without_slots"]:
            journal.ready()
        while options["without_slots"]:
            reconcile(lambda: True, journal.started)
            time.sleep(options["period"] / options["slots"])
        # A join writes, and has no slot yet: in the middle of a slice, whose holder has written what it had to.
        part = options["period"] / options["slots"]
        time.sleep((part / 2 - time.time()) % part)
        with SlotCycle("sleepers", options["slots"], options["period"], options["guard"]).join() as slot:
            journal.ready()
            journal.acts = True
            for turn in slot.turns():
                reconcile(lambda turn=turn: turn.remaining() > ENOUGH, journal.started)


class Journal:
    """What this instance has done, for the one who counts: a line for each start, and each SQLITE_BUSY."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.acts = False  # it does not while it joins

    def ready(self) -> None:
        self._write(ready=os.getpid())

    def started(self, name: str, process: Process) -> None:
        self._write(started=name, pid=process.pid)

    def busy(self) -> None:
        self._write(busy=os.getpid(), acts=self.acts)

    def _write(self, **values: Any) -> None:
        os.write(self._file, f"{json.dumps({'at': time.monotonic(), **values})}\n".encode())
