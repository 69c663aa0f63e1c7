"""The errors of this package, on one screen.

DamagedJob, Indescribable, JobExpired, LeaseExpired, WorkerDied and OutcomeNotStored are recorded as the end of an
attempt or a job, never raised. TaskTimeout is raised *in* a task, when its time is up. Retry, GiveUp, Snooze and
Cancelled are raised *by* a task, to say how its attempt ended; they are not errors of the queue. Cancelled is also
recorded for a job that was cancelled.
"""

from datetime import datetime, timedelta
from math import isfinite
from typing import Any
from uuid import UUID

from django.db.utils import OperationalError

from .core.links import page

__all__ = [
    "Cancelled",
    "DamagedJob",
    "DamagedPayload",
    "DuplicateJob",
    "DurableMismatch",
    "GiveUp",
    "Indescribable",
    "JobExpired",
    "LeaseExpired",
    "LeaseLost",
    "LogDeleted",
    "NoFreeSlot",
    "OutcomeNotStored",
    "PayloadTooLarge",
    "QueueFull",
    "Retry",
    "Snooze",
    "StaleTransaction",
    "StepError",
    "StepsTooLarge",
    "TaskTimeout",
    "UnknownTask",
    "VTQueueError",
    "WorkerDied",
    "WorkflowFailed",
]


class VTQueueError(Exception):
    """Base class of what the queue itself raises."""


class LeaseLost(VTQueueError):
    """The job is not held under this claim number any more; nothing was changed."""


class NoFreeSlot(VTQueueError):
    """Each slot of a cycle is held by another instance, and none was given up within the time allowed."""


class UnknownTask(VTQueueError):
    """The row's task path names nothing that may run here."""


class DamagedPayload(VTQueueError, ValueError):
    """The row's payload cannot be read: it was changed after it was stored."""


class DamagedJob(VTQueueError):
    """A row cannot be read as it is stored: it was changed after that."""


class PayloadTooLarge(VTQueueError, ValueError):
    """A payload is larger than ``max_payload_bytes``, or a result than its database takes; nothing was stored."""


class QueueFull(VTQueueError):
    """The queue has no room for what was to be published (``max_depth``); nothing was stored.

    ``queue_name``; ``depth``: how many jobs wait in it, counted up to ``max_depth``; ``oldest_age``: for how many
    seconds the first of them has been due; ``retry_after``: in how many seconds there may be room, at the rate of the
    last minutes.
    """

    patience = 0.0  # seconds for which the publish may wait for room

    def __init__(self, queue_name: str, depth: int, oldest_age: float, retry_after: float, message: str = "") -> None:
        self.queue_name, self.depth, self.oldest_age, self.retry_after = queue_name, depth, oldest_age, retry_after
        self.message = message or f"Queue {queue_name!r} is full: {depth:,} jobs wait."

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.queue_name, self.depth, self.oldest_age, self.retry_after, self.message)


class DuplicateJob(VTQueueError):
    """An unfinished job has the unique key; nothing was stored.

    ``job_id``: that of the job, which is also the id of its task's result; None if two jobs of one call have the key.
    ``unique_key``: the key.
    """

    def __init__(self, message: str = "", *, job_id: UUID | None = None, unique_key: str = "") -> None:
        super().__init__(message)
        self.job_id, self.unique_key = job_id, unique_key


class JobExpired(VTQueueError):
    """A job had not started by the time that ``expires`` gave to it; it was never run."""


class Indescribable(VTQueueError):
    """A task raised an exception that cannot be handled as one: its class or its text fails when it is asked for."""


class LeaseExpired(VTQueueError):
    """An attempt ended because its lease did: the worker was killed, stopped or cut off."""


class WorkerDied(VTQueueError):
    """An attempt ended because its worker was found dead before the lease had ended."""


class OutcomeNotStored(VTQueueError):
    """An attempt ended, but the database refused to store what came of it."""


class TaskTimeout(TimeoutError):
    """Raised inside a task that runs for longer than its ``timeout``; it may catch it to clean up."""

    def __init__(self, message: str = "The time of this task is up.") -> None:
        super().__init__(message)


class StaleTransaction(VTQueueError, OperationalError):
    """The caller's transaction has read, another connection has written since: SQLite lets this one write no more."""

    def __init__(
        self,
        message: str = "database is locked: this transaction has read, another connection has written since, and "
        "SQLite lets it write no more. Set OPTIONS['transaction_mode'] of the database to 'IMMEDIATE', or write "
        "before you read in the transaction, or read before it (the ids into a list) and enqueue them in it.",
    ) -> None:
        super().__init__(message)


class LogDeleted(VTQueueError, OperationalError):
    """The log (WAL) of a SQLite database was deleted while processes used it; each of them has to be restarted."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the log of the database was deleted or exchanged while this process used it: {path}-wal, or its index "
            "(-shm). Changes that were only in that log are lost, and to go on would destroy the database. Restart "
            "all processes that use it: the site, workers, shells. How to handle the files of a database in use: "
            f"{page('guides/backups')}"
        )
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)


class StepError(VTQueueError):
    """A durable task does what it may not do; there is no further attempt."""


class DurableMismatch(StepError):
    """A durable task asks for another step than the one that is stored: its code was changed, or is not the same twice.

    It became a dead letter; what is stored of it is kept.
    """


class StepsTooLarge(StepError):
    """What is stored of a durable task's steps is larger than ``max_steps_bytes``; the last step was not stored."""


class Snooze(Exception):
    """Raised inside a task, or a handler: put the job off, as if it had not been started; no attempt is used.

    ``until``: seconds, a ``timedelta``, or a moment.
    """

    def __init__(self, until: float | timedelta | datetime) -> None:
        number = isinstance(until, int | float) and not isinstance(until, bool) and isfinite(until)
        if not (number or isinstance(until, timedelta | datetime)):
            raise ValueError(f"Snooze takes seconds, a timedelta or a datetime, not {until!r}.")
        super().__init__(f"put off: {until}")
        self.until = until


class Retry(Exception):
    """Raised inside a task: end this attempt and try again.

    ``delay`` is in seconds (or a ``timedelta``); without it the task's backoff decides. The attempt counts.
    ``whole_queue``: no other job of the queue is claimed either until then, for a service that answers "429 Too Many
    Requests"; the queue is paused, with the message as its reason, unless it is paused for longer.
    """

    def __init__(self, message: str = "", *, delay: float | timedelta | None = None, whole_queue: bool = False) -> None:
        if isinstance(message, int | float | timedelta):
            raise ValueError(f"Retry takes a message, not {message!r}: say Retry(delay=...), or Retry(str(...)).")
        super().__init__(message)
        self.delay, self.whole_queue = delay, whole_queue


class GiveUp(Exception):
    """Raised inside a task: no further attempt makes sense; the job becomes a dead letter at once."""


class Cancelled(Exception):
    """Raised inside a task that stops because its job was cancelled; the job becomes a dead letter at once."""


class WorkflowFailed(StepError):
    """A call of a chain or a group has failed, so the whole has; requeued, it runs the failed calls again."""
