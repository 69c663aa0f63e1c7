"""What the settings refuse of a task, said by the system checks, and again when it is enqueued or run."""

import logging

from .compat import Task
from .task import options_of

logger = logging.getLogger("django_vtqueue")


def limited_copies(task: Task) -> str:
    """Return what is wrong with a task in a queue with ``overflow``: it has a limit; "" if it has none."""
    limits = [name for name in ("concurrency", "rate", "order_key") if name in options_of(task.func)]
    if not limits:
        return ""
    return (
        f"{task.module_path} has {' and '.join(limits)}, but its queue {task.queue_name!r} has overflow, so that "
        "several workers run one job. Give the task another queue, or remove one of them."
    )


def warn_of_script(task: Task) -> None:
    """Warn of a task that workers cannot import: one of the file that Python was started with."""
    if task.func.__module__ == "__main__":
        logger.warning(
            "%s is defined in the file that Python was started with: no worker finds it unless it was started with "
            "that file, too. Move it into the tasks module of an app.",
            task.module_path,
        )


def cannot_commit_as_one(path: str, writes_to: str, database: str) -> str:
    """Return what is wrong with a transactional task that writes to another database than its queue's."""
    return (
        f"{path} is transactional in the database {writes_to!r}, but its queue is in {database!r}: the two cannot "
        f"commit as one. If the task writes to {database!r}, say so: @task(transactional={database!r})."
    )
