"""Who holds the rows of reserved queues: leaders, and instances with a time slot."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ..core import states
from ..core.clock import to_instant
from ..core.ids import shown_worker
from ..core.names import RESERVED
from ..models import HAS_KEY, Job
from ..patterns.slot_rows import PARKED

MOST = 1000  # rows


@dataclass(frozen=True, slots=True)
class Holding:
    """A row of a reserved queue: ``kind`` is its prefix, ``name`` the rest, ``key`` tells it from others of that name.

    ``holder``: host and pid, "" if it is free; ``since``, ``until``: instants of its acquisition, and of the end of the
    lease if it is not renewed, by the clock of the holder; a holder decides by its boot clock instead.
    """

    job: Job
    kind: str
    name: str
    key: str
    holder: str
    token: int
    since: int | None
    until: int | None


def holdings(database: str, *kinds: str) -> list[Holding]:
    """Return the rows of reserved queues of these kinds (default: all), by name and key."""
    found = (holding(job, kind) for kind in kinds or RESERVED for job in _rows(database, kind))
    return sorted(islice(found, MOST), key=lambda each: (each.kind, each.name, len(each.key), each.key))


def _rows(database: str, kind: str) -> Iterator[Job]:
    jobs = Job.objects.using(database).filter(
        HAS_KEY, queue_name__gte=kind, queue_name__lt=f"{kind[:-1]};", due_at__lt=PARKED
    )
    return iter(jobs.order_by("queue_name", "unique_key").defer("payload", "history", "result")[:MOST])


def holding(job: Job, kind: str) -> Holding:
    """Return a row as it was read."""
    held = job.state == states.RUNNING
    return Holding(
        job=job,
        kind=kind,
        name=job.queue_name.removeprefix(kind),
        key=str(job.unique_key),
        holder=shown_worker(job.worker_id) if held else "",
        token=job.claims,
        since=to_instant(job.started_at) if held and job.started_at else None,
        until=to_instant(job.lease_until) if held and job.lease_until else None,
    )
