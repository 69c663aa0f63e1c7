"""Operations on jobs (run now, change, move, delete, cancel) and on workers (quiet, stop)."""

from collections.abc import Iterable
from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from .core import states
from .core.failures import storable
from .core.ids import slices
from .core.job import cancelled
from .engines import backend_options, database_of, engine_for, options_for
from .models import UNFINISHED, Job
from .queue import doorbell
from .queue.doorbell import ring_after_commit
from .queue.lookup import Named, ids_of
from .queue.publishing import checked_priority, checked_queue_name
from .queue.workers import QUIET, STOP, WORK, undead

LONGEST_NAME = 150  # characters of who cancels a job


def run_now(job_ids: Named, using: str | None = None) -> list[UUID]:
    """Make jobs that wait for a later time, or for a retry, due at once, and wake the workers.

    ``job_ids``: an id, its last 8 digits or more, a job, or several of them; ``using``: a database alias (default: the
    one of your settings). Many are changed a few at a time, each few in a transaction of their own if there is none
    around all. Returns the ids of those that were changed; one that is due already, held by a worker, done or unknown
    is left out. Raises ValueError for what is no id, or the end of several.
    """
    options = backend_options(using)
    database = using or database_of(options)
    now = engine_for(database).now()
    changed: list[UUID] = []
    for some in slices(ids_of(job_ids, Job, database)):
        jobs = Job.objects.using(database).filter(pk__in=some)
        with engine_for(database).atomic():
            # The write comes first: to a transaction that has read SQLite refuses the lock instead of waiting for it.
            jobs.filter(state=states.READY, due_at__gt=now).update(due_at=now)
            changed += jobs.filter(state=states.READY, due_at=now).values_list("pk", flat=True)
    ring_after_commit(database, options.doorbells)
    return changed


def change_priority(job_ids: Named, priority: int, using: str | None = None) -> list[UUID]:
    """Give unfinished jobs another priority, -100 to 100, unless a worker holds them; see run_now.

    Returns the ids of those that have it now. Raises ValueError for another priority.
    """
    priority, options = checked_priority(priority), backend_options(using)
    database = using or database_of(options)
    changed: list[UUID] = []
    for some in slices(ids_of(job_ids, Job, database)):
        jobs = unheld(some, database)
        with engine_for(database).atomic():
            jobs.update(priority=priority)
            changed += jobs.values_list("pk", flat=True)
    ring_after_commit(database, options.doorbells)
    return changed


def move(job_ids: Named, queue_name: str, using: str | None = None) -> list[UUID]:
    """Put unfinished jobs into another queue, unless a worker holds them; see run_now.

    Their visibility timeout and their attempts stay what their first queue gave them. Returns the ids of those that
    were moved; one that is there already, or whose unique key an unfinished job of that queue has, is left out. Raises
    ValueError for what is no name of a queue.
    """
    queue_name, options = checked_queue_name(queue_name), backend_options(using)
    database = using or database_of(options)
    taken = Job.objects.using(database).filter(UNFINISHED, queue_name=queue_name, unique_key=OuterRef("unique_key"))

    def moved_one(job_id: UUID) -> int:
        job = unheld([job_id], database).exclude(queue_name=queue_name).filter(~Exists(taken))
        return job.update(queue_name=queue_name)

    moved: list[UUID] = []
    for ids in slices(ids_of(job_ids, Job, database)):
        first, *others = ids
        with engine_for(database).atomic():
            moved += [first] if moved_one(first) else []  # the write comes first, as in run_now
            there = set(unheld(others, database).values_list("pk", flat=True))
            # One by one: two of them may have the same key.
            moved += [job_id for job_id in others if job_id in there and moved_one(job_id)]
    ring_after_commit(database, options.doorbells)
    return moved


def unheld(job_ids: Iterable[UUID], database: str) -> QuerySet[Job]:
    """Return those of these jobs, a slice, that are unfinished and not held at this moment."""
    free = Q(state=states.READY) | Q(lease_until__lte=engine_for(database).now())
    return Job.objects.using(database).filter(UNFINISHED, free, pk__in=job_ids)


def delete(job_ids: Named, using: str | None = None) -> list[UUID]:
    """Delete jobs, waiting or done, unless a worker holds them; see run_now. Returns the ids of those that are gone."""
    database = using or database_of(backend_options())
    held = Q(lease_until__gt=engine_for(database).now())
    gone: list[UUID] = []
    for some in slices(ids_of(job_ids, Job, database)):
        jobs = Job.objects.using(database).filter(pk__in=some)
        with engine_for(database).atomic():
            jobs.exclude(held)._raw_delete(database)  # not delete(): where a project listens to that, it reads first
            left = set(jobs.values_list("pk", flat=True))
        gone += [job_id for job_id in some if job_id not in left]
    return gone


def cancel(job_ids: Named, using: str | None = None, by: str = "") -> list[UUID]:
    """Have jobs run no more: one that waits becomes a dead letter at once, one that runs is asked to stop.

    What was asked to stop is not started again, whatever becomes of this attempt; if that succeeds, the job has. Many
    are cancelled a few at a time, each few in a transaction of their own if there is none around all.
    ``by``: who wants it, for those who read the history; the rest: see run_now. Returns the ids of those that were
    cancelled or asked; one that is done, or was asked before, is left out.
    """
    options = backend_options(using)
    database = using or database_of(options)
    engine, by = engine_for(database), storable(by)[:LONGEST_NAME]
    ids = ids_of(job_ids, Job, database)
    done: set[str] = set()
    for some in slices(ids):
        with engine.transaction():
            now = engine.now()
            asked, waiting = engine.ask([job_id.hex for job_id in some], now, by)
            ttls = {name: options_for(name, database).letter_ttl(name) for name in {job.queue_name for job in waiting}}
            engine.settle([cancelled(job, by, now, ttls[job.queue_name]) for job in waiting])
        done |= asked
    ring_after_commit(database, options.doorbells)
    return [job_id for job_id in ids if job_id.hex in done]


def ask(worker_ids: Iterable[str], to: str, using: str | None = None) -> list[str]:
    """Ask workers to be ``"quiet"`` (finish what runs, claim nothing), to work again (``""``), or to ``"stop"``.

    They obey within a second; a stop is as graceful as after SIGTERM, and cannot be taken back: one that was asked to
    stop does, whatever it is asked later. Returns the ids of those that were asked; workers that are gone are left out.
    See run_now for ``using``.
    """
    if to not in (QUIET, STOP, WORK):
        raise ValueError(f'A worker can be asked to be "quiet", to "stop", or ("") to work again; not {to!r}.')
    database = using or database_of(backend_options())
    ids = list(worker_ids)
    workers = undead(database).filter(pk__in=ids)
    with engine_for(database).atomic():
        workers.exclude(asked_to=STOP).update(asked_to=to)
        bell_of = dict(workers.values_list("pk", "doorbell"))
        for bell in bell_of.values():
            transaction.on_commit(partial(doorbell.ask, bell), using=database, robust=True)
    return [worker_id for worker_id in ids if worker_id in bell_of]
