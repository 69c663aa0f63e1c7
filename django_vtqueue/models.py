"""The tables. A job is a row; what is held is held by a lease that ends by itself.

Publishing, claims, leases and settlements are SQL in ``engines``; all else reads and writes by these models.
"""

from typing import Any, TypeVar

from django.db import models
from django.db.models import BooleanField, ExpressionWrapper, F, Q
from django.db.models.functions import Coalesce, Left
from django.db.models.lookups import Exact
from django.utils.translation import gettext_lazy as _

from .core import history, names, states, unique
from .core.ids import new_uuid
from .fields import InstantField, JSONTextField, MomentManager
from .fields.constraints import OF_COUNTS, OF_JOBS, OF_LETTERS, OF_ORIGIN, OF_PAUSES, OF_REQUEUES, OF_WORKERS

T = TypeVar("T")

UNFINISHED = Q(finished_at__isnull=True)
WAITING = Q(finished_at__isnull=True, lease_until__isnull=True)
# What the index of unique keys has.
HAS_KEY = UNFINISHED & Q(unique_key__isnull=False) & ~Q(unique_until=unique.STARTED)
HIDDEN = Q(lease_until__isnull=False)
# Rows of reserved queues: they are in no list or number of jobs, and no user changes them. Not by ``startswith``, which
# SQLite answers without regard to case, nor by a range, which another database answers by its own order of letters.
RESERVED = Q(*(Exact(Left("queue_name", len(name)), name) for name in names.RESERVED), _connector=Q.OR)
RAW = ExpressionWrapper(Q(task_path=""), output_field=BooleanField())


class Entry(models.Model):
    """What a job and a dead letter have in common.

    A requeue keeps it, but the attempts begin anew, the worker and ``expires_at`` go, and the queue and the priority
    may be others.
    """

    id = models.UUIDField(primary_key=True, default=new_uuid)
    queue_name = models.CharField(_("queue"), max_length=255)
    task_path = models.TextField(_("task"), blank=True, default="")  # empty for a raw payload
    priority = models.SmallIntegerField(_("priority"), default=0)
    claims = models.PositiveIntegerField(_("claims"), default=0, help_text=_("The claim number: a fencing token."))
    attempts = models.PositiveIntegerField(_("attempts"), default=0)  # attempts used of max_attempts
    max_attempts = models.PositiveIntegerField(_("max. attempts"))  # 0: unlimited
    worker_id = models.CharField(_("worker"), max_length=255, blank=True, default="")
    lease_us = models.BigIntegerField(_("visibility timeout (µs)"))
    unique_key = models.CharField(_("unique key"), max_length=255, null=True, blank=True)
    unique_until = models.CharField(_("unique until"), max_length=7, db_default=unique.DONE)
    enqueued_at = InstantField(_("enqueued"))
    started_at = InstantField(_("last started"), null=True, blank=True)
    expires_at = InstantField(_("kept until"), null=True, blank=True)

    objects = MomentManager()

    class Meta:
        abstract = True

    payload: Any  # of both, among their large columns
    history: Any

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


