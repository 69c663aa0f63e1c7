"""Jobs and dead letters. What is held is held by a lease that ends by itself."""

from typing import Any, TypeAlias, TypeVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Left
from django.db.models.lookups import Exact
from django.utils.translation import gettext_lazy as _

from ..core import history, names, states, unique
from ..core.ids import new_uuid
from ..fields import InstantField, JSONTextField, MomentManager
from ..fields.columns import ComputedField, LineIndex
from ..fields.constraints import OF_JOBS, OF_LETTERS, holds, in_state

T = TypeVar("T")

LOWEST = -100  # priority
UNFINISHED = Q(finished_at__isnull=True)
QUEUED = Q(finished_at__isnull=True, lease_until__isnull=True)  # held by no one
ANY_PRIORITY, ANY_NAME = Q(priority__gte=LOWEST), Q(queue_name__isnull=False)  # true of every row, see ready_jobs
# What the index of unique keys has.
HAS_KEY = UNFINISHED & Q(unique_key__isnull=False) & ~Q(unique_until=unique.STARTED)
HELD = Q(lease_until__isnull=False)
GIVEN_BACK = HELD & Q(worker_id="")  # by a worker that ended; the next claim puts it into the line
BY_WORKER = in_state(states.RUNNING) & Q(worker_id__gt="")  # held, and not given back
ASIDE = Q(wake_at__isnull=False)  # SCHEDULED, WAITING, BLOCKED
HAS_CONCURRENCY_KEY = Q(concurrency_key__isnull=False)  # first in conditions: most rows are out by then
IN_ORDER = Q(ordered__gt=False)  # each Django writes a comparison with True in its own way
BOOKED = Q(rate_key__isnull=False) & Q(moved_from__isnull=False)
# Rows of reserved queues: they are in no list or number of jobs, and no user changes them. Not by ``startswith``, which
# SQLite answers without regard to case, nor by a range, which another database answers by its own order of letters.
RESERVED = Q(*(Exact(Left("queue_name", len(name)), name) for name in names.RESERVED_PREFIXES), _connector=Q.OR)
RAW = holds(Q(task_path=""))


def ready_jobs(which: Q | None = None) -> Q:
    """Return the condition for READY jobs: one of the claim's indexes is used for it, not the whole table read.

    ``which``: compares the name of the queue, or the priority; empty: all.
    """
    return in_state(states.READY) & (which or ANY_PRIORITY)


class AbstractJob(models.Model):
    """What a job and a dead letter have in common.

    A requeue keeps it, but the attempts begin anew, the worker and ``kept_until`` go, and the queue and the priority
    may be others.
    """

    id = models.UUIDField(primary_key=True, default=new_uuid)
    queue_name = models.CharField(_("queue"), max_length=255)
    task_path = models.TextField(_("task"), blank=True, default="")  # empty for a raw payload
    priority = models.SmallIntegerField(_("priority"), default=0)
    claims = models.BigIntegerField(_("claims"), default=0, help_text=_("The claim number: a fencing token."))
    attempts = models.BigIntegerField(_("attempts"), default=0)  # attempts used of max_attempts
    max_attempts = models.IntegerField(_("max. attempts"))  # 0: unlimited
    worker_id = models.CharField(_("worker"), max_length=255, blank=True, default="")
    lease_us = models.BigIntegerField(_("visibility timeout (µs)"))
    unique_key = models.CharField(_("unique key"), max_length=255, null=True, blank=True)
    unique_until = models.CharField(_("unique until"), max_length=7, db_default=unique.DONE)
    # Of these jobs only so many run at once, or start in a time; see queue/limits.py.
    concurrency_key = models.CharField(_("concurrency key"), max_length=255, null=True, blank=True)
    ordered = models.BooleanField(_("in order"), default=False, db_default=False)  # by its concurrency key
    rate_key = models.CharField(_("rate key"), max_length=255, null=True, blank=True)
    parent_id = models.UUIDField(_("parent"), null=True, blank=True)  # the job that waits for its end
    enqueued_at = InstantField(_("enqueued"))
    started_at = InstantField(_("last started"), null=True, blank=True)
    kept_until = InstantField(_("kept until"), null=True, blank=True)

    objects = MomentManager()

    class Meta:
        abstract = True

    metadata: Any  # of both, among their large columns
    payload: Any
    history: Any
    steps: Any  # of a durable task: what is done; see core/steps.py

    @property
    def args(self) -> list[Any]:
        """The positional arguments of its task's call; empty for a raw payload, or one that is damaged."""
        return self._in_call("args", list)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments of its task's call; empty for a raw payload, or one that is damaged."""
        return self._in_call("kwargs", dict)

    @property
    def traceback(self) -> str:
        """The traceback of the last attempt that raised an exception; "" if none has."""
        entries = reversed(history.read(self.history))
        return next((str(entry["traceback"]) for entry in entries if "traceback" in entry), "")

    def _in_call(self, name: str, kind: type[T]) -> T:
        found = self.payload.get(name) if self.task_path and isinstance(self.payload, dict) else None
        return found if isinstance(found, kind) else kind()


