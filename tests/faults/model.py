"""The queue in plain Python, as the diagram of its states says that it works: what the real one is compared with."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django_vtqueue import states
from django_vtqueue.history import CANCELLED, FIRST, LAST, LEASE_EXPIRED, REQUEUED
from django_vtqueue.jobs import HeldJob

# Every step that a job may take. None: not there (yet, or any more).
DIAGRAM = {
    (None, states.READY): "publish",
    (states.READY, states.RUNNING): "claim",
    (states.RUNNING, states.RUNNING): "extend, or a claim of an expired job",
    (states.RUNNING, states.READY): "nack, release",
    (states.RUNNING, states.SUCCESSFUL): "ack",
    (states.RUNNING, states.FAILED): "no attempts left, or asked to stop",
    (states.FAILED, states.READY): "requeue",
    (states.READY, states.FAILED): "cancel",
    (states.READY, None): "purge, delete",
    (states.RUNNING, None): "purge or delete of an expired job; ack of a result that is not kept",
    (states.SUCCESSFUL, None): "prune, delete",
    (states.FAILED, None): "prune, discard",
}


@dataclass
class ModelJob:
    """A job. ``number``: its place in the order of insertion; ``ended``: outcome and worker of each ended attempt.

    A cancellation and a requeue are there too, and no attempts.
    """

    id: str
    queue: str
    raw: bool
    priority: int
    visible_at: int
    lease: int
    max_attempts: int
    number: int
    state: str = states.READY
    claims: int = 0
    attempts: int = 0
    worker: str = ""
    finished_at: int | None = None
    expires_at: int | None = None
    asked: bool = False
    ended: list[tuple[str, str]] = field(default_factory=list)

    def exhausted(self) -> bool:
        return 0 < self.max_attempts <= self.attempts

    def history(self) -> list[Any]:
        """Return number, outcome and worker of what is kept of each attempt, and how many are left out."""
        entries, number = [], 0
        for outcome, worker in self.ended:
            attempt = outcome not in (CANCELLED, REQUEUED)
            number += attempt
            entries.append((number * attempt, outcome, worker))
        surplus = len(entries) - FIRST - LAST - (self.ended[-1:] == [(REQUEUED, "")])
        if surplus <= 0:
            return entries
        omitted = sum(entry[0] > 0 for entry in entries[FIRST : FIRST + surplus])
        gap = [{"omitted": omitted}] if omitted else []
        return [*entries[:FIRST], *gap, *entries[FIRST + surplus :]]

    def row(self) -> tuple[Any, ...]:
        """Return what the tables must say about it."""
        moment = self.finished_at if self.state == states.FAILED else self.visible_at
        settings = (self.queue, self.raw, self.priority, self.max_attempts, self.lease)
        position = (self.state, self.claims, self.attempts, self.worker, moment, self.finished_at, self.expires_at)
        return *settings, *position, self.asked and self.state != states.FAILED, self.history()


class Model:
    """All jobs, dead letters among them."""

    def __init__(self) -> None:
        self.jobs: dict[str, ModelJob] = {}
        self.inserted = 0

    def publish(self, ids: Iterable[str], **settings: Any) -> None:
        for job_id in ids:
            self.inserted += 1
            self.jobs[job_id] = ModelJob(job_id, number=self.inserted, **settings)

    def claim(
        self, queues: tuple[str, ...] | None, kinds: set[bool], limit: int, worker: str, now: int, lease: int | None
    ) -> tuple[list[str], list[str]]:
        """Return the ids of what is leased, in order, and of what is buried instead."""
        due = [
            job
            for job in self.jobs.values()
            if job.state in (states.READY, states.RUNNING) and job.visible_at <= now
            if job.raw in kinds and (queues is None or job.queue in queues)
        ]
        due.sort(key=lambda job: (-job.priority, job.visible_at, job.number))
        leased, buried = [], []
        for job in due[:limit]:
            if job.state == states.RUNNING:
                self.fail(job, LEASE_EXPIRED, now, 0)
            if job.state == states.FAILED:
                buried.append(job.id)
                continue
            leased.append(job.id)
            job.state, job.worker = states.RUNNING, worker
            job.claims, job.attempts = job.claims + 1, job.attempts + 1
            job.lease = lease or job.lease
            job.visible_at = now + job.lease
        return leased, buried

    def held(self, token: HeldJob) -> ModelJob | None:
        """Return the job that a token holds; None if it is stale."""
        job = self.jobs.get(token.id)
        if job and (job.state, job.claims, job.worker) == (states.RUNNING, token.claims, token.worker_id):
            return job
        return None

    def ack(self, job: ModelJob, now: int, ttl: int | None) -> None:
        job.state, job.finished_at = states.SUCCESSFUL, now
        job.expires_at = None if ttl is None else now + ttl
        if ttl == 0:
            del self.jobs[job.id]

    def fail(self, job: ModelJob, outcome: str, now: int, delay: int | None, letter_ttl: int | None = None) -> None:
        """End an attempt; ``delay`` None: there shall be no other."""
        job.ended.append((outcome, job.worker))
        if delay is None or job.exhausted():
            job.state, job.finished_at = states.FAILED, now
            job.expires_at = None if letter_ttl is None else now + letter_ttl
        elif job.asked:
            self.bury(job, now)
        else:
            job.state, job.worker, job.visible_at = states.READY, "", now + delay

    def release(self, job: ModelJob, now: int) -> None:
        if job.asked:
            self.bury(job, now)
            return
        job.state, job.worker, job.visible_at, job.attempts = states.READY, "", now, max(job.attempts - 1, 0)

    def cancel(self, job: ModelJob, now: int) -> bool:
        """Return whether it was cancelled, or asked to stop."""
        if job.asked or job.state not in (states.READY, states.RUNNING):
            return False
        job.asked = True
        if job.state == states.READY:
            self.bury(job, now)
        return True

    def bury(self, job: ModelJob, now: int) -> None:
        """End a job that was cancelled."""
        job.ended.append((CANCELLED, ""))
        job.state, job.finished_at, job.expires_at = states.FAILED, now, None

    def extend(self, job: ModelJob, now: int, lease: int | None = None) -> None:
        job.lease = lease or job.lease
        job.visible_at = now + job.lease

    def requeue(self, job: ModelJob, now: int) -> None:
        self.inserted += 1
        job.number = self.inserted
        job.state, job.worker, job.visible_at, job.attempts = states.READY, "", now, 0
        job.ended.append((REQUEUED, ""))
        job.finished_at = job.expires_at = None
        job.asked = False

    def forget(self, ids: Iterable[str]) -> None:
        for job_id in ids:
            del self.jobs[job_id]

    def unheld(self, now: int) -> list[str]:
        """Return the ids of unfinished jobs that nobody holds."""
        held = {job.id for job in self.jobs.values() if job.state == states.RUNNING and job.visible_at > now}
        return [job.id for job in self.jobs.values() if job.state in ["READY", "RUNNING"] and job.id not in held]

    def prunable(self, now: int, dead: bool, limit: int) -> list[str]:
        """Return the ids of what was kept for long enough, the longest kept first."""
        kept = [job for job in self.jobs.values() if job.expires_at is not None and job.expires_at <= now]
        kept = [job for job in kept if (job.state == states.FAILED) == dead]
        return [job.id for job in sorted(kept, key=lambda job: job.expires_at or 0)[:limit]]

    def rows(self) -> dict[str, tuple[Any, ...]]:
        return {job.id: job.row() for job in self.jobs.values()}