class Job(Entry):
    """A job that waits, runs, or has succeeded."""

    state = models.CharField(_("state"), max_length=10, default=states.READY)
    start_by = InstantField(_("expires"), null=True, blank=True)  # if it has not started by then it is never run
    due_at = InstantField(_("due at"))  # its place in the line: no claim, renewal or release changes it, a retry does
    lease_until = InstantField(_("hidden until"), null=True, blank=True)  # of what is held, or was given back just now
    visible_at = models.GeneratedField(
        expression=Coalesce("lease_until", "due_at"),
        output_field=InstantField(_("visible at")),
        db_persist=False,
        verbose_name=_("visible at"),
    )
    finished_at = InstantField(_("finished"), null=True, blank=True)
    cancelled_at = InstantField(_("asked to stop"), null=True, blank=True)  # from then on it is not started again
    cancelled_by = models.CharField(_("cancelled by"), max_length=150, null=True, blank=True)
    copies = JSONTextField(_("copies"), null=True, blank=True)  # of a job that several may run: see core/copies.py
    progress = models.FloatField(_("progress"), null=True, blank=True)  # 0 to 1, as its task says
    progress_text = models.CharField(_("progress"), max_length=255, null=True, blank=True)
    # Large columns last, so that the short ones are read without them.
    payload = JSONTextField(_("payload"))
    history = JSONTextField(_("history"), default=list)
    result = JSONTextField(_("result"), null=True, blank=True)

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
            # The claim: equality on all but the last column, then a range; ties end in the rowid.
            models.Index(RAW, F("priority").desc(), F("due_at"), name="vtqueue_job_due", condition=WAITING),
            models.Index(
                F("queue_name"), RAW, F("priority").desc(), F("due_at"), name="vtqueue_job_queue", condition=WAITING
            ),
            # What is hidden, of one queue and kind: small, for it has the held rows only.
            models.Index(F("queue_name"), RAW, F("lease_until"), name="vtqueue_job_hidden", condition=HIDDEN),
            models.Index(fields=["worker_id"], name="vtqueue_job_worker", condition=Q(state=states.RUNNING)),
            models.Index(fields=["expires_at"], name="vtqueue_job_expires", condition=Q(expires_at__isnull=False)),
            models.Index(
                fields=["start_by"], name="vtqueue_job_start_by", condition=WAITING & Q(start_by__isnull=False)
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
    def reserved(self) -> bool:
        """Whether it is the row of a lease or a time slot."""
        return names.is_reserved(self.queue_name)


class DeadLetter(Entry):
    """A job whose attempts are used up, or that gave up, with everything needed to understand it and send it again."""

    died_at = InstantField(_("died"))
    exception_class = models.CharField(_("exception"), max_length=255)
    message = models.CharField(_("message"), max_length=255, blank=True)
    fingerprint = models.CharField(_("fingerprint"), max_length=32)
    acknowledged_at = InstantField(_("acknowledged"), null=True, blank=True)
    acknowledged_by = models.CharField(_("acknowledged by"), max_length=150, blank=True, db_default="")
    note = models.TextField(_("note"), blank=True, db_default="")
    payload = JSONTextField(_("payload"))
    history = JSONTextField(_("history"), default=list)

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
            models.Index(fields=["queue_name"], name="vtqueue_letter_seen", condition=Q(acknowledged_at__isnull=False)),
            models.Index(fields=["expires_at"], name="vtqueue_letter_expires", condition=Q(expires_at__isnull=False)),
        ]
        constraints = OF_LETTERS

    def __str__(self) -> str:
        return f"{self.task_path or self.queue_name} {self.pk}: {self.exception_class}"

    def requeue(self, *, by: str = "", queue_name: str | None = None, priority: int | None = None) -> bool:
        """Send it round again, as ``django_vtqueue.requeue`` does with many; that says what is given and raised.

        Returns whether it is a job now: not if it was no dead letter any more, or a waiting job has its unique key.
        """
        from . import requeue

        return bool(requeue(self, self._state.db, by=by, queue_name=queue_name, priority=priority))


class WorkerProcess(models.Model):
    """A worker: for people, and to learn of its death before its leases end. Correctness needs none of it.

    The row of a killed one stays for an hour, with what became of its jobs; ``queue.workers.undead`` leaves it out.
    """

    worker_id = models.CharField(_("worker"), max_length=255, primary_key=True)
    host = models.CharField(_("host"), max_length=255)
    pid = models.PositiveIntegerField(_("pid"))
    queues = models.TextField(_("queues"), blank=True)  # names, separated by commas; empty: all
    slots = models.PositiveIntegerField(_("slots"))
    started_at = InstantField(_("started"))
    heartbeat_at = InstantField(_("last heartbeat"))
    doorbell = models.TextField(_("doorbell"), blank=True, help_text=_("Path of the socket that wakes it."))
    memory = models.BigIntegerField(_("memory"), null=True, blank=True)  # bytes
    asked_to = models.CharField(_("asked to"), max_length=10, blank=True, default="")  # see workers.QUIET, workers.STOP
    died_at = InstantField(_("died"), null=True, blank=True)  # when another worker found it dead
    went_on = models.PositiveIntegerField(_("jobs that went on"), db_default=0)
    buried = models.PositiveIntegerField(_("jobs that died with it"), db_default=0)
    left = models.TextField(_("jobs that it left"), blank=True, db_default="")  # some ids, by spaces

    objects = MomentManager()

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        permissions = [("stop_worker", "Can stop a worker")]
        constraints = OF_WORKERS

    def __str__(self) -> str:
        return self.worker_id