class Job(AbstractJob):
    """A job that waits, runs, or has succeeded."""

    state = models.CharField(_("state"), max_length=10, default=states.READY)
    start_by = InstantField(_("expires"), null=True, blank=True)  # if it has not started by then it is never run
    due_at = InstantField(_("due at"))  # its place in the line: no lease changes it; retries and waits do
    wake_at = InstantField(_("wakes at"), null=True, blank=True)  # when it enters the line, while it is not in it
    lease_until = InstantField(_("held until"), null=True, blank=True)
    visible_at = ComputedField(
        expression=Coalesce("lease_until", "wake_at", "due_at"),
        output_field=InstantField(_("visible at")),
        db_persist=False,
        verbose_name=_("visible at"),
    )
    moved_from = InstantField(_("moved from"), null=True, blank=True)  # its place, until a rate reserved another
    finished_at = InstantField(_("finished"), null=True, blank=True)
    cancelled_at = InstantField(_("asked to stop"), null=True, blank=True)  # from then on it is not started again
    cancelled_by = models.CharField(_("cancelled by"), max_length=150, null=True, blank=True)
    metadata = JSONTextField(_("metadata"), null=True, blank=True)  # what travels with it from its enqueue to its run
    copies = JSONTextField(_("copies"), null=True, blank=True)  # of a job that several may run: see core/copies.py
    progress = models.FloatField(_("progress"), null=True, blank=True)  # 0 to 1, as its task says
    progress_text = models.CharField(_("progress"), max_length=255, null=True, blank=True)
    # Large columns last, so that the short ones are read without them.
    payload = JSONTextField(_("payload"))
    history = JSONTextField(_("history"), default=list)
    result = JSONTextField(_("result"), null=True, blank=True)
    steps = JSONTextField(_("steps"), null=True, blank=True)
    earlier_steps = JSONTextField(_("steps"), null=True, blank=True)

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = [
            ("enqueue_job", "Can enqueue a job"),
            ("run_job", "Can run a job now"),
            ("cancel_job", "Can cancel a job"),
            ("pause_queue", "Can pause and resume a queue"),
        ]
        indexes = [
            # The claim: equality on all but the last column, then a range; ties end in the handle.
            LineIndex(
                RAW,
                F("priority").desc(),
                F("due_at"),
                name="vtqueue_job_ready",
                condition=Q(state=states.READY),
                always_true=ANY_PRIORITY,
            ),
            LineIndex(
                F("queue_name"),
                RAW,
                F("priority").desc(),
                F("due_at"),
                name="vtqueue_job_queue",
                condition=Q(state=states.READY),
                always_true=ANY_NAME,  # as any query does that compares the name
            ),
            # What is not in the line: of all queues by the moment at which it wakes, and of one.
            models.Index(RAW, F("wake_at"), name="vtqueue_job_wake", condition=ASIDE),
            LineIndex(
                F("queue_name"), RAW, F("wake_at"), name="vtqueue_job_aside", condition=ASIDE, always_true=ANY_NAME
            ),
            # What is held, of one queue and kind: small.
            models.Index(F("queue_name"), RAW, F("lease_until"), name="vtqueue_job_held", condition=HELD),
            models.Index(fields=["worker_id"], name="vtqueue_job_worker", condition=Q(state=states.RUNNING)),
            models.Index(fields=["kept_until"], name="vtqueue_job_kept", condition=Q(kept_until__isnull=False)),
            models.Index(
                fields=["start_by"], name="vtqueue_job_start_by", condition=QUEUED & Q(start_by__isnull=False)
            ),
            # Of a concurrency key: what is held, what is first of those in order (by the handle), and what is blocked.
            models.Index(fields=["concurrency_key"], name="vtqueue_job_key_held", condition=HAS_CONCURRENCY_KEY & HELD),
            LineIndex(
                fields=["concurrency_key"],
                name="vtqueue_job_key_order",
                condition=IN_ORDER & UNFINISHED,
                ties=("enqueued_at", "id"),
            ),
            models.Index(
                F("concurrency_key"),
                F("ordered"),
                F("queue_name"),
                F("priority").desc(),
                F("due_at"),
                name="vtqueue_job_blocked",
                condition=Q(state=states.BLOCKED),
            ),
            # Of a rate key: the moments that are reserved for its jobs.
            models.Index(F("rate_key"), Coalesce("wake_at", "due_at"), name="vtqueue_job_booked", condition=BOOKED),
            models.Index(
                fields=["parent_id", "finished_at"], name="vtqueue_job_parent", condition=Q(parent_id__isnull=False)
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["queue_name", "unique_key"],
                name="vtqueue_job_unique",
                condition=HAS_KEY,
            ),
            *OF_JOBS,
        ]

    def __str__(self) -> str:
        return f"{self.task_path or self.queue_name} {self.pk}"

    @property
    def queued(self) -> bool:
        """Whether it is unfinished, and no worker holds it: also one that a worker gave back as it ended."""
        return self.state in states.QUEUED or (self.state == states.RUNNING and not self.worker_id)

    @property
    def reserved(self) -> bool:
        """Whether it is the row of a lease or a time slot."""
        return names.is_reserved(self.queue_name)


