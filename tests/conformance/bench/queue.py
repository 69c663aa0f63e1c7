"""An engine with the time in the test's hands: every call says when it happens, in seconds from the start."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connections

from django_vtqueue import ClaimedJob
from django_vtqueue.core import history
from django_vtqueue.core.encoding import encode
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.job import ClaimKey, NewJobs
from django_vtqueue.engines import Engine, new_engine
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.queue.settling import settle
from tests.fake_clock import at

from .claiming import Claimer, Served, Taken
from .endings import Ending, Held, Stored, failure, release, success
from .moments import DAY, SECOND
from .operators import Operators
from .tasks import Tasks


class Bench(Operators, Tasks):
    """Publishes, claims and settles, as queue, worker and backend do.

    ``patch``: to stop the clock of the engine; without it that goes on.
    """

    def __init__(self, engine: Engine, patch: pytest.MonkeyPatch | None = None) -> None:
        self.engine, self._patch, self._writes = engine, patch, False

    @property
    def alias(self) -> str:
        return self.engine.alias

    @property
    def vendor(self) -> str:
        return connections[self.alias].vendor

    def another(self) -> "Bench":
        """Return what another worker has of the same database."""
        return Bench(new_engine(self.alias), self._patch)

    # The clock

    def now(self) -> int:
        """Return what the clock of the database says."""
        return self.engine.now()

    def clock_at(self, now: float) -> None:
        """Stop the clock of the database at a moment."""
        self.clock_by(lambda: at(now))

    def clock_by(self, instant: Callable[[], int]) -> None:
        """Have the clock of the database say this, in microseconds since 1970."""
        assert self._patch
        self._patch.setattr(type(self.engine), "now", lambda engine: instant())

    # Publish and claim

    def publish(
        self,
        *payloads: Any,
        now: float = 0,
        due: float | None = None,
        queue: str = "q",
        task: str = "",
        priority: int = 0,
        lease: float = 60,
        max_attempts: int = 3,
        start_by: float | None = None,
        parent: str | None = None,
        ids: list[str] | None = None,
        **keys: Any,
    ) -> list[str]:
        """Insert a job for each payload; return their ids. ``keys``: ``unique_keys`` and the like, one for each."""
        jobs = [(job_id, encode(text)) for job_id, text in zip(ids or map(_id, payloads), payloads, strict=True)]
        due, until = now if due is None else due, None if start_by is None else at(start_by)
        new = NewJobs(queue, task, priority, max_attempts, round(lease * SECOND), at(now), at(due), jobs, until, **keys)
        new.parent_id = parent
        if new.has_options:
            assert not self.engine.insert_with_keys(new)
        else:
            self.engine.insert(new)
        return [job_id for job_id, _ in jobs]

    def publish_with_keys(self, *keys: str | None, task: str = "") -> tuple[list[str], dict[int, tuple[str, str]]]:
        """Insert a job for each unique key; return their ids, and of each that is not stored, by its index, why.

        That is the id of the job that has the key, and the path of its task.
        """
        jobs = [(new_id(), encode(key)) for key in keys]
        new = NewJobs("q", task, 0, 3, SECOND, at(0), at(0), jobs, unique_keys=list(keys))
        return [job_id for job_id, _ in jobs], self.engine.insert_with_keys(new)

    def claimer(self, **options: Any) -> Claimer:
        """Return the claims of one worker."""
        return Claimer(self.engine, self.transaction, **options)

    def take(
        self,
        now: float = 0,
        limit: int = 100,
        worker: str = "w1",
        queues: tuple[str, ...] | None = ("q",),
        raw: bool = True,
        served: list[Served] | None = None,
        lease: float | None = None,
        overflow: Mapping[str, tuple[int, int]] | None = None,
        begins_later: bool = False,
        **options: Any,
    ) -> Taken:
        """Claim what is due in one transaction; say what was taken."""
        claimer = self.claimer(overflow=overflow, lease=lease, begins_later=begins_later)
        return claimer.take(served or [Served(queues, raw)], limit, worker, at(now), **options)

    def claim(self, now: float = 0, limit: int = 100, worker: str = "w1", **options: Any) -> list[Held]:
        """Claim what is due; return the jobs. See take."""
        return self.take(now, limit, worker, **options).collect()

    def one(self, now: float = 0, **options: Any) -> Held:
        """Claim the only job that is due."""
        [job] = self.claim(now, **options)
        return job

    def payloads(self, now: float = 0, **options: Any) -> list[str]:
        """Claim what is due; return the payloads in claim order."""
        return [job.payload.strip('"') for job in self.claim(now, **options)]

    # Settle

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the right to write until the block ends: all of it is committed, or nothing. It may be in another."""
        if self._writes:
            yield
            return
        self._writes = True
        try:
            with self.engine.transaction():
                yield
        finally:
            self._writes = False

    def settle(self, *endings: Ending) -> set[ClaimKey]:
        """Settle in one transaction; return which claims have lost their job."""
        with self.transaction():
            return settle(self.engine, endings)

    def ack(self, job: Held, now: float = 1, ttl: float | None = DAY) -> bool:
        """Acknowledge; return whether the job was still held."""
        return not self.settle(success(job, '"done"', now, ttl))

    def nack(self, job: Held, now: float = 1, delay: float | None = 0) -> bool:
        """Fail an attempt (``delay`` None: for good); return whether the job was still held."""
        return not self.settle(failure(job, now, delay))

    def release(self, job: Held, now: float = 1) -> bool:
        return not self.settle(release(job))

    def bury(self, job: Held, now: float = 1) -> bool:
        return self.nack(job, now, delay=None)

    def renew(self, job: Held, now: float = 1, *, afresh: bool = False) -> bool:
        """Renew a lease; return whether it was still held. ``afresh``: after a step of the clock."""
        return not self.renew_all([job], now, afresh=afresh)

    def renew_all(self, jobs: list[Held], now: float, *, afresh: bool = False) -> set[ClaimKey]:
        """Renew leases; return which claims have lost their job."""
        with self.transaction():
            return self.engine.renew(jobs, at(now), afresh=afresh)

    def renew_beside_locks(self, jobs: list[Held], now: float) -> tuple[set[ClaimKey], list[Held]]:
        """Renew leases, and wait for no row; return what is lost, and the jobs whose rows are locked."""
        with self.transaction():
            return self.engine.renew_unlocked(jobs, at(now))

    def extend(self, job: Held, now: float = 1, until: float | None = None) -> bool:
        return self.engine.extend(job, at(now), at(now + 60 if until is None else until))

    def begin(self, *jobs: Held, now: float = 1) -> int:
        """Count the attempts of jobs that were claimed ahead, and begin now; return of how many."""
        with self.transaction():
            return self.engine.start_attempts(jobs, at(now))

    # What there is

    def find(self, job_id: str) -> Stored | None:
        return self.engine.find(job_id)

    def found(self, job_id: str) -> Stored:
        job = self.engine.find(job_id)
        assert job is not None
        return job

    def past(self, job_id: str) -> list[Any]:
        """Return the entries of the history of a job."""
        return [*history.read(self.found(job_id).history)]

    def outcomes(self, job_id: str) -> list[str]:
        """Return how the attempts of a job have ended."""
        return [entry.get("outcome", "") for entry in self.past(job_id)]

    def dead(self, now: float = 0, **options: Any) -> str:
        """Return the id of a new dead letter (what else is due in its queue is claimed on the way)."""
        [job_id] = self.publish("x", now=now, **options)
        [job] = [job for job in self.claim(now, queues=(options.get("queue", "q"),)) if job.id == job_id]
        assert self.bury(job, now)
        return job_id

    @property
    def jobs(self) -> Any:
        return Job.objects.using(self.alias)

    @property
    def letters(self) -> Any:
        return DeadLetter.objects.using(self.alias)

    def job(self, job_id: str) -> Job:
        found: Job = self.jobs.get(pk=UUID(job_id))
        return found

    def letter(self, job_id: str) -> DeadLetter:
        found: DeadLetter = self.letters.get(pk=UUID(job_id))
        return found

    def everything(self) -> list[dict[str, Any]]:
        """Return all rows of both tables as they are, to be compared."""
        return [*self.jobs.order_by("pk").values(), *self.letters.order_by("pk").values()]

    def damage(self, sql: str, *params: Any) -> None:
        """Write what is damaged into the database; skip the test where that refuses it, and so can hold no such row."""
        with connections[self.alias].cursor() as cursor:
            if self.vendor == "sqlite":
                cursor.execute("PRAGMA ignore_check_constraints = 1")
            try:
                cursor.execute(sql, params)
            except DatabaseError as error:
                pytest.skip(f"the database refuses this damage: {error}")
            if self.vendor == "sqlite":
                cursor.execute("PRAGMA ignore_check_constraints = 0")


def _id(payload: Any) -> str:
    return new_id()


def largest_result(alias: str) -> int | None:
    """Return how many bytes a result may have; None: any number."""
    return new_engine(alias).largest_result


def held_of(job: ClaimedJob) -> Held:
    """Return what ``Queue.claim`` has returned as the holder of a job has it here."""
    return job._held


def new_bench(alias: str, patch: pytest.MonkeyPatch | None = None, *, traced: bool = False) -> Bench:
    """Return a bench on a database; ``traced``: whether logs of queries see its statements, as in a web process."""
    return Bench(new_engine(alias, traced=traced), patch)


Verb = Callable[[Bench, Held, float], bool]

VERBS: dict[str, Verb] = {
    "ack": Bench.ack,
    "nack": Bench.nack,
    "release": Bench.release,
    "renew": Bench.renew,
    "extend": Bench.extend,
    "bury": Bench.bury,
}
