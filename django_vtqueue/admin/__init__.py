"""The queue in Django's admin: what there is, why it failed, and the few things that a person may do about it.

Rows are shown, never edited: a change to one is an action, by POST, with a permission of its own.

A table each     jobs, letters, queues, schedules, workers, requeues
                  base: what all share; job_base: what jobs and letters share
The overview     overview, made of banners, queue_rows, limits, leases and the rows of workers; charts
Lists            changelists, filters
Rows             display (escaped and masked), timelines, tracebacks, plots
Actions          actions: the question, the change, its lines in the log, and why a row was left as it is
Jobs             enqueueing
Durable tasks    step_actions (what people do with them), step_table, trees
Schedules        schedules, schedule_form
Dead letters     letter_selection (which ones), letter_groups, letter_bulk (many of them, and their
                  export), letter_forms (one)
Forms and links  fields, links
"""

from .base import ReadOnlyAdmin
from .jobs import JobAdmin
from .letters import DeadLetterAdmin
from .queues import QueueStateAdmin
from .requeues import RequeueAdmin
from .schedules import ScheduleAdmin
from .workers import WorkerProcessAdmin

__all__ = [
    "DeadLetterAdmin",
    "JobAdmin",
    "QueueStateAdmin",
    "ReadOnlyAdmin",
    "RequeueAdmin",
    "ScheduleAdmin",
    "WorkerProcessAdmin",
]
