"""What must be right before a command begins: its backend, where the database lies, and where that comes from."""

from collections.abc import Iterable
from typing import cast

from django.conf import settings
from django.core.checks import CheckMessage
from django.core.management.base import CommandError
from django.db import connections

from ..backend import VTQueueBackend
from ..database_checks import errors_of_sharing
from ..engines import engine_for
from ..engines.sqlite.file_checks import errors_of_mount, serious
from ..models import RESERVED, Job
from ..models.jobs import UNFINISHED
from ..queue.origin import foreign_origin
from ..tasks.compat import task_backends
from .arguments import option_of

EXAMPLE = 'TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend"}}'

# Of a copied database: its unfinished jobs may write to real people.
REFUSAL = """The jobs of this database were last worked off on {origin} (worker started {moment}).
{count} unfinished came with it. They might write to real people, so with DEBUG this worker refuses to run them.
To delete them:    manage.py vtqueue purge{option} --all
To run them here:  manage.py vtworker{option} --adopt"""


def backend_of(alias: str) -> VTQueueBackend:
    """Return the backend of an alias; raise CommandError if it is not one of ours, or wrongly set up."""
    ours = [name for name in task_backends if isinstance(task_backends[name], VTQueueBackend)]
    if alias not in ours:
        raise CommandError(
            f"TASKS[{alias!r}] is not a django_vtqueue backend; "
            + (f"use --backend {' or '.join(ours)}." if ours else "none is. Add one:\n\n" + EXAMPLE)
        )
    backend = cast(VTQueueBackend, task_backends[alias])
    refuse_errors(backend)
    return backend


def refuse_errors(backend: VTQueueBackend) -> None:
    """Raise CommandError if something is wrong with a backend, or with the tasks of it that are loaded."""
    refuse(backend.problems())


def refuse_file(database: str) -> None:
    """Raise CommandError if the file of a database is where it may be destroyed."""
    refuse([*errors_of_mount(database), *errors_of_sharing(connections[database])])


def refuse(messages: Iterable[CheckMessage]) -> None:
    """Raise CommandError if there are errors among the messages of checks, each with its hint."""
    if text := serious(messages):
        raise CommandError(text)


def refuse_copy(backend: VTQueueBackend) -> None:
    """Raise CommandError with DEBUG, if the queue was last worked elsewhere and has unfinished jobs."""
    if not settings.DEBUG or not (origin := foreign_origin(engine_for(backend.database))):
        return
    if count := Job.objects.using(backend.database).filter(UNFINISHED, ~RESERVED).count():
        moment = f"{origin.worked_at:%Y-%m-%d %H:%M %Z}".strip()
        raise CommandError(REFUSAL.format(origin=origin, moment=moment, count=count, option=option_of(backend)))
