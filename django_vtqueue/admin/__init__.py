"""The queue in Django's admin: what there is, why it failed, and the few things that a person may do about it.

Rows are shown, never edited: a change to one is an action, by POST, with a permission of its own.

A table each     jobs, letters, queues, workers, requeues; base: what all share, entries: what jobs and letters share
The overview     overview, made of banners, queue_rows (with flows) and busy
Lists            lists, filters
Rows             display (escaped and masked), timelines, tracebacks, plots
Jobs             asking (a priority, a queue), enqueueing, leaving (why one was left as it is)
Dead letters     meant (which ones), groups, bulk, edits, exports
Forms and links  fields, pages
"""

from .base import ReadOnlyAdmin
from .jobs import JobAdmin
from .letters import DeadLetterAdmin
from .queues import QueueStateAdmin
from .requeues import RequeueAdmin
from .workers import WorkerProcessAdmin

__all__ = ["DeadLetterAdmin", "JobAdmin", "QueueStateAdmin", "ReadOnlyAdmin", "RequeueAdmin", "WorkerProcessAdmin"]
