"""How many jobs each queue has in which state, and who holds them. Numbers are counted up to a limit."""

from collections import Counter
from collections.abc import Collection
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import connections
from django.db.models import BooleanField, ExpressionWrapper, F, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL

from ..core import copies, states
from ..core.clock import LAST, from_instant
from ..engines import engine_for, options_for
from ..engines.distinct import RAW_AS_INDEXED, RowCount, by_key, compile_sql, count_by, first_of_each, union
from ..models import RESERVED, DeadLetter, Job
from ..models.jobs import ANY_NAME, ASIDE, BY_WORKER, GIVEN_BACK, HELD, ready_jobs

LEVELS = 20_000  # priorities of all queues together
READ, LEAST_READ = 20_000, 100  # jobs, of all priorities together and of each: which are retried is in no index


# -- queues ------------------------------------------------------------------------------------------------------------


def names(database: str, column: str, limit: int) -> list[str]:
    """Return the first ``limit`` values of the column of dead letters that an index begins with, sorted."""
    with connections[database].cursor() as cursor:
        cursor.execute(*names_sql(database, column, limit))
        return sorted(name for (name,) in cursor.fetchall())


@lru_cache
def names_sql(database: str, column: str, limit: int) -> tuple[str, tuple[Any, ...]]:
    found = first_of_each(DeadLetter.objects.using(database), column, limit=limit)
    return compile_sql(found.values_list(column))


SIZES = """
WITH name(value) AS (VALUES {names})
SELECT value, {counts} FROM name"""


def sizes(database: str, limit: int, most: int) -> dict[str, int]:
    """Return the first ``limit`` queues with unfinished jobs, not the reserved ones, and how many these are, counted
    up to ``most``.
    """
    names, jobs = engine_for(database).queue_names(limit), Job.objects.using(database)
    if not names:
        return {}
    of_name = Q(queue_name=RawSQL("name.value", ()))
    kinds = (ready_jobs(of_name), ASIDE & of_name, HELD & of_name)
    found = [compile_sql(jobs.filter(kind).values("pk")[:most]) for kind in kinds]
    counts = " + ".join(f"(SELECT count(*) FROM ({sql}) AS found)" for sql, _ in found)
    with connections[database].cursor() as cursor:
        sql = SIZES.format(names=", ".join(["(%s)"] * len(names)), counts=counts)
        cursor.execute(sql, [*names, *(param for _, params in found for param in params)])
        return {name: min(number, most) for name, number in cursor.fetchall()}


def letters(database: str, limit: int, most: int) -> dict[str, int]:
    """Return the first ``limit`` queues with dead letters, and how many these are, counted up to ``most``."""
    return counted(DeadLetter.objects.using(database), limit, most)


def reviewed(database: str, limit: int, most: int) -> dict[str, int]:
    """Return the same of the dead letters that are reviewed."""
    return counted(DeadLetter.objects.using(database).filter(reviewed_at__isnull=False), limit, most)


def counted(rows: QuerySet[Any], limit: int, most: int) -> dict[str, int]:
    """Return how many of these rows each of their first ``limit`` queues has, counted up to ``most``."""
    same = rows.filter(queue_name=OuterRef("queue_name"))
    found = first_of_each(rows, "queue_name", limit=limit).annotate(number=RowCount(same[:most]))
    return dict(found.values_list("queue_name", "number"))


# -- what waits --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Backlog:
    """What is to run in a queue. ``payloads``: how many of the due jobs are raw payloads; ``later``: what is not due.

    ``read``: how many of the later ones were looked at; how many of these are retried, wait for something, or are
    parked. ``oldest``: since when the first of the due ones is.
    """

    due: int = 0
    payloads: int = 0
    later: int = 0
    read: int = 0
    retrying: int = 0
    waiting: int = 0
    parked: int = 0
    oldest: datetime | None = None

    def add_due(self, number: int, raw: bool, due_at: datetime) -> None:
        """Count so many due jobs, of which the first is due since ``due_at``."""
        self.due += number
        self.payloads += number if raw else 0
        if number:
            self.oldest = min(due_at, self.oldest or due_at)

    @property
    def scheduled(self) -> int:
        return self.read - self.retrying - self.waiting - self.parked


def levels(jobs: QuerySet[Any], *columns: str) -> tuple[QuerySet[Any], QuerySet[Any]]:
    """Return the first job of each kind and priority among READY jobs, and the query for all jobs of each.

    ``columns``: what else tells levels apart.
    """
    return firsts(jobs.order_by("due_at"), *columns, "raw", "-priority")


def firsts(jobs: QuerySet[Any], *columns: str) -> tuple[QuerySet[Any], QuerySet[Any]]:
    """Return the first job for each value of columns in which an index has jobs, and the query for all jobs of each."""
    jobs = jobs.annotate(raw=RAW_AS_INDEXED)
    first = first_of_each(jobs, *columns, limit=LEVELS).annotate(raw=RAW_AS_INDEXED)
    return first, jobs.order_by().filter(**{name.strip("-"): OuterRef(name.strip("-")) for name in columns})


