"""Operate jobs, dead letters, queues and workers from code, as operators do in the admin.

Rows of reserved queues, those of leases and time slots, are left out by all of them.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from . import requeueing
from .core import history, states
from .core.clock import to_instant
from .core.encoding import dumps, legible
from .core.ids import slices
from .core.settlement import cancelled
from .core.steps import Steps, before, read, skipped, written
from .core.text import shown, storable
from .engines import database_for, engine_for
from .fields import StoredText, text_of
from .models import DeadLetter, Job, Requeue
from .models.jobs import GIVEN_BACK, HAS_KEY, RESERVED, UNFINISHED
from .queue import doorbell
from .queue.arguments import checked_by, checked_priority, served_queue_name
from .queue.batches import change_in_batches
from .queue.dead_letters import Criteria, mark_reviewed
from .queue.discarding import discard_jobs, discard_letters
from .queue.doorbell import wake_workers
from .queue.events import check_steps_size
from .queue.named_jobs import HasId, Named, checked_id, ids_of
from .queue.pauses import pause, resume
from .queue.settling import settle
from .queue.workers import GO_ON, QUIET, STOP, undead

__all__ = [
    "cancel",
    "change_priority",
    "discard",
    "mark_reviewed",
    "move",
    "pause",
    "quiet_workers",
    "repeat_steps",
    "requeue_matching",
    "resume",
    "resume_workers",
    "run_now",
    "skip_step",
    "stop_workers",
]

# -- jobs --------------------------------------------------------------------------------------------------------------


def run_now(job_ids: Named, *, using: str | None = None) -> list[UUID]:
    """Make scheduled and retrying jobs due now, and wake the workers.

    ``job_ids``: an id, its last 8 digits or more, a job, the result of a task, or several of them; ``using``: a
    database alias (default: the one of your settings). Many jobs are changed a few at a time, each few in a transaction
    of their own, or all in yours. Limits hold: a blocked job is judged again, and a job that a rate has moved keeps its
    moment. Returns the ids of the changed jobs; jobs that are due already, moved by a rate, held by a worker, done or
    unknown are left out. Raises ValueError for a text that is no id, or the end of several.
    """
    database = database_for(using)
    now = engine_for(database).now()

    def make_due(ids: Sequence[UUID]) -> Iterable[UUID]:
        # The write comes first: to a transaction that has read SQLite refuses the lock instead of waiting for it.
        jobs = Job.objects.using(database).filter(~RESERVED, pk__in=ids)
        into_line = {"state": states.READY, "wake_at": None}
        later = jobs.filter(state__in=(states.SCHEDULED, states.WAITING), moved_from=None, wake_at__gt=now)
        later.update(due_at=now, **into_line)
        # What is blocked goes back to its place in the line, and the limit judges it again.
        blocked = list(jobs.filter(state=states.BLOCKED).values_list("pk", flat=True))
        jobs.filter(state=states.BLOCKED, pk__in=blocked).update(**into_line)
        return [*jobs.filter(state=states.READY, due_at=now).values_list("pk", flat=True), *blocked]

    return change_in_batches(job_ids, Job, database, make_due)


def change_priority(job_ids: Named, priority: int, *, using: str | None = None) -> list[UUID]:
    """Give unfinished jobs another priority, -100 to 100, unless a worker holds them; see run_now.

    Returns the ids of those that have it now. Raises ValueError for another priority.
    """
    priority, database = checked_priority(priority), database_for(using)

    def give(ids: Sequence[UUID]) -> Iterable[UUID]:
        jobs = unheld(ids, database)
        jobs.update(priority=priority)
        return jobs.values_list("pk", flat=True)

    return change_in_batches(job_ids, Job, database, give)


def move(job_ids: Named, queue_name: str, *, using: str | None = None) -> list[UUID]:
    """Put unfinished jobs into another queue, unless a worker holds them; see run_now.

    Their visibility timeout and their attempts stay what their first queue gave them. Returns the ids of those that
    were moved; one that is there already, or whose unique key an unfinished job of that queue has, is left out. Raises
    ValueError for what is no name of a queue, or of none that the settings have.
    """
    database = database_for(using)
    queue_name = served_queue_name(queue_name, database)
    taken = Job.objects.using(database).filter(HAS_KEY, queue_name=queue_name, unique_key=OuterRef("unique_key"))
    free = ~HAS_KEY | ~Exists(taken)

    def moved_one(job_id: UUID) -> int:
        job = unheld([job_id], database).exclude(queue_name=queue_name).filter(free)
        with suppress(IntegrityError), engine_for(database).atomic():  # what is just published is not seen before
            return job.update(queue_name=queue_name)
        return 0

    def move_some(ids: Sequence[UUID]) -> Iterable[UUID]:
        first, *others = ids
        moved = [first] if moved_one(first) else []  # the write comes first, as in run_now
        there = set(unheld(others, database).values_list("pk", flat=True))
        # One by one: two of them may have the same key.
        return moved + [job_id for job_id in others if job_id in there and moved_one(job_id)]

    return change_in_batches(job_ids, Job, database, move_some)


def unheld(job_ids: Iterable[UUID], database: str) -> QuerySet[Job]:
    """Return those of these jobs, a slice, that are unfinished and not held at this moment.

    What several workers may run (``overflow``) is held as long as it runs, for its lease ends while it does.
    """
    free = Q(state__in=states.QUEUED) | Q(lease_until__lte=engine_for(database).now(), copies__isnull=True)
    return Job.objects.using(database).filter(UNFINISHED, ~RESERVED, free, pk__in=job_ids)


def discard(job_ids: Named, *, using: str | None = None) -> list[UUID]:
    """Delete jobs, waiting or done, and dead letters for good. Jobs that a worker holds stay.

    See run_now. Returns the ids of those that are gone. Raises ValueError for what is no id, or the end of several.
    """
    database = database_for(using)
    ids = ids_of(job_ids, database, Job, DeadLetter)
    gone = {*discard_jobs(ids, using=database), *discard_letters(ids, using=database)}
    return [job_id for job_id in ids if job_id in gone]


def cancel(job_ids: Named, *, by: str = "", using: str | None = None) -> list[UUID]:
    """Cancel jobs: a waiting job becomes a dead letter at once, a running job is asked to stop.

    A running job sees it in ``context.cancelled``. It is not started again, whatever becomes of this attempt; if
    the attempt succeeds, the job does. The unfinished children of these jobs are cancelled with them. ``by``: who
    wants it, for the history; the rest: see run_now. Returns the ids of the jobs that were cancelled or asked. Jobs
    that are done, or were asked before, are left out.
    """
    database = database_for(using)
    engine, by = engine_for(database), checked_by(by)

    def cancel_some(ids: Sequence[UUID]) -> Iterable[UUID]:
        given = [job_id.hex for job_id in ids]
        engine.lock_families(given)
        now = engine.now()
        changed, waiting = engine.request_cancel(given, now, by)
        settle(engine, [cancelled(job, by, now) for job in waiting])
        children = Job.objects.using(database).filter(UNFINISHED, parent_id__in=list(map(UUID, changed)))
        for some in slices(list(children.values_list("pk", flat=True))):
            cancel_some(some)
        return map(UUID, changed)

    return change_in_batches(job_ids, Job, database, cancel_some)


def skip_step(
    job_id: HasId | UUID | str, name: str, value: Any = None, *, by: str = "", using: str | None = None
) -> bool:
    """Skip the next step of a durable task that waits or is dead: it goes on as if that had returned ``value``.

    ``value``: any JSON value. ``name``: of the event or the sleep that it waits for, else of the step that has failed.
    A job is due at once; a dead letter stays one until it is requeued. ``by``, ``using``: see cancel. Returns whether
    there is such a job, and no worker holds it. Raises ValueError if it waits for something else, TypeError for a value
    that is not JSON, PayloadTooLarge if the steps would be larger than ``max_steps_bytes`` of its queue.
    """
    kept = legible(value)
    return _change_steps(
        job_id, using, lambda found, now: skipped(found, name, kept, now), history.SKIPPED, repr(name), by
    )


def repeat_steps(job_id: HasId | UUID | str, first: int, *, by: str = "", using: str | None = None) -> bool:
    """Repeat the steps of a durable task that waits or is dead, from the ``first`` one on, counted from 1.

    See skip_step. Raises ValueError if there is no such step. Children of a repeated step are enqueued again.
    """
    told = f"from step {first} on"
    return _change_steps(job_id, using, lambda found, now: before(found, first), history.REPEATED, told, by)


def _change_steps(
    job_id: HasId | UUID | str,
    using: str | None,
    change_them: Callable[[Steps, int], Steps],
    outcome: str,
    message: str,
    by: str,
) -> bool:
    database, whole_id = database_for(using), checked_id(job_id)
    engine = engine_for(database)
    entry = history.changed(outcome, storable(message), checked_by(by), engine.now())
    free = Q(state__in=states.QUEUED) | GIVEN_BACK & Q(lease_until__lte=engine.now())
    with engine.atomic():
        jobs = Job.objects.using(database).filter(free, ~RESERVED, pk=whole_id)
        letters = DeadLetter.objects.using(database).filter(pk=whole_id)
        for rows in (jobs, letters):
            if rows.update(claims=F("claims")):  # the write lock first, so that no event comes in between
                row = rows.get()
                now = engine.now()
                ready = {"state": states.READY, "due_at": now, "wake_at": None, "lease_until": None}
                changed = written(change_them(read(row.steps, row.earlier_steps), now))
                if outcome == history.SKIPPED:
                    check_steps_size(len(dumps(changed).encode()), f"step {message}", row.queue_name, database)
                rows.update(
                    steps=changed,
                    earlier_steps=None,
                    history=StoredText(history.append(text_of(row.history), entry)),
                    **(ready if rows is jobs else {}),
                )
                wake_workers(database)
                return True
    return False


# -- dead letters ------------------------------------------------------------------------------------------------------


def requeue_matching(
    *,
    queue_name: str | None = None,
    task_path: str | None = None,
    exception_class: str | None = None,
    fingerprint: str | None = None,
    reviewed: bool | None = None,
    died_after: datetime | None = None,
    died_before: datetime | None = None,
    rate: int | None = None,
    canary: bool = False,
    to_queue: str | None = None,
    to_priority: int | None = None,
    by: str = "",
    using: str | None = None,
) -> Requeue:
    """Begin to requeue all dead letters that match, in the background; return the run, which the admin shows.

    The first seven say which; None: any. ``died_after``, ``died_before``: aware datetimes, both included; letters that
    die later are left. ``rate``: so many a minute, 1 to 1,000,000 (None: at once). ``canary``: one first, the others
    only when it has succeeded. ``to_queue``, ``to_priority``: for all of them, instead of their own. ``by``: who does
    it, for the history; ``using``: see run_now. Workers of the queue do it, in steps of up to 100 letters.

    Raises ValueError for a value that is not allowed.
    """
    criteria = Criteria(
        queue_name=queue_name,
        task_path=task_path,
        exception_class=exception_class,
        fingerprint=fingerprint,
        reviewed=reviewed,
        died_from=None if died_after is None else to_instant(died_after),
        died_to=None if died_before is None else to_instant(died_before),
    )
    return requeueing.start(
        criteria, rate=rate, canary=canary, queue_name=to_queue, priority=to_priority, by=by, using=using
    )


# -- workers -----------------------------------------------------------------------------------------------------------


def quiet_workers(worker_ids: str | Iterable[str], *, using: str | None = None) -> list[str]:
    """Ask workers to claim nothing more, and to finish what they run; they obey within a second.

    ``worker_ids``: one or several, as ``WorkerProcess.pk`` has them; ``using``: see run_now. Returns the ids of those
    that were asked; workers that are gone are left out. Raises TypeError for an id that is no text.
    """
    return _ask(worker_ids, QUIET, using)


def resume_workers(worker_ids: str | Iterable[str], *, using: str | None = None) -> list[str]:
    """Ask workers that are quiet to work again; see quiet_workers. One that was asked to stop stops all the same."""
    return _ask(worker_ids, GO_ON, using)


def stop_workers(worker_ids: str | Iterable[str], *, using: str | None = None) -> list[str]:
    """Ask workers to stop, as gracefully as after SIGTERM; see quiet_workers. It cannot be taken back."""
    return _ask(worker_ids, STOP, using)


ASKED_TO = {QUIET: quiet_workers, GO_ON: resume_workers, STOP: stop_workers}  # by the word that a row has


def _ask(worker_ids: str | Iterable[str], to: str, using: str | None) -> list[str]:
    database = database_for(using)
    ids = list(worker_ids) if isinstance(worker_ids, Iterable) and not isinstance(worker_ids, str) else [worker_ids]
    if wrong := [worker_id for worker_id in ids if not isinstance(worker_id, str)]:
        raise TypeError(f"worker_ids has {shown(wrong[0])}, but takes the id of a worker, a text, or several.")
    workers = undead(database).filter(pk__in=[worker_id for worker_id in ids if storable(worker_id) == worker_id])
    engine = engine_for(database)
    with engine.atomic():
        workers.exclude(asked_to=STOP).update(asked_to=to)
        bell_of = dict(workers.values_list("pk", "doorbell"))
        for bell in bell_of.values():
            transaction.on_commit(partial(doorbell.ring_worker, bell), using=database, robust=True)
        transaction.on_commit(partial(engine.ring, workers=True), using=database, robust=True)
    return [worker_id for worker_id in ids if worker_id in bell_of]
