"""An engine with the time in the test's hands: every call says when it happens, in seconds from the start."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.db import DatabaseError, connections

from django_vtqueue.core import history
from django_vtqueue.core.encoding import encode
from django_vtqueue.core.failures import recorded
from django_vtqueue.core.grace import GracePeriod
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.job import ClaimKey, HeldJob, NewJobs, Scope, StoredJob
from django_vtqueue.core.settlement import Settlement, failed, released, succeeded
from django_vtqueue.engines import Engine
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.queue.claims import NO_GRACE, Claims, collect
from tests.fake_clock import at

SECOND = 1_000_000
DAY = 86_400


class Boom(Exception):
    """What the jobs of these tests fail with."""


class Bench:
    """Publishes, claims and settles, as queue, worker and backend do."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def vendor(self) -> str:
        return connections[self.engine.alias].vendor

    def damage(self, sql: str, *params: Any) -> None:
        """Write what is damaged into the database; skip the test where that refuses it, and so can hold no such row."""
        with connections[self.engine.alias].cursor() as cursor:
            if self.vendor == "sqlite":
                cursor.execute("PRAGMA ignore_check_constraints = 1")
            try:
                cursor.execute(sql, params)
            except DatabaseError as error:
                pytest.skip(f"the database refuses this damage: {error}")
            if self.vendor == "sqlite":
                cursor.execute("PRAGMA ignore_check_constraints = 0")

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
    ) -> list[str]:
        """Insert a job for each payload; return their ids."""
        jobs = [(new_id(), encode(payload)) for payload in payloads]
        due = now if due is None else due
        self.engine.insert(
            NewJobs(queue, task, priority, max_attempts, round(lease * SECOND), at(now), at(due), jobs),
        )
        return [job_id for job_id, _ in jobs]

    def claim(
        self,
        now: float = 0,
        limit: int = 100,
        worker: str = "w1",
        queues: tuple[str, ...] | None = ("q",),
        raw: bool = True,
        scopes: list[Scope] | None = None,
        lease: float | None = None,
        grace_period: GracePeriod = NO_GRACE,
        overflow: Mapping[str, tuple[int, int]] | None = None,
    ) -> list[HeldJob]:
        """Claim what is due in one transaction."""
        with self.engine.transaction():
            claims = Claims(
                self.engine, overflow=overflow or {}, lease_us=None if lease is None else round(lease * SECOND)
            )
            taken = claims.claim(scopes or [Scope(queues, raw)], limit, worker, at(now), grace_period=grace_period)
        return collect(self.engine, taken)

    def one(self, now: float = 0, **options: Any) -> HeldJob:
        """Claim the only job that is due."""
        [job] = self.claim(now, **options)
        return job

    def payloads(self, now: float = 0, **options: Any) -> list[str]:
        """Claim what is due; return the payloads in claim order."""
        return [job.payload.strip('"') for job in self.claim(now, **options)]

    def settle(self, *settlements: Settlement) -> set[ClaimKey]:
        with self.engine.transaction():
            return self.engine.settle(settlements)

    def ack(self, job: HeldJob, now: float = 1, ttl: int | None = DAY * SECOND) -> bool:
        """Acknowledge; return whether the job was still held."""
        return not self.settle(succeeded(job, '"done"', at(now), ttl))

    def nack(self, job: HeldJob, now: float = 1, delay: float | None = 0) -> bool:
        """Fail an attempt (``delay`` None: for good); return whether the job was still held."""
        return not self.settle(failure(job, now, delay))

    def release(self, job: HeldJob, now: float = 1) -> bool:
        return not self.settle(released(job))

    def renew(self, job: HeldJob, now: float = 1, *, afresh: bool = False) -> bool:
        with self.engine.transaction():
            return not self.engine.renew([job], at(now), afresh=afresh)

    def extend(self, job: HeldJob, now: float = 1) -> bool:
        return self.engine.extend(job, at(now), at(now + 60))

    def bury(self, job: HeldJob, now: float = 1) -> bool:
        return self.nack(job, now, delay=None)

    def found(self, job_id: str) -> StoredJob:
        job = self.engine.find(job_id)
        assert job is not None
        return job

    def outcomes(self, job_id: str) -> list[str]:
        """Return how the attempts of a job have ended."""
        return [entry.get("outcome", "") for entry in history.read(self.found(job_id).history)]

    def dead(self, now: float = 0, **options: Any) -> str:
        """Return the id of a new dead letter (what else is due in its queue is claimed on the way)."""
        [job_id] = self.publish("x", now=now, **options)
        [job] = [job for job in self.claim(now, queues=(options.get("queue", "q"),)) if job.id == job_id]
        assert self.bury(job, now)
        return job_id

    @property
    def jobs(self) -> Any:
        return Job.objects.using(self.engine.alias)

    @property
    def letters(self) -> Any:
        return DeadLetter.objects.using(self.engine.alias)

    def everything(self) -> list[dict[str, Any]]:
        """Return all rows of both tables as they are, to be compared."""
        return [*self.jobs.order_by("pk").values(), *self.letters.order_by("pk").values()]


def failure(job: HeldJob, now: float, delay: float | None = 0) -> Settlement:
    """Return the settlement of an attempt that failed."""
    wait = None if delay is None else round(delay * SECOND)
    return failed(job, history.FAILED, recorded(Boom, "no luck"), at(now), wait)


Verb = Callable[[Bench, HeldJob, float], bool]

VERBS: dict[str, Verb] = {
    "ack": Bench.ack,
    "nack": Bench.nack,
    "release": Bench.release,
    "renew": Bench.renew,
    "extend": Bench.extend,
    "bury": Bench.bury,
}
