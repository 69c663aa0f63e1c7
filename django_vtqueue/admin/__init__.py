"""The queue in Django's admin: what there is, why it failed, and the few things that a person may do about it.

Rows are shown, never edited: a change to one is an action, by POST, with a permission of its own.
"""

from .base import ReadOnlyAdmin
from .jobs import JobAdmin
from .letters import DeadLetterAdmin
from .queues import QueueStateAdmin
from .requeues import RequeueAdmin
from .workers import WorkerProcessAdmin

__all__ = ["DeadLetterAdmin", "JobAdmin", "QueueStateAdmin", "ReadOnlyAdmin", "RequeueAdmin", "WorkerProcessAdmin"]
