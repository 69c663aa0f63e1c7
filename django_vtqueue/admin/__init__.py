"""The queue in Django's admin: what there is, why it failed, and the few things that a person may do about it.

Rows are shown, never edited: a change to one is an action, by POST, with a permission of its own.

A table each     jobs, letters, queues, workers, requeues, leases; base: what all share; job_base: what the first two do
The overview     overview, made of banners, queue_rows and the rows of workers; charts
Lists            changelists, filters
Rows             display (escaped and masked), timelines, tracebacks, plots
Actions          actions: the question, the change, its lines in the log, and why a row was left as it is
Jobs             enqueueing
Dead letters     selection (which ones), groups, bulk (many of them, and their export), edits (one)
Forms and links  fields, links
"""

from .base import ReadOnlyAdmin
from .jobs import JobAdmin
from .letters import DeadLetterAdmin
from .queues import QueueStateAdmin
from .requeues import RequeueAdmin
from .workers import WorkerProcessAdmin

__all__ = ["DeadLetterAdmin", "JobAdmin", "QueueStateAdmin", "ReadOnlyAdmin", "RequeueAdmin", "WorkerProcessAdmin"]
