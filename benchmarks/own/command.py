"""What the disk and the settings of a project's database allow, and which setting to change."""

import sqlite3
import textwrap
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.database_checks import effective
from django_vtqueue.engines import Trouble, engine_for
from django_vtqueue.management.arguments import add_backend
from django_vtqueue.management.preconditions import backend_of
from django_vtqueue.queue.workers import live_workers

from .advice import Found, advice
from .measures import Measure, Measures, Setting, file_system, measures_on
from .place import TABLES, copied

SECONDS = 10.0
SHORTEST, LONGEST = 1, 600
COLUMNS = "{:<42}{:>11}{:>12}{:>12}{:>11}"
WIDTH = 88  # of the columns
FURTHER = {
    Trouble.BUSY: "Try again when nobody holds the write lock for long.",
    Trouble.DISK: "Free some space, or allow writing.",
}


class Command(BaseCommand):
    help = "Measures what this database allows, in a table of its own, and says which setting to change."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_backend(parser)
        parser.add_argument(
            "--seconds", type=float, default=SECONDS, metavar="S", help=f"how long it measures (default: {SECONDS:g})"
        )

    def handle(self, **options: Any) -> None:
        for line in run(backend_of(options["backend"]), options["seconds"]):
            self.stdout.write(line)


def run(backend: VTQueueBackend, seconds: float) -> Iterator[str]:
    """Measure, and yield the figures and the advice; real jobs are not touched."""
    database = backend.database
    if not SHORTEST <= seconds <= LONGEST:
        raise CommandError(f"--seconds is {seconds:g}, but must be from {SHORTEST} to {LONGEST}.")
    yield from cautions(database)
    found, measures = measured(database, seconds)
    yield from table(found, measures)
    for line in advice(found):
        yield ""
        yield wrapped(line)


def cautions(database: str) -> Iterator[str]:
    """Yield what makes figures lower than they could be."""
    if workers := live_workers(database, engine_for(database).now()):
        names = ", ".join(f"{worker.host}:{worker.pid}" for worker in workers)
        yield wrapped(
            f"Workers are alive ({names}): while they have jobs, these figures and their own speed are lower."
        )
        yield ""
    if settings.DEBUG:
        yield wrapped("DEBUG is on: Django keeps each statement in memory, so enqueueing takes longer here.")
        yield ""


def measured(database: str, seconds: float) -> tuple[Found, Measures]:
    """Measure for so many seconds; raise CommandError, with what to do, if something is in the way."""
    engine = engine_for(database)
    try:
        with copied(database) as copy:
            connection = connections[database]
            pragmas = effective(connection)
            assert pragmas  # there is a file, and it was just written to
            with measures_on(copy, Setting(pragmas.journal, pragmas.synchronous)) as measures:
                measures.run(seconds)
            kind = file_system(copy.path())
    except KeyboardInterrupt:
        raise CommandError("Stopped; nothing of the benchmark is left.", returncode=130) from None
    except (DatabaseError, sqlite3.Error, OSError) as error:
        trouble = engine.trouble(error)
        if trouble not in FURTHER and not isinstance(error, OSError):
            raise
        raise CommandError(explained(error, trouble)) from error
    mode = connection.transaction_mode  # type: ignore[attr-defined]
    commits = {setting: measure.rate for setting, measure in measures.settings.items()}
    return Found(database, pragmas, mode, kind, commits, measures.fsync.percentile(50)), measures


def explained(error: Exception, trouble: Trouble | None) -> str:
    what = f"{trouble.value}: {error}. {FURTHER[trouble]}" if trouble else f"{error}."
    return f"Not measured: {what} Should {' or '.join(TABLES.values())} be left, the next run drops it."


def table(found: Found, measures: Measures) -> Iterator[str]:
    """Yield the figures, each beside that of plain sqlite3 on the same file."""
    where = engine_for(found.alias).describe()
    yield f"{where}, SQLite {sqlite3.sqlite_version}" + (f", {found.file_system}" if found.file_system else "")
    yield ""
    yield COLUMNS.format("in the database (times: of a transaction)", "jobs/s", "median", "p99", "to plain")
    yield row(measures.plain)
    yield from (row(measure, measures.plain) for measure in measures.queue)
    yield ""
    yield COLUMNS.format("the first line, in a file beside it", "jobs/s", "median", "p99", "to now")
    present = measures.settings[found.present]
    for setting, measure in measures.settings.items():
        yield row(measure, None if setting == found.present else present)
    yield ""
    yield COLUMNS.format("a block written, and stored for good", "", *spans(measures.fsync), "")


def row(measure: Measure, plain: Measure | None = None) -> str:
    ratio = f"{measure.rate / plain.rate:.2f}" if plain else ""
    return COLUMNS.format(measure.what, f"{measure.rate:,.0f}", *spans(measure), ratio)


def spans(measure: Measure) -> list[str]:
    return [span(measure.percentile(percent)) for percent in (50, 99)]


def span(seconds: float) -> str:
    """Return a short time with the digits that it deserves."""
    return f"{seconds * 1e3:,.1f} ms" if seconds >= 0.001 else f"{seconds * 1e6:,.0f} µs"


def wrapped(text: str) -> str:
    """Return a sentence in lines as wide as the table; what follows its first line is kept as it is."""
    sentence, _, rest = text.partition("\n")
    return "\n".join([*textwrap.wrap(sentence, WIDTH), *rest.splitlines()])
