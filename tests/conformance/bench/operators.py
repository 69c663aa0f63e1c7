"""What people do with jobs, what is read of them, and what is set right after a clock that was ahead."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

from django_vtqueue.core import copies
from django_vtqueue.core.clock import LAST
from django_vtqueue.core.job import Handle
from django_vtqueue.engines import Engine, Trouble
from django_vtqueue.models import Job, QueueState
from django_vtqueue.queue import clock_repair
from django_vtqueue.queue.ended_leases import end_leases
from django_vtqueue.queue.pauses import earliest
from django_vtqueue.worker.progress_bar import backlog
from tests.fake_clock import at

from .claiming import IMPATIENT, PATIENT, Patience, Served, scopes_of
from .endings import Held
from .moments import moment, seconds_at


class Operators:
    """The part of a bench that is for people, and for what looks at all jobs."""

    engine: Engine
    transaction: Callable[[], AbstractContextManager[None]]

    # What people do

    def requeue(self, *letters: str, now: float, by: str = "", **other: Any) -> set[str]:
        """Requeue dead letters; return those that were. ``other``: ``queue_name`` and ``priority``."""
        return self.engine.requeue(letters, at(now), by, **other)

    def pause(self, queue: str, until: float | None = None) -> None:
        """Pause a queue until a moment; None: until it is resumed."""
        states = QueueState.objects.using(self.engine.alias)
        values = {"paused_at": moment(0), "paused_until": None if until is None else moment(until)}
        if not states.filter(queue_name=queue).update(**values):
            states.create(queue_name=queue, **values)

    def purge(self, queue: str = "q", now: float = 1) -> int:
        return self.engine.purge(queue, at(now))

    def prune(self, now: float, limit: int = 10) -> int:
        """Delete what was kept long enough, up to ``limit`` of each kind; return how many rows."""
        return self.engine.prune(at(now), limit)

    def ask_to_stop(self, job_id: str, now: float = 1, by: str = "anna") -> None:
        """Write a cancel request into a job, and do nothing else."""
        self.engine.request_cancel([job_id], at(now), by)

    def asked_to_stop(self, job: Held) -> str | None:
        """Return who has cancelled a job that is held, as its holder learns it; None: no one."""
        return self.engine.cancel_requests([job]).get(job.key)

    def say_progress(self, *said: tuple[Held, tuple[float, str]]) -> None:
        """Write how far jobs are, as their holders say."""
        self.engine.write_progress(said)

    def park_all(self) -> None:
        """Have all jobs wait until another one of their key ends."""
        self.jobs.update(state="BLOCKED", wake_at=LAST)

    # What is read

    def unfinished(self, queue: str = "q") -> int:
        return self.engine.count(queue)

    def depth(self, queue: str = "q", limit: int = 100) -> int:
        """Return how many jobs of a queue wait, counted up to ``limit``."""
        return self.engine.depth(queue, limit)

    def queue_names(self, limit: int | None = None) -> list[str]:
        """Return the queues with unfinished jobs, sorted: the first ones, or all."""
        return self.engine.queue_names(limit)

    def earliest(self, *served: Served) -> float | None:
        """Return from when on a job may be claimed; None: there is none."""
        found = earliest(self.engine, scopes_of(served))
        return None if found is None else seconds_at(found)

    def backlog(self, *served: Served, now: float) -> int:
        """Return how many jobs are due."""
        return backlog(self.engine, scopes_of(served), at(now))

    def line(self, jobs: Any) -> list[Job]:
        """Return these of the rows of ``jobs`` in the order in which claims take them."""
        return [*jobs.annotate(handle=self.engine.handle()).order_by("-priority", "due_at", "handle")]

    def first_in_line(self, served: Served, limit: int = 100, now: float = 0) -> list[str]:
        """Return the ids of the jobs that a claim would take, in its order, without taking them."""
        [scope] = scopes_of([served])
        return self._ids([row.handle for row in self.engine.due(scope, limit, at(now))])

    def claimable_ahead(self, served: Served, now: float = 0) -> list[bool]:
        """Return, of each job in that order, whether it may be claimed before it can begin."""
        [scope] = scopes_of([served])
        return [bool(row.fresh) for row in self.engine.due(scope, 100, at(now))]

    def overdue(self, limit: int, now: float) -> list[str]:
        """Return the ids of waiting jobs that have expired, the most overdue first."""
        return self._ids([row.handle for row in self.engine.overdue(limit, at(now))])

    def takeable(self, now: float, served: Served, patience: Patience = PATIENT) -> list[str]:
        """Return the payloads of held jobs that a claim may take from their holders."""
        [scope] = scopes_of([served])
        rows = self.engine.ended(scope, 10, at(now), patience)
        return sorted(job.payload.strip('"') for job in self.engine.read(rows).values())

    def held_by(self, worker: str) -> list[Held]:
        return self.engine.held_by(worker)

    def copies_of(self, job_id: str) -> dict[int, tuple[str, float]]:
        """Return the copies of a job that run, by their claim numbers: the worker of each, and since when."""
        stored = self.jobs.filter(pk=job_id).values_list("copies", flat=True).get()
        return {claim: (copy.worker, seconds_at(copy.since)) for claim, copy in copies.read(stored).items()}

    def still_needed(self, job: Held) -> tuple[bool, str | None]:
        """Return whether a copy may still be the first to end, and who has cancelled its job."""
        found = self.engine.copies([job]).get(job.key)
        return (found is not None, found[1] if found else None)

    def snapshot(self) -> AbstractContextManager[int]:
        """Have all that is read in the block be of one instant, and yield that."""
        return self.engine.snapshot()

    def changed(self) -> bool:
        """Return whether another connection may have committed since the last call."""
        return self.engine.changed()

    def passes(self, error: BaseException) -> str | None:
        """Return why a worker waits until an error passes: its connection is "gone", there are no "tables"; None."""
        return {Trouble.GONE: "gone", Trouble.SCHEMA: "tables", None: None}[self.engine.trouble(error)]

    def due_at(self, job_id: str) -> float | None:
        """Return when a job is due; None: not until something happens."""
        row = self.jobs.get(pk=job_id)
        moment = row.wake_at or row.due_at
        return None if moment == LAST else seconds_at(moment)

    # A clock that was ahead

    def stamped_ahead(self, now: float, limit: int = 10) -> list[UUID]:
        """Walk over all jobs; return those that a clock has stamped that was ahead."""
        found: list[UUID] = []
        after: UUID | None = clock_repair.FIRST
        while after is not None:
            more, after = clock_repair.stamped_ahead(self.engine, after, at(now), limit)
            found += more
        return found

    def set_right(self, found: Sequence[UUID], now: float) -> int:
        """Set what such a clock has stamped right; return in how many jobs."""
        with self.transaction():
            return clock_repair.repair_stamps(self.engine, found, at(now))

    def repair(self, now: float, limit: int = 3) -> int:
        """Walk over all jobs, as a worker does, and set right what it finds; return in how many jobs."""
        after: UUID | None = clock_repair.FIRST
        changed = 0
        while after is not None:
            found, after = clock_repair.stamped_ahead(self.engine, after, at(now), limit)
            changed += self.set_right(found, now)
        return changed

    def end_leases(self, served: Served, now: float, worker: str = "w") -> None:
        """Settle the leases that have ended, and make visible what was hidden, as a claim does; take nothing."""
        [scope] = scopes_of([served])
        with self.transaction():
            end_leases(self.engine, self.engine.ended(scope, 1, at(now), IMPATIENT), worker, at(now))

    @property
    def jobs(self) -> Any:
        return Job.objects.using(self.engine.alias)

    def _ids(self, handles: Sequence[Handle]) -> list[str]:
        ids = {row.handle: row.pk.hex for row in self.jobs.annotate(handle=self.engine.handle())}
        return [ids[handle] for handle in handles]