class DeadLetter(AbstractJob):
    """A job whose attempts are used up, or that gave up, with everything needed to understand it and send it again."""

    died_at = InstantField(_("died"))
    exception_class = models.CharField(_("exception"), max_length=255)
    message = models.CharField(_("message"), max_length=255, blank=True)
    fingerprint = models.CharField(_("fingerprint"), max_length=32)
    reviewed_at = InstantField(_("reviewed"), null=True, blank=True)
    reviewed_by = models.CharField(_("reviewed by"), max_length=150, blank=True, db_default="")
    note = models.TextField(_("note"), blank=True, db_default="")
    metadata = JSONTextField(_("metadata"), null=True, blank=True)
    payload = JSONTextField(_("payload"))
    history = JSONTextField(_("history"), default=list)
    steps = JSONTextField(_("steps"), null=True, blank=True)
    earlier_steps = JSONTextField(_("steps"), null=True, blank=True)

    class Meta:
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        permissions = [
            ("requeue_deadletter", "Can requeue a dead letter"),
            ("discard_deadletter", "Can discard a dead letter"),
        ]
        indexes = [
            models.Index(fields=["died_at", "id"], name="vtqueue_letter_died"),
            # The queue last, so that the letters of a group in one queue are counted without reading them.
            models.Index(
                fields=["fingerprint", "task_path", "died_at", "id", "queue_name"], name="vtqueue_letter_group"
            ),
            models.Index(fields=["task_path", "died_at", "id"], name="vtqueue_letter_task"),
            models.Index(fields=["queue_name", "died_at", "id"], name="vtqueue_letter_queue"),
            models.Index(fields=["exception_class", "died_at", "id"], name="vtqueue_letter_exception"),
            models.Index(fields=["message"], name="vtqueue_letter_message"),
            models.Index(fields=["queue_name"], name="vtqueue_letter_seen", condition=Q(reviewed_at__isnull=False)),
            models.Index(fields=["kept_until"], name="vtqueue_letter_kept", condition=Q(kept_until__isnull=False)),
            models.Index(fields=["parent_id"], name="vtqueue_letter_parent", condition=Q(parent_id__isnull=False)),
        ]
        constraints = OF_LETTERS

    def __str__(self) -> str:
        return f"{self.task_path or self.queue_name} {self.pk}: {self.exception_class}"

    def requeue(self, *, by: str = "", queue_name: str | None = None, priority: int | None = None) -> bool:
        """Send it round again, as ``django_vtqueue.requeue`` does with many; that says what is given and raised.

        Returns whether it is a job now: not if it was no dead letter any more, or a waiting job has its unique key.
        """
        from .. import requeue

        return bool(requeue(self, using=self._state.db, by=by, queue_name=queue_name, priority=priority))


JobOrLetter: TypeAlias = Job | DeadLetter
