"""The backend that a command works for."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import cast

from django.conf import settings
from django.core.management.base import CommandError

from ..backend import VTQueueBackend
from ..control import ask
from ..core.ids import shown_worker
from ..engines import engine_for
from ..inspection.overview import queue_names
from ..models import Job
from ..queue.origin import left_behind
from ..queue.pauses import paused
from ..queue.workers import QUIET, STOP, WORK, undead
from ..tasks.compat import DEFAULT_TASK_BACKEND_ALIAS, task_backends

EXAMPLE = 'TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend"}}'


def add_backend(parser: ArgumentParser) -> None:
    """Add the option that names it."""
    parser.add_argument(
        "--backend", default=DEFAULT_TASK_BACKEND_ALIAS, metavar="ALIAS", help="entry of TASKS (default: default)"
    )


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
    errors = [message for message in backend.check() if message.is_serious() and not message.is_silenced()]
    if errors:
        raise CommandError("\n".join(f"{error.msg} ({error.id})" for error in errors))


def option_of(backend: VTQueueBackend) -> str:
    """Return the option that names a backend, as part of a command line; "" for the default one."""
    return "" if backend.alias == DEFAULT_TASK_BACKEND_ALIAS else f" --backend {backend.alias}"


# -- a copied database -------------------------------------------------------------------------------------------------
#
# Its unfinished jobs may write to real people.


REFUSAL = """The jobs of this database were last worked off on {home} (worker started {moment}).
{count} unfinished came with it. They might write to real people, so with DEBUG this worker refuses to run them.
To delete them:    manage.py vtqueue purge{option} --all
To run them here:  manage.py vtworker{option} --adopt"""


def refuse_copy(backend: VTQueueBackend) -> None:
    """Raise CommandError with DEBUG, if the queue was last worked elsewhere and has unfinished jobs."""
    if not settings.DEBUG or not (home := left_behind(engine_for(backend.database))):
        return
    if count := Job.objects.using(backend.database).filter(finished_at__isnull=True).count():
        moment = f"{home.worked_at:%Y-%m-%d %H:%M %Z}".strip()
        raise CommandError(REFUSAL.format(home=home, moment=moment, count=count, option=option_of(backend)))


# -- queues ------------------------------------------------------------------------------------------------------------


def remark_on(backend: VTQueueBackend, name: str) -> str:
    """Return what to say of a name that may be mistyped: neither jobs nor settings have it; "" if one of them does.

    Raise CommandError where the settings say which queues there are.
    """
    engine = engine_for(backend.database)
    there = queue_names(backend.database)
    known = backend.settings.queues | backend.settings.queue_options.keys()
    if name in {*known, *there, *paused(backend.database, engine.now())}:
        return ""
    if backend.settings.queues:
        raise CommandError(f"There is no queue {name!r}. There are: {', '.join(sorted({*known, *there}))}.")
    return f"No job of {name!r} is there. Queues with unfinished jobs: {', '.join(there) or 'none'}."


# -- workers -----------------------------------------------------------------------------------------------------------
#
# By host and pid, as the log names them.

WORDS = {QUIET: "be quiet", STOP: "stop", WORK: "work"}


def add_workers(parser: ArgumentParser) -> None:
    """Add the argument that names them."""
    parser.add_argument("workers", nargs="+", metavar="WORKER", help="as the log names it: web1:4711")


def asked(names: Sequence[str], to: str, database: str) -> Iterator[str]:
    """Ask workers to do something; yield who was asked. All of them are found, or none is asked."""
    present = sorted(undead(database).values_list("pk", flat=True))
    if unknown := [name for name in names if name not in {*present, *map(shown_worker, present)}]:
        there = ", ".join(map(shown_worker, present)) or "none"
        raise CommandError(f"There is no worker {', '.join(unknown)}. Workers: {there}.")
    for worker_id in ask([pk for pk in present if {pk, shown_worker(pk)} & set(names)], to, using=database):
        yield f"asked {shown_worker(worker_id)} to {WORDS[to]}"
