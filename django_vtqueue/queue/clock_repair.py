"""Repair of rows that a clock has stamped that was ahead: else they wait until the clock has come so far again.

A stamp of the past that is later than now proves it:

- of a lease: the start of the attempt, or the heartbeat of the holder;
- of a job that was due at once: when it was published;
- of a retry: the end of the last attempt, also while the row is held. A release and an expiry do not change ``due_at``,
  so their entries in the history prove nothing;
- of a job that was given back: that it is held for longer than the second for which that is allowed;
- of a job in the line: that it is due later.

A ``due_at`` that the publisher has chosen is kept. How a holder notices a clock that was ahead, and renews what it
holds, is in core/gaps.py and worker/leases.py.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db.models import ExpressionWrapper, F, Q, TextField

from ..core import history, states
from ..core.clock import LAST_INSTANT, SECOND, since_boot
from ..core.ids import first_id
from ..core.job import StoredJob
from ..engines import Engine

FIRST = UUID(int=0)
SLICE = 1000  # rows looked at in one turn: a few milliseconds
PERIOD = 1.0  # seconds
NOTICEABLE = 1.0  # seconds by which the clock goes back
SLACK = SECOND  # microseconds by which a stamp may be ahead
GIVEN_BACK = 2 * SECOND  # microseconds for which a job that was given back may be held


class ClockRepair:
    """A walk over all rows, a slice at a time, after a clock is known to have been ahead.

    At the start of a process stamps in the database tell that; later the step of the clock itself does. A step that is
    not noticeable delays no job by more than a moment. ``next_at`` (monotonic): when to call ``go_on`` next.
    ``was_ahead``: a clock was, and nobody has cut the rates that it has used yet; see Unparking.cut_rates.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._offset: float | None = None  # seconds: the wall clock less the boot clock, when it was last compared
        self._after: UUID | None = None  # the row after which to go on; None: there is nothing to do
        self.next_at = 0.0
        self.was_ahead = False

    def unfinished(self) -> bool:
        """Return whether there are more rows to look at."""
        return self._after is not None

    def go_on(self) -> bool:
        """Look at the clock once a second, and repair a slice of rows if it was ahead.

        Return whether jobs may be due now.
        """
        if time.monotonic() < self.next_at:
            return False
        self.next_at = time.monotonic() + PERIOD  # also if it fails
        changed = self._sweep()
        if self.unfinished():
            self.next_at = 0.0
        return changed

    def _sweep(self) -> bool:
        engine = self.engine
        now = engine.now()
        offset = now / SECOND - since_boot()
        before = self._offset
        stepped = before is not None and abs(offset - before) > NOTICEABLE
        if before is None or stepped:
            was_ahead = clock_was_ahead(engine.alias, now) if before is None else offset < before
            self._offset = offset
            if was_ahead:
                self._after, self.was_ahead = FIRST, True
        if self._after is None:
            return stepped
        found, after = stamped_ahead(engine, self._after, now, SLICE)
        if found:
            with engine.transaction():
                repair_stamps(engine, found, engine.now())
        self._after = after  # only now: a slice that could not be repaired, for a lock, is looked at again
        return stepped or bool(found)


def clock_was_ahead(database: str, now: int) -> bool:
    """Return whether a clock was ahead of ``now`` when something was written.

    It costs a few seeks: ids are in time order, and workers write heartbeats and counts.
    """
    later = now + SLACK
    newer = {"Job": ("pk", UUID(first_id(later))), "WorkerProcess": ("heartbeat_at", later)}
    newer["Throughput"] = ("starts_at", later)
    return any(
        rows(name, database).filter(**{f"{column}__gt": value}).exists() for name, (column, value) in newer.items()
    )


def stamped_ahead(engine: Engine, after: UUID, now: int, limit: int) -> tuple[list[UUID], UUID | None]:
    """Look at the ``limit`` rows after one; return those that are to be repaired, and the last one that was looked at.

    None instead of that: it was the last one of all.
    """
    jobs = rows("Job", engine.alias).filter(pk__gt=after).order_by("pk")
    last = list(jobs.values_list("pk", flat=True)[limit - 1 : limit])
    if last:
        jobs = jobs.filter(pk__lte=last[0])
    return [UUID(job.id) for job, _ in repairs(engine, jobs, now)], last[0] if last else None


