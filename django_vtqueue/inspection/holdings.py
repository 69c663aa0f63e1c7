"""Who holds the rows of reserved queues: leaders, and instances with a time slot; and the cycles of time slots."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from django.db.models import QuerySet
from django.db.models.functions import Left
from django.db.models.lookups import Exact
from django.utils.translation import gettext as _

from ..core import states
from ..core.clock import to_instant
from ..core.humanize import duration
from ..core.ids import shown_worker
from ..core.names import HELD, SLOTS
from ..engines.distinct import first_of_each
from ..models import Job
from ..models.jobs import HAS_KEY
from ..patterns.slot_rows import CYCLE, NEVER_TAKEN, Cycle, Stored, stored
from .why import loss, wait

MOST_HELD = 1000  # rows, and queues of one kind
MOST_NAMES = 1_000_000  # queues with unique keys among which these are looked for


@dataclass(frozen=True, slots=True)
class Holding:
    """A row of a reserved queue: ``kind`` is its prefix, ``name`` the rest, ``key`` tells it from others of that name.

    ``holder``: host and pid, "" if it is free; ``since``, ``until``: instants of its acquisition, and of the end of the
    lease if it is not renewed, by the clock of the holder; a holder decides by its boot clock instead. ``remark``: of a
    free one, how its last holder has lost it, or when it was acquired last.
    """

    job: Job
    kind: str
    name: str
    key: str
    holder: str
    token: int
    since: int | None
    until: int | None
    remark: str = ""


def holdings(database: str, now: int, *kinds: str) -> list[Holding]:
    """Return the rows of reserved queues of these kinds (default: all), by name and key."""
    found = (holding(job, kind, now) for kind in kinds or HELD for job in _rows(database, kind))
    return sorted(islice(found, MOST_HELD), key=lambda each: (each.kind, each.name, len(each.key), each.key))


def _rows(database: str, kind: str) -> Iterator[Job]:
    jobs = reserved_rows(database, kind).filter(due_at__lt=NEVER_TAKEN)
    return iter(jobs.order_by("queue_name", "unique_key").defer("payload", "history", "result")[:MOST_HELD])


def reserved_rows(database: str, kind: str) -> QuerySet[Job]:
    """Return the rows of the first queues of a kind.

    Among the names of all queues with unique keys these are no range, for the database may have another order of
    letters; each name is found by one seek.
    """
    jobs = Job.objects.using(database).filter(HAS_KEY)
    names = first_of_each(jobs, "queue_name", limit=MOST_NAMES).filter(Exact(Left("queue_name", len(kind)), kind))
    return jobs.filter(queue_name__in=sorted(names.values_list("queue_name", flat=True))[:MOST_HELD])


def holding(job: Job, kind: str, now: int) -> Holding:
    """Return a row as it was read."""
    left = wait(job, now)
    found = Holding(job, kind, job.queue_name.removeprefix(kind), str(job.unique_key), "", job.claims, None, None)
    if left is None:
        since = job.started_at and to_instant(job.started_at)
        until = min(to_instant(job.visible_at), now + job.lease_us)  # a clock that was ahead may have stamped the end
        return replace(found, holder=shown_worker(job.worker_id), since=since, until=until)
    if job.state == states.RUNNING:
        return replace(found, remark=loss(job, now, left))
    if job.started_at is None:
        return found
    return replace(found, remark=_("last acquired %s ago") % duration(max(now - to_instant(job.started_at), 0)))


def cycles(database: str) -> dict[str, Stored]:
    """Return the cycles of a database (an alias) by name: the one in force, and the one that is asked for."""
    rows = (
        reserved_rows(database, SLOTS)
        .filter(unique_key=CYCLE)
        .order_by("queue_name")
        .values_list("queue_name", "payload")
    )
    return {name.removeprefix(SLOTS): stored(payload) for name, payload in rows.values_list("queue_name", "payload")}


def slots(database: str, name: str, cycle: Cycle, now: int) -> list[Holding]:
    """Return the slots of a cycle, by number; ``key`` is the number."""
    jobs = (
        Job.objects.using(database).filter(HAS_KEY, queue_name=f"{SLOTS}{name}").defer("payload", "history", "result")
    )
    rows = {str(job.unique_key): holding(job, SLOTS, now) for job in jobs}
    return [rows[number] for number in map(str, range(cycle.slots)) if number in rows]
