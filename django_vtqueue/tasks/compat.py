"""Django's Tasks framework: its own from 6.0 on, its official backport before. Everything else imports it from here."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import django
from django.apps import apps
from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING or django.VERSION >= (6, 0):  # the types are those of django-stubs, whatever the version
    from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, signals, task_backends
    from django.tasks import task as framework_task
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started

    FRAMEWORK_APP, FRAMEWORK_LOGGER = None, "django.tasks"
else:
    try:
        from django_tasks import DEFAULT_TASK_BACKEND_ALIAS, signals, task_backends
        from django_tasks import task as framework_task
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
        raise ImproperlyConfigured(
            f"Django {django.get_version()} has no Tasks framework of its own; install its backport:\n\n"
            '    python -m pip install "django-vtqueue[backport]"\n'
        ) from error

    FRAMEWORK_APP = FRAMEWORK_LOGGER = "django_tasks"


def is_backports(backend: BaseTaskBackend) -> bool:
    """Return whether the backport has made this instance of a backend, where Django's own framework makes one, too."""
    backport = sys.modules.get("django_tasks")
    return bool(not FRAMEWORK_APP and backport and backport.task_backends[backend.alias] is backend)


def unused_backport() -> Iterator[CheckMessage]:
    """Yield a warning if the backport is installed where Django's own framework is used."""
    if not FRAMEWORK_APP and apps.is_installed("django_tasks"):
        yield Warning(
            f"'django_tasks' is in INSTALLED_APPS, but Django {django.get_version()} has a Tasks framework of its own, "
            "which django_vtqueue uses: it raises no exception of django_tasks, and sends none of its signals.",
            hint="Remove it from INSTALLED_APPS; import from django.tasks, InvalidTask for InvalidTaskError.",
            id="vtqueue.W017",
        )


__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "FRAMEWORK_APP",
    "FRAMEWORK_LOGGER",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "framework_task",
    "is_backports",
    "signals",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
    "unused_backport",
]
