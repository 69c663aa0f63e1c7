"""Django's Tasks framework: its own from 6.0 on, its official backport before."""

from typing import TYPE_CHECKING

import django

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task
    from django.tasks.exceptions import InvalidTask
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.signals import task_enqueued, task_finished, task_started

__all__ = ["BaseTaskBackend", "InvalidTask", "Task", "task_backends", "task_enqueued", "task_finished", "task_started"]
