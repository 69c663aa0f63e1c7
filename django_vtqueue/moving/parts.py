"""What a move takes out of the source, a batch at a time; each function here is called in a transaction of it.

A row that runs is not taken, nor one of its family: its worker could not settle it, its parent would look for it in
vain. Nor is what a background requeue that has not ended goes through.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any
from uuid import UUID

from django.db.models import F, Model, QuerySet, Window
from django.db.models.functions import Coalesce, DenseRank, Length

from ..core import states
from ..core.clock import to_instant
from ..core.ids import slices
from ..core.names import MOVES
from ..engines import engine_for
from ..models import RESERVED, DeadLetter, HourlyThroughput, Job, QueueState, Rate, Requeue, Schedule, Throughput
from ..models.jobs import BY_WORKER, HAS_KEY, IN_ORDER, UNFINISHED
from ..recurrence import runs
from ..recurrence.firing import unfinished
from ..requeueing import PATH
from .rows import MODELS, OF_JOBS, Refusals, Tables, name_of, present, read

MOST_ROWS, MOST_BYTES = 200, 2_000_000  # of a batch, unless one family has more: some 20 ms in all
MARK = "vtqueue move to "  # who has paused a schedule that code declares: a worker would write down a new one

IN_LINE = IN_ORDER & UNFINISHED

Key = Any  # of the row after which to go on
Edges = set[tuple[UUID, UUID]]  # child and parent


@dataclass
class Batch:
    """Rows that were deleted, to be put into the outbox; ``last``: the key of the last row looked at, None: no more."""

    tables: Tables
    last: Key = None


@dataclass
class Parts:
    """What is taken of a source; ``refusals``: rows that stay there, for the target has refused them, and why."""

    source: str
    target: str
    refusals: Refusals = field(default_factory=dict)
    _line: list[UUID] = field(default_factory=list)  # the jobs in order, as they were when the pass began
    _enqueued_at: dict[UUID, int] = field(default_factory=dict)  # of some of them, in the target

    # -- jobs and dead letters -----------------------------------------------------------------------------------------

    def jobs(self) -> "QuerySet[Job]":
        """Return the jobs that may be moved, if their families may: also those that have ended."""
        rows = Job.objects.using(self.source).exclude(BY_WORKER).exclude(RESERVED)
        if self.requeueing():
            canaries = Requeue.objects.using(self.source).filter(ended_at=None, canary__isnull=False)
            rows = rows.exclude(task_path=PATH).exclude(pk__in=canaries.values("canary"))
        return rows.select_for_update(skip_locked=True)

    def letters(self) -> "QuerySet[DeadLetter]":
        """Return the dead letters that may be moved, if their families may."""
        rows = DeadLetter.objects.using(self.source)
        return (rows.none() if self.requeueing() else rows).select_for_update(skip_locked=True)

    def requeueing(self) -> bool:
        """Return whether a requeue in the background has not ended."""
        return Requeue.objects.using(self.source).filter(ended_at=None).exists()

    def take_ordered(self, after: Key) -> Batch:
        """Take the jobs of ordered keys, in the order in which they shall run; the key: how many were looked at."""
        if after is None:
            after, self._line = 0, self._read_line()
        some = self._line[after : after + MOST_ROWS]
        sizes = dict(self.jobs().filter(IN_LINE, pk__in=some).values_list("pk", size_with()))
        found = [(pk, place, sizes[pk]) for place, pk in enumerate(some, after + 1) if pk in sizes]
        return self._batch(found, after + MOST_ROWS if after + MOST_ROWS < len(self._line) else None)

    def _read_line(self) -> list[UUID]:
        """Return the jobs of ordered keys, in their order; note the moments by which the target has the same order.

        The clocks of those who have stored them may differ. A job is enqueued no later than the next one of its key.
        The keys are numbered, for some may be unreadable.
        """
        engine, numbers = engine_for(self.source), Window(DenseRank(), order_by="concurrency_key")
        rows = self.all_jobs().filter(IN_LINE).annotate(place=engine.handle(), number=numbers)
        line = list(rows.order_by(*engine.line, "place").values_list("pk", "number", "enqueued_at"))
        self._enqueued_at.clear()
        next_of: dict[int, int] = {}
        for pk, number, stored in reversed(line) if engine_for(self.target).line else ():
            enqueued_at = to_instant(stored)
            if number in next_of and enqueued_at >= next_of[number]:
                enqueued_at = self._enqueued_at[pk] = next_of[number] - 1
            next_of[number] = enqueued_at
        return [pk for pk, *_ in line]

    def take_jobs(self, after: Key) -> Batch:
        """Take the other jobs in the order in which they were stored."""
        rows = self.jobs().exclude(IN_LINE).annotate(place=engine_for(self.source).handle())
        return self._take(rows, after, "result")

    def take_letters(self, after: Key) -> Batch:
        """Take dead letters in the order of their ids."""
        return self._take(self.letters().annotate(place=F("pk")), after)

    def _take(self, rows: QuerySet[Any], after: Key, *large: str) -> Batch:
        """Take the next rows, with the families that may go."""
        rows = rows if after is None else rows.filter(place__gt=after)
        found = list(rows.order_by("place").values_list("pk", "place", size_with(*large))[:MOST_ROWS])
        return self._batch(found, found[-1][1] if len(found) == MOST_ROWS else None)

    def _batch(self, found: Sequence[tuple[UUID, Key, int]], last: Key) -> Batch:
        """Take the first of these rows, given with their places and sizes; ``last``: the place if it takes all."""
        totals = accumulate(size for *_, size in found)
        some = found[: max(sum(total < MOST_BYTES for total in totals), 1)]
        taken = self._families([pk for pk, *_ in some if pk.hex not in self.refusals])
        return Batch(taken, some[-1][1] if len(some) < len(found) else last)

    def _families(self, ids: Sequence[UUID]) -> Tables:
        """Take these rows, which are locked, and their relatives; not the families of which one must stay."""
        edges = edges_of(self.source, ids)
        others = {job_id for edge in edges for job_id in edge}.difference(ids)
        going, stay = list(ids), set[UUID]()
        if others:
            rows = (model._base_manager.using(self.source).all() for model in (Job, DeadLetter))
            there = set().union(*(present(each, others) for each in rows))
            free = present(self.jobs(), others) | present(self.letters(), others)
            stay = spread({key for key in there if key not in free or key.hex in self.refusals}, edges)
            going += sorted(there)
            if more := edges_of(self.source, going) - edges:  # made before its maker was locked here
                stay |= spread({job_id for edge in more for job_id in edge}, edges | more)
        tables = self._read([key for key in going if key not in stay], edges)
        for name, several in tables.items():
            self._delete(name, [UUID(row["id"]) for row in several])
        for row in tables.get("Job", ()):
            row["enqueued_at"] = self._enqueued_at.get(UUID(row["id"]), row["enqueued_at"])
        queues = {row["queue_name"] for row in tables.get("Job", ()) if row["finished_at"] is None}
        if paused := read(QueueState, self.source, sorted(queues)):
            tables["QueueState"] = list(paused.values())  # what is paused here must not be claimed there
        return tables

    def _read(self, ids: Sequence[UUID], edges: Edges) -> Tables:
        """Return jobs and dead letters as they are stored, without families of which one cannot be read."""
        found = {name: read(MODELS[name], self.source, ids) for name in OF_JOBS}
        stay = spread(self.note_unreadable("Job", set(ids).difference(*found.values())), edges)
        tables = {name: [row for key, row in rows.items() if key not in stay] for name, rows in found.items()}
        return {name: rows for name, rows in tables.items() if rows}

    def note_unreadable(self, name: str, keys: set[Any]) -> set[Any]:
        """Note of these rows that they stay; return their keys."""
        self.refusals.update((name_of(name, key), "it cannot be read as it is stored") for key in keys)
        return keys

    def _delete(self, name: str, keys: Sequence[Any]) -> None:
        for some in slices(keys):
            MODELS[name]._base_manager.using(self.source).filter(pk__in=some)._raw_delete(self.source)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def take(self, model: type[Model], after: Key, **conditions: Any) -> Batch:
        """Take the rows of a model that meet these conditions."""
        return self._take_rows(model._base_manager.using(self.source).filter(**conditions), after)

    def take_schedules(self, after: Key) -> Batch:
        """Take schedules; those whose last job must end before the next one stay as long as it has not."""
        rows = Schedule.objects.using(self.source).exclude(paused_by__startswith=MARK)
        return self._take_rows(rows, after, self._remove_schedules, self._wait_for_jobs)

    def _wait_for_jobs(self, keys: Sequence[str]) -> set[str]:
        """Return which of these schedules, which are locked, publish nothing before a job of theirs here has ended."""
        now = engine_for(self.source).now()
        rows = Schedule.objects.using(self.source).filter(pk__in=keys, overlap=False).values_list("pk", "recent")
        return {name for name, recent in rows if unfinished(self.source, runs.read(recent), now).exists()}

    def _remove_schedules(self, keys: Sequence[str]) -> None:
        """Delete schedules; pause those that code declares."""
        rows = Schedule.objects.using(self.source).filter(pk__in=keys)
        now = engine_for(self.source).now()
        rows.filter(declared=True).update(paused_at=now, paused_by=f"{MARK}{self.target}"[:150])
        rows.filter(declared=False)._raw_delete(self.source)

    def take_reserved(self, after: Key) -> Batch:
        """Take the rows of leases and time slots that are free."""
        return self._take_rows(self.reserved().filter(state__in=states.QUEUED), after)

    def _take_rows(
        self,
        rows: QuerySet[Any],
        after: Key,
        remove: Callable[[Sequence[Any]], None] | None = None,
        staying: Callable[[Sequence[Any]], Collection[Any]] = lambda keys: (),
    ) -> Batch:
        """Take the next rows of a model in the order of its key, without those that are staying."""
        name = rows.model.__name__
        rows = rows if after is None else rows.filter(pk__gt=after)
        rows = rows.select_for_update(skip_locked=True).order_by("pk").values_list("pk", flat=True)
        found = list(rows[:MOST_ROWS])
        wanted = [key for key in found if name_of(name, key) not in self.refusals]
        stored = read(rows.model, self.source, wanted)
        self.note_unreadable(name, set(wanted).difference(stored))
        for key in staying(list(stored)):
            del stored[key]
        (remove or (lambda keys: self._delete(name, keys)))(list(stored))
        return Batch({name: list(stored.values())} if stored else {}, found[-1] if len(found) == MOST_ROWS else None)

    # -- what is left --------------------------------------------------------------------------------------------------

    def unfinished(self) -> "QuerySet[Job]":
        """Return the jobs that wait or run."""
        return self.all_jobs().filter(UNFINISHED)

    def all_jobs(self) -> "QuerySet[Job]":
        """Return all jobs, also those that have ended."""
        return Job.objects.using(self.source).exclude(RESERVED)

    def entries(self) -> int:
        """Return how many jobs and dead letters there are."""
        return self.all_jobs().count() + DeadLetter.objects.using(self.source).count()

    def to_go(self) -> int:
        """Return how many of them the target has not refused."""
        refused = self._refused()
        stay = present(self.all_jobs(), refused) | present(DeadLetter.objects.using(self.source).all(), refused)
        return self.entries() - len(stay)

    def _refused(self) -> set[UUID]:
        """Return the ids of jobs and dead letters that stay."""
        return {UUID(name) for name in self.refusals if " " not in name}

    def numbers(self) -> dict[str, int]:
        """Return how many rows there are that a move takes, sooner or later, by what people call them."""
        unfinished, others = self.unfinished().count(), (QueueState, Rate, Requeue, Throughput, HourlyThroughput)
        pauses, rates, requeues, *counts = (model._base_manager.using(self.source).count() for model in others)
        return {
            "unfinished jobs": unfinished,
            "ended jobs": self.all_jobs().count() - unfinished,
            "dead letters": DeadLetter.objects.using(self.source).count(),
            "requeues": requeues,
            "schedules": Schedule.objects.using(self.source).exclude(paused_by__startswith=MARK).count(),
            "pauses": pauses,
            "rates": rates,
            "rows of leases and time slots": self.reserved().count(),
            "rows of statistics": sum(counts),
        }

    def reserved(self) -> "QuerySet[Job]":
        """Return the rows of leases and time slots."""
        return Job.objects.using(self.source).filter(RESERVED).exclude(queue_name__startswith=MOVES)

    def held(self) -> "QuerySet[Job]":
        """Return those of them that are not free."""
        return self.reserved().filter(HAS_KEY, state=states.RUNNING).exclude(unique_key="")

    def ended(self) -> set[UUID]:
        """Return the ids of those of them whose lease has ended, by the clock of the source: the holder may be gone.

        Those that cannot be read are not among them: no run can free these.
        """
        rows = self.held().filter(lease_until__lte=engine_for(self.source).now())
        return set(rows.values_list("pk", flat=True)) - self._refused()

    def staying(self) -> tuple[int, int, int, int]:
        """Return how many jobs run, how many requeues go on, how many rows are held, and how many have ended leases."""
        requeues = Requeue.objects.using(self.source).filter(ended_at=None)
        held, ended = self.held().count(), len(self.ended())
        return self.unfinished().filter(BY_WORKER).count(), requeues.count(), max(held - ended, 0), ended


def size_with(*large: str) -> Any:
    """Return the size of a row as an expression, with these columns."""
    return sum((Coalesce(Length(name), 0) for name in ("history", "steps", "earlier_steps", *large)), Length("payload"))


# -- families: jobs with their parents and children, which are of use in one database only -----------------------------


def edges_of(alias: str, ids: Collection[UUID]) -> Edges:
    """Return who is a child of whom among jobs, dead letters, and all that they are related to."""
    edges: Edges = set()
    tables = [model._base_manager.using(alias).filter(parent_id__isnull=False) for model in (Job, DeadLetter)]
    if not any(rows.exists() for rows in tables):
        return edges
    known: set[UUID] = set()
    new = set(ids)
    while new:
        for some in slices(sorted(new)):
            for rows in tables:
                found = rows.values_list("pk", "parent_id")
                edges |= {*found.filter(pk__in=some), *found.filter(parent_id__in=some)}
        known |= new
        new = {job_id for edge in edges for job_id in edge} - known
    return edges


def spread(ids: Iterable[UUID], edges: Edges) -> set[UUID]:
    """Return ids with all that they are related to."""
    neighbours: dict[UUID, set[UUID]] = {}
    for child, parent in edges:
        neighbours.setdefault(child, set()).add(parent)
        neighbours.setdefault(parent, set()).add(child)
    found, new = set(), set(ids)
    while new:
        found |= new
        new = {other for job_id in new for other in neighbours.get(job_id, ())} - found
    return found