def repair_stamps(engine: Engine, ids: Sequence[UUID], now: int) -> int:
    """Repair these rows, in a transaction; return how many still needed it.

    This clock may be ahead too, so that a second repair follows. It finds a job that was never claimed only if
    ``due_at`` and ``enqueued_at`` are equal, so both are set.
    """
    jobs, number = rows("Job", engine.alias).filter(pk__in=ids), 0
    for job, changes in repairs(engine, jobs.order_by("pk"), now):
        changes["enqueued_at"] = min(job.enqueued_at, now)
        if changes.get("state") == states.SCHEDULED:  # or a durable task waits there
            text = ExpressionWrapper(F("steps"), TextField())
            waits = jobs.alias(text=text).filter(pk=job.id, text__contains='"waiting"').exists()
            changes["state"] = states.WAITING if waits else states.SCHEDULED
        number += jobs.filter(pk=job.id, claims=job.claims, visible_at=job.visible_at).update(**changes)
    return number


def repairs(engine: Engine, jobs: Any, now: int) -> Iterator[tuple[StoredJob, dict[str, Any]]]:
    """Yield those of these rows that a clock has stamped that was ahead, with their columns as they are to be."""
    later = now + SLACK
    put_off = Q(due_at__gt=later, due_at__lt=LAST_INSTANT, finished_at=None)
    told = Q(claims__gt=0) | Q(enqueued_at__gt=later, due_at=F("enqueued_at")) | Q(state=states.READY)
    ids = [pk.hex for pk in jobs.filter(put_off & told | Q(lease_until__gt=later)).values_list("pk", flat=True)]
    if not ids:
        return
    workers = rows("WorkerProcess", engine.alias).filter(heartbeat_at__gt=later)
    ahead = set(workers.values_list("worker_id", flat=True))
    found = engine.find_all(ids)
    for job in filter(None, map(found.get, ids)):
        if changes := repaired(job, now, ahead):
            yield job, changes


def repaired(job: StoredJob, now: int, ahead: Collection[str]) -> dict[str, Any]:
    """Return the columns of a row that a clock has stamped that was ahead, as they are to be.

    ``ahead``: the workers whose heartbeat is later than now.
    """
    changes: dict[str, Any] = {}
    later, until = now + SLACK, job.visible_at
    if job.state == states.RUNNING and not job.worker_id:
        changes = {"lease_until": now} if until > now + GIVEN_BACK else {}
    elif job.state == states.RUNNING and until > later + job.lease_us:
        started_ahead = (job.started_at or 0) > later or job.worker_id in ahead
        changes = {"lease_until": now + job.lease_us} if started_ahead else {}
    if job.state == states.SUCCESSFUL or not later < job.due_at < LAST_INSTANT:
        return changes
    if was_put_off(job, later):
        changes |= {"due_at": now, "moved_from": None}
        if job.state == states.SCHEDULED:
            changes |= {"state": states.READY, "wake_at": None}
    elif job.state == states.READY:
        changes |= {"state": states.SCHEDULED, "wake_at": job.due_at}
    return changes


def was_put_off(job: StoredJob, later: int) -> bool:
    """Return whether a clock that was ahead has chosen the ``due_at`` of a row."""
    if job.enqueued_at > later and job.due_at == job.enqueued_at:
        return True
    if not job.claims:
        return False
    entries = history.read(job.history)
    ended, outcome = (entries[-1].get("ended"), entries[-1].get("outcome")) if entries else (None, None)
    if outcome == history.UNREADABLE:
        return (job.started_at or 0) > later
    return isinstance(ended, int) and ended > later and outcome not in (history.RELEASED, history.LEASE_EXPIRED)


def rows(name: str, database: str) -> Any:
    """Return the rows of a table; this module is imported before the apps are ready."""
    return apps.get_model("vtqueue", name).objects.using(database)