class Origin(models.Model):
    """Where the jobs of this database were run last, in one row: a copy of the file brings it along."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    machine = models.CharField(max_length=255)  # its name, and a hash of its machine-id
    path = models.TextField()  # of the database file
    file = models.CharField(max_length=255)  # file system and inode: a copy has others
    worked_at = InstantField()  # when a worker started here last

    objects = MomentManager()

    class Meta:
        default_permissions = ()
        constraints = OF_ORIGIN

    def __str__(self) -> str:
        return f"{self.machine.partition(':')[0]}, {self.path}"


class QueueState(models.Model):
    """A pause: nothing of its queue is claimed until it ends, by itself or because the queue is resumed."""

    queue_name = models.CharField(_("queue"), max_length=255, primary_key=True)
    paused_at = InstantField(_("paused"))
    paused_until = InstantField(_("paused until"), null=True, blank=True)
    paused_by = models.CharField(_("paused by"), max_length=150, blank=True, default="")
    reason = models.CharField(_("reason"), max_length=255, blank=True, default="")

    objects = MomentManager()

    class Meta:
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        default_permissions = ()
        constraints = OF_PAUSES

    def __str__(self) -> str:
        return self.queue_name


class Tallied(models.Model):
    """What one worker did for one task of one queue in a minute, or an hour, as it wrote it last.

    It writes every ten seconds: if it is killed, what came since is not counted.
    """

    starts_at = InstantField()  # the time begins here
    queue_name = models.CharField(max_length=255)
    task_path = models.TextField(blank=True, db_default="")
    worker_id = models.CharField(max_length=255)
    succeeded = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)  # attempts after which there is another
    dead = models.PositiveIntegerField(default=0)
    run_times = models.TextField(default="{}")  # how many attempts took how long
    wait_times = models.TextField(default="{}")  # how many attempts began how late
    depth = models.PositiveIntegerField(null=True, blank=True)  # jobs that were due in the queue, at the most

    objects = MomentManager()

    class Meta:
        abstract = True
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["starts_at", "queue_name", "task_path", "worker_id"], name="%(app_label)s_%(class)s_unique"
            ),
            *OF_COUNTS,
        ]

    def __str__(self) -> str:
        return f"{self.queue_name} {self.starts_at}"


class Throughput(Tallied):
    """The counts of a minute."""


class HourlyThroughput(Tallied):
    """The counts of an hour, which are kept for longer."""


class Requeue(models.Model):
    """Many dead letters on their way back into their queues, a few at a time; a job of its own carries it out."""

    id = models.UUIDField(_("id"), primary_key=True, default=new_uuid)
    criteria = models.TextField(_("criteria"))  # which dead letters, as JSON
    task_path = models.TextField(_("task"), null=True, blank=True)  # NULL: several tasks; '': raw payloads
    exception_class = models.CharField(_("exception"), max_length=255, null=True, blank=True)  # NULL: several of them
    queue_name = models.CharField(_("queue"), max_length=255, help_text=_("In which its own jobs wait."))
    rate = models.PositiveIntegerField(_("a minute"), null=True, blank=True)  # NULL: at once
    canary = models.UUIDField(_("canary"), null=True, blank=True)  # the one that went first
    to_queue = models.CharField(_("into the queue"), max_length=255, null=True, blank=True)
    to_priority = models.SmallIntegerField(_("with the priority"), null=True, blank=True)
    matched = models.PositiveIntegerField(_("matched"), default=0)
    requeued = models.PositiveIntegerField(_("requeued"), default=0)
    skipped = models.PositiveIntegerField(_("skipped"), default=0)
    followed = models.TextField(_("followed"), db_default="")  # the ids of the jobs that went last
    state = models.CharField(_("state"), max_length=10)
    remark = models.CharField(_("remark"), max_length=255, blank=True, default="")
    created_at = InstantField(_("created"))
    created_by = models.CharField(_("created by"), max_length=150, blank=True, default="")
    last_died_at = InstantField(_("up to"), null=True, blank=True)  # how far it has come
    last_id = models.UUIDField(null=True, blank=True)
    step = models.UUIDField(_("step"), null=True, blank=True)  # the job that goes on with it
    ended_at = InstantField(_("ended"), null=True, blank=True)

    objects = MomentManager()

    class Meta:
        verbose_name = _("requeue")
        verbose_name_plural = _("requeues")
        default_permissions = ("view",)
        constraints = OF_REQUEUES

    def __str__(self) -> str:
        task = _("several tasks") if self.task_path is None else self.task_path or _("raw payloads")
        failure = self.exception_class or _("several exceptions")
        return f"{task}: {failure.rpartition('.')[2]}"