def backlogs(database: str, queue_names: Collection[str], now: int, most: int) -> dict[str, Backlog]:
    """Return what waits in these queues at an instant, each number counted up to ``most`` for each priority.

    It reads several times, so it is called in a snapshot: a job that is claimed in between would be missing.
    """
    jobs = Job.objects.using(database)
    found = {name: Backlog() for name in queue_names}
    first, same = levels(jobs.filter(ready_jobs(ANY_NAME)), "queue_name")
    ready = first.filter(queue_name__in=queue_names).annotate(number=RowCount(same[:most]))
    for name, raw, due_at, number in ready.values_list("queue_name", "raw", "due_at", "number"):
        found[name].add_due(number, raw, min(due_at, from_instant(now)))  # a clock may have been ahead
    first, same = firsts(
        by_key(jobs.filter(ASIDE, ANY_NAME), "vtqueue_job_aside").order_by("wake_at"), "queue_name", "raw"
    )
    kinds = {
        "woken": same.filter(wake_at__lte=now),
        "timed": same.filter(wake_at__gt=now, wake_at__lt=LAST),
        "endless": same.filter(wake_at__gte=LAST),
    }
    counts = first.filter(queue_name__in=queue_names).annotate(**{k: RowCount(v[:most]) for k, v in kinds.items()})
    rows = list(counts.values_list("pk", "queue_name", "raw", "wake_at", *kinds))
    read = min(max(READ // max(len(rows), 1), LEAST_READ), most)
    later: dict[Any, tuple[Backlog, int]] = {}
    for pk, name, raw, wake_at, woken, timed, endless in rows:
        found[name].add_due(woken, raw, wake_at)
        found[name].later += timed + endless
        found[name].read += min(timed, read) + min(endless, read)
        later[pk] = found[name], min(endless, read)
    for name, raw, due_at in (
        jobs.filter(GIVEN_BACK, queue_name__in=queue_names, lease_until__lte=now)
        .annotate(raw=RAW_AS_INDEXED)
        .values_list("queue_name", "raw", "due_at")[:most]
    ):
        found[name].add_due(1, raw, due_at)
    looked = kinds["timed"].values("state", "attempts")[:read]
    numbers = (
        jobs.filter(pk__in=later)
        .annotate(
            raw=RAW_AS_INDEXED,
            again=RowCount(looked, where=f"attempts > 0 AND state = '{states.SCHEDULED}'"),
            waits=RowCount(looked, where=f"state = '{states.WAITING}'"),
            blocked=RowCount(kinds["endless"].values("state")[:read], where=f"state = '{states.BLOCKED}'"),
        )
        .values_list("pk", "again", "waits", "blocked")
    )
    for pk, again, waits, blocked in numbers:
        backlog, endless = later[pk]
        backlog.retrying += again
        backlog.waiting += waits + endless - blocked  # what never wakes by itself waits, unless it is blocked
        backlog.parked += blocked
    return found


@dataclass(frozen=True, slots=True)
class Fill:
    """How many jobs wait in a queue with a ``max_depth``, counted up to one more than that."""

    depth: int
    max_depth: int

    @property
    def full(self) -> bool:
        return self.depth >= self.max_depth

    @property
    def percent(self) -> int:
        return min(self.depth * 100 // self.max_depth, 100)


def fills(database: str, queue_names: Collection[str]) -> dict[str, Fill]:
    """Return how full those of these queues are that have a ``max_depth``."""
    policies = {name: options_for(name, database).policy(name).max_depth for name in queue_names}
    depth = engine_for(database).depth
    return {name: Fill(depth(name, most + 1), most) for name, most in policies.items() if most is not None}


# -- what is held ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """How many jobs are held: of each queue "running" and "expired" ones, and by each worker those that it runs
    ("begun"; each copy of a job counts), and those that it has claimed "ahead" of a free slot.
    """

    queues: Counter[tuple[str, str]]
    workers: Counter[tuple[str, str]]


def held(database: str, most: int, now: int) -> Held:
    """Return how many jobs are held at an instant; no more than ``most`` are looked at."""
    rows = Job.objects.using(database).filter(~RESERVED, BY_WORKER).order_by("worker_id")
    running = ExpressionWrapper(Q(lease_until__gt=now), BooleanField())
    begun = ExpressionWrapper(Q(started_at__isnull=False), BooleanField())
    columns = ("queue_name", "worker_id", "running", "begun", "copies")
    jobs = count_by(rows.annotate(running=running, begun=begun).values(*columns)[:most], *columns)
    found = Held(Counter(), Counter())
    for (queue_name, worker_id, is_running, has_begun, stored), number in jobs.items():
        found.queues[queue_name, "running" if is_running else "expired"] += number
        holders = [run.worker for run in copies.running(stored, now)] if has_begun else []
        for each in holders or ([worker_id] if is_running else []):
            found.workers[each, "begun" if has_begun else "ahead"] += number
    return found


def begun(database: str, worker_ids: Collection[str], each: int, most: int, now: int) -> list[Job]:
    """Return up to ``each`` of the jobs that each of these workers has begun, without their large columns.

    A job with copies, of the first ``most`` held jobs, is returned once for each worker that runs it.
    """
    jobs = Job.objects.using(database).defer("payload", "history", "result")
    held = jobs.filter(state=states.RUNNING, started_at__isnull=False).order_by("worker_id")
    first = held.values("copies", key=F("pk"))[:most]
    some = [compile_sql(first, "SELECT held.key FROM ({}) AS held WHERE held.copies IS NOT NULL")]
    for worker_id in worker_ids:  # a seek for each: a window function would look at all that is held
        own = held.filter(worker_id=worker_id, copies__isnull=True).values("pk")[:each]
        some.append(compile_sql(own, "SELECT * FROM ({}) AS own"))
    found, counts = list[Job](), Counter[str]()
    for job in by_key(jobs).filter(pk__in=union(some)) if worker_ids else ():
        for run in copies.running(job.copies, now):
            counts[run.worker] += 1
            if run.worker in worker_ids and counts[run.worker] <= each:
                found.append(copy(job))
                found[-1].worker_id, found[-1].started_at = run.worker, from_instant(run.since)
        found += [job] if job.copies is None else []
    return found
