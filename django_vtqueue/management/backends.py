"""The backend that a command works for."""

from argparse import ArgumentParser
from typing import cast

from django.core.management.base import CommandError

from ..backend import VTQueueBackend
from ..compat import DEFAULT_TASK_BACKEND_ALIAS, task_backends

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
