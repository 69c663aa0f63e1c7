"""Operations on jobs (run now, change, move, delete, cancel) and on workers (quiet, stop).

Rows of reserved queues, those of leases and time slots, are left out by all of them.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from .core import history, states
from .core.encoding import dumps, legible
from .core.ids import slices
from .core.settlement import cancelled
from .core.steps import Steps, before, read, skipped, written
from .core.text import shown, storable
from .engines import database_for, engine_for
from .fields import StoredText, text_of
from .models import HAS_KEY, PARKED, RESERVED, UNFINISHED, DeadLetter, Job
from .queue import doorbell
from .queue.arguments import checked_by, checked_priority, served_queue_name
from .queue.batches import change_in_batches
from .queue.doorbell import wake_workers
from .queue.events import check_steps_size
from .queue.named_jobs import HasId, Named, checked_id
from .queue.settling import settle
from .queue.workers import GO_ON, QUIET, STOP, undead


def run_now(job_ids: Named, using: str | None = None) -> list[UUID]:
    """Make jobs that wait for a later time, or for a retry, due at once, and wake the workers.

    ``job_ids``: an id, its last 8 digits or more, a job, the result of a task, or several of them; ``using``: a
    database alias (default: the one of your settings). Many are changed a few at a time, each few in a transaction of
    their own if there is none around all. A limit is not broken: what is parked is judged again, and a job that a rate
    has moved keeps its moment. Returns the ids of those that were changed; one that is due already, moved by a rate,
    held by a worker, done or unknown is left out. Raises ValueError for what is no id, or the end of several.
    """
    database = database_for(using)
    now = engine_for(database).now()

    def make_due(ids: Sequence[UUID]) -> Iterable[UUID]:
        # The write comes first: to a transaction that has read SQLite refuses the lock instead of waiting for it.
        jobs = Job.objects.using(database).filter(~RESERVED, pk__in=ids, state=states.READY)
        jobs.filter(due_at__gt=now, moved_from=None).update(due_at=now)
        # What is parked goes back to its place in the line, and the limit judges it again.
        parked = list(jobs.filter(PARKED).values_list("pk", flat=True))
        jobs.filter(PARKED, pk__in=parked).update(due_at=F("moved_from"), moved_from=None)
        return [*jobs.filter(due_at=now).values_list("pk", flat=True), *parked]

    return change_in_batches(job_ids, Job, database, make_due)


def change_priority(job_ids: Named, priority: int, using: str | None = None) -> list[UUID]:
    """Give unfinished jobs another priority, -100 to 100, unless a worker holds them; see run_now.

    Returns the ids of those that have it now. Raises ValueError for another priority.
    """
    priority, database = checked_priority(priority), database_for(using)

    def give(ids: Sequence[UUID]) -> Iterable[UUID]:
        jobs = unheld(ids, database)
        jobs.update(priority=priority)
        return jobs.values_list("pk", flat=True)

    return change_in_batches(job_ids, Job, database, give)


def move(job_ids: Named, queue_name: str, using: str | None = None) -> list[UUID]:
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
    free = Q(state=states.READY) | Q(lease_until__lte=engine_for(database).now(), copies__isnull=True)
    return Job.objects.using(database).filter(UNFINISHED, ~RESERVED, free, pk__in=job_ids)


def delete(job_ids: Named, using: str | None = None) -> list[UUID]:
    """Delete jobs, waiting or done, unless a worker holds them; see run_now. Returns the ids of those that are gone.

    Dead letters are left as they are; see dead_letters.discard.
    """
    database = database_for(using)
    held = Q(lease_until__gt=engine_for(database).now()) | Q(state=states.RUNNING, copies__isnull=False)

    def delete_some(ids: Sequence[UUID]) -> Iterable[UUID]:
        jobs = Job.objects.using(database).filter(pk__in=ids)
        # Not delete(): where a project listens to that, it reads first.
        jobs.exclude(held | RESERVED)._raw_delete(database)
        letters = DeadLetter.objects.using(database).filter(pk__in=ids)
        return set(ids).difference(jobs.values_list("pk", flat=True), letters.values_list("pk", flat=True))

    return change_in_batches(job_ids, Job, database, delete_some)


def cancel(job_ids: Named, using: str | None = None, by: str = "") -> list[UUID]:
    """Have jobs run no more: one that waits becomes a dead letter at once, one that runs is asked to stop.

    What was asked to stop is not started again, whatever becomes of this attempt; if that succeeds, the job has. The
    unfinished children of these jobs are cancelled with them. Many are cancelled a few at a time, each few in a
    transaction of their own if there is none around all.
    ``by``: who wants it, for those who read the history; the rest: see run_now. Returns the ids of those that were
    cancelled or asked; one that is done, or was asked before, is left out.
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


def skip_step(job_id: HasId | UUID | str, name: str, value: Any = None, using: str | None = None, by: str = "") -> bool:
    """Have a durable task that waits, or is dead, go on as if its next step had returned ``value``, any JSON value.

    ``name``: of the event or the sleep that it waits for, else of the step that has failed. A job is due at once; a
    dead letter stays one until it is requeued. ``by``, ``using``: see cancel. Returns whether there is such a job, and
    no worker holds it. Raises ValueError if it waits for something else, TypeError for what steps cannot hold,
    PayloadTooLarge if they would be larger than its queue's ``max_steps_bytes``.
    """
    kept = legible(value)
    return _change_steps(
        job_id, using, lambda found, now: skipped(found, name, kept, now), history.SKIPPED, repr(name), by
    )


def repeat_steps(job_id: HasId | UUID | str, first: int, using: str | None = None, by: str = "") -> bool:
    """Have a durable task that waits, or is dead, make its steps anew from the ``first`` one on, counted from 1.

    See skip_step. Raises ValueError if there is no such step. Children of a step that is repeated are enqueued anew.
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
    with engine.atomic():
        jobs = Job.objects.using(database).filter(~RESERVED, pk=whole_id, state=states.READY)
        letters = DeadLetter.objects.using(database).filter(pk=whole_id)
        for rows in (jobs, letters):
            if rows.update(claims=F("claims")):  # the write lock first, so that no event comes in between
                row = rows.get()
                now = engine.now()
                due = {"due_at": now} if rows is jobs else {}
                changed = written(change_them(read(row.steps, row.earlier_steps), now))
                if outcome == history.SKIPPED:
                    check_steps_size(len(dumps(changed).encode()), f"step {message}", row.queue_name, database)
                rows.update(
                    steps=changed,
                    earlier_steps=None,
                    history=StoredText(history.append(text_of(row.history), entry)),
                    **due,
                )
                wake_workers(database)
                return True
    return False


def ask(worker_ids: str | Iterable[str], to: str, using: str | None = None) -> list[str]:
    """Ask workers to be ``"quiet"`` (finish what runs, claim nothing), to work again (``""``), or to ``"stop"``.

    They obey within a second; a stop is as graceful as after SIGTERM, and cannot be taken back: one that was asked to
    stop does, whatever it is asked later. ``worker_ids``: one or several; see run_now for ``using``. Returns the ids of
    those that were asked; workers that are gone are left out. Raises ValueError for any other ``to``, TypeError for an
    id that is no text.
    """
    if to not in (QUIET, STOP, GO_ON):
        raise ValueError(f'A worker can be asked to be "quiet", to "stop", or ("") to work again; not {to!r}.')
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
