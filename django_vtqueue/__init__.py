"""A visibility-timeout queue inside your Django project's own database."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers see; at runtime each name is imported when it is first used
    from .exceptions import (
        Cancelled,
        DuplicateJob,
        GiveUp,
        JobExpired,
        LeaseLost,
        NoFreeSlot,
        PayloadTooLarge,
        QueueFull,
        Retry,
        Snooze,
        TaskTimeout,
        VTQueueError,
        WorkflowFailed,
    )
    from .patterns.lease import Lease
    from .patterns.slot_cycle import SlotCycle
    from .queue.claimed_job import ClaimedJob
    from .queue.dead_letters import requeue
    from .queue.events import asend_event, send_event
    from .queue.queue import Queue
    from .tasks.awaiting_results import async_wait_for_result, wait_for_result
    from .tasks.calls import call, enqueue_many
    from .tasks.compat import TaskContext, TaskResult, TaskResultStatus
    from .tasks.context import JobContext
    from .tasks.recurring import recurring
    from .tasks.task import task
    from .tasks.workflows import chain, group

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "ClaimedJob",
    "DuplicateJob",
    "GiveUp",
    "JobContext",
    "JobExpired",
    "Lease",
    "LeaseLost",
    "NoFreeSlot",
    "PayloadTooLarge",
    "Queue",
    "QueueFull",
    "Retry",
    "SlotCycle",
    "Snooze",
    "TaskContext",
    "TaskResult",
    "TaskResultStatus",
    "TaskTimeout",
    "VTQueueError",
    "WorkflowFailed",
    "asend_event",
    "async_wait_for_result",
    "call",
    "chain",
    "enqueue_many",
    "group",
    "recurring",
    "requeue",
    "send_event",
    "task",
    "wait_for_result",
]

_MODULES = {  # the others are exceptions
    "patterns.lease": ("Lease",),
    "patterns.slot_cycle": ("SlotCycle",),
    "queue.claimed_job": ("ClaimedJob",),
    "queue.dead_letters": ("requeue",),
    "queue.events": ("asend_event", "send_event"),
    "queue.queue": ("Queue",),
    "tasks.calls": ("call", "enqueue_many"),
    "tasks.compat": ("TaskContext", "TaskResult", "TaskResultStatus"),
    "tasks.context": ("JobContext",),
    "tasks.recurring": ("recurring",),
    "tasks.task": ("task",),
    "tasks.awaiting_results": ("async_wait_for_result", "wait_for_result"),
    "tasks.workflows": ("chain", "group"),
}
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used: this package is imported before the apps are ready."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = next((module for module, names in _MODULES.items() if name in names), "exceptions")
        value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
        return value

    def __dir__() -> list[str]:
        return [*globals(), *__all__]
