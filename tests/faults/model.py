"""The queue in plain Python, as the diagram of its states says that it works: what the real one is compared with."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Any

from django_vtqueue.core import states
from django_vtqueue.core.history import CANCELLED, FIRST, LAST, LEASE_EXPIRED, RELEASED, REQUEUED
from django_vtqueue.core.job import HeldJob

# Every step that a job may take. None: not there (yet, or any more).
DIAGRAM = {
    (None, states.READY): "publish",
    (states.READY, states.RUNNING): "claim",
    (states.RUNNING, states.RUNNING): "extend, or a claim of an expired job",
    (states.RUNNING, states.READY): "nack, release, or the end of an expired lease",
    (states.RUNNING, states.SUCCESSFUL): "ack",
    (states.RUNNING, states.FAILED): "no attempts left, or asked to stop",
    (states.FAILED, states.READY): "requeue",
    (states.READY, states.FAILED): "cancel",
    (states.READY, None): "purge, delete",
    (states.RUNNING, None): "purge or delete of an expired job; ack of a result that is not kept",
    (states.SUCCESSFUL, None): "prune, delete",
    (states.FAILED, None): "prune, discard",
}


LETTERS_KEPT = {"b": 4_000_000}  # microseconds for which the dead letters of a queue are kept; of others for ever
GRACE = 500_000  # microseconds after its end for which a lease may still be renewed, or a tenth of the lease
APART = 100_000  # microseconds in which the holder of an ended lease may renew it while the write lock is free


@dataclass
class ModelJob:
    """A job. ``number``: its place in the order of insertion; ``ended``: outcome and worker of each ended attempt.

    A cancellation and a requeue are there too, and no attempts. ``due_at``: its place in the line, which no claim,
    renewal, release or expiry changes. ``lease_until``: while it is held, or was given back by a holder whose code may
    run until then. ``begun``: it was not only claimed ahead.
    """

    id: str
    queue: str
    raw: bool
    priority: int
    due_at: int
    lease: int
    max_attempts: int
    number: int
    state: str = states.READY
    claims: int = 0
    attempts: int = 0
    worker: str = ""
    lease_until: int | None = None
    begun: bool = False
    finished_at: int | None = None
    expires_at: int | None = None
    asked: bool = False
    ended: list[tuple[str, str]] = field(default_factory=list)

    def exhausted(self) -> bool:
        return 0 < self.max_attempts <= self.attempts

    def due(self, now: int) -> bool:
        return self.state == states.READY and self.lease_until is None and self.due_at <= now

    def held(self, now: int) -> bool:
        """Return whether no other holder may have it: its lease goes on, or its code may."""
        return self.lease_until is not None and self.lease_until > now

    def expired(self, now: int, by: str, free: float = inf) -> bool:
        """Return whether it may be taken from its holder, which has a moment more to renew its lease.

        ``by``: a worker that takes what it holds itself at once, for it knows that it does not renew it.
        ``free``: when others last saw the write lock free, so that its holder could have renewed it.
        """
        if self.worker in ("", by):
            grace, free = 0, inf
        else:
            grace = min(self.lease // 10, GRACE)
        return self.lease_until is not None and self.lease_until + grace <= now and self.lease_until <= free

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
        due_at = self.finished_at if self.state == states.FAILED else self.due_at
        settings = (self.queue, self.raw, self.priority, self.max_attempts, self.lease)
        holder = (self.state, self.claims, self.attempts, self.worker, self.lease_until)
        moments = (due_at, self.finished_at, self.expires_at)
        return *settings, *holder, *moments, self.asked and self.state != states.FAILED, self.history()


class Model:
    """All jobs, dead letters among them."""

    def __init__(self) -> None:
        self.jobs: dict[str, ModelJob] = {}
        self.inserted = 0
        self.locked = self.locked_before = -inf  # when Queue objects had the write lock, so long apart from each other

    def publish(self, ids: Iterable[str], **settings: Any) -> None:
        for job_id in ids:
            self.inserted += 1
            self.jobs[job_id] = ModelJob(job_id, number=self.inserted, **settings)

    def depth(self, queue: str) -> int:
        """Return how many jobs of a queue wait."""
        waiting = [job for job in self.jobs.values() if job.state == states.READY and job.lease_until is None]
        return sum(job.queue == queue for job in waiting)

    def claim(
        self,
        queues: tuple[str, ...] | None,
        kinds: set[bool],
        limit: int,
        worker: str,
        now: int,
        lease: int | None,
        ahead: int = 0,
        free: float = inf,
    ) -> tuple[list[str], list[str]]:
        """Return the ids of what is leased, in order, and of those whose leases had expired: these are ended first.

        ``lease``: that of a Queue object, which keeps no lease up. ``ahead``: how many are leased besides, directly
        behind the others, as long as they were never claimed and may be claimed again. ``free``: see ModelJob.expired.
        """
        scope = [job for job in self.jobs.values() if job.raw in kinds and (queues is None or job.queue in queues)]
        ended = [job for job in scope if job.expired(now, worker if lease else "", free)]
        for job in ended:
            self.end_lease(job, now)
        due = [job for job in scope if job.due(now)]
        due.sort(key=lambda job: (-job.priority, job.due_at, job.number))
        begun, rest = due[:limit], due[limit : limit + ahead]
        fresh = list(takewhile(lambda job: job.claims == 0 and job.max_attempts != 1, rest))
        for job in begun + fresh:
            job.state, job.worker, job.begun = states.RUNNING, worker, job in begun
            job.claims, job.attempts = job.claims + 1, job.attempts + job.begun
            job.lease = lease or job.lease
            job.lease_until = now + job.lease
        return [job.id for job in begun + fresh], [job.id for job in ended]

    def claim_from_queue(self, queue: str, limit: int, worker: str, now: int, lease: int) -> tuple[list[str], int]:
        """Return the ids of what a Queue object claims, and when it did so: it waits for holders whose leases ended."""
        while True:
            of_queue = [job for job in self.jobs.values() if job.raw and job.queue == queue]
            expired = any(job.expired(now, worker) for job in of_queue)
            if not expired and not any(job.due(now) for job in of_queue):
                return [], now
            if now - self.locked >= APART:
                self.locked_before, self.locked = self.locked, now
            leased, ended = self.claim((queue,), {True}, limit, worker, now, lease, free=self.locked_before)
            if leased or not (ended or expired):
                return leased, now
            if not ended:
                now += APART + 10_000

    def end_lease(self, job: ModelJob, now: int) -> None:
        """End an expired lease: an attempt was used, if one had begun."""
        if job.state == states.READY:
            job.lease_until = None
        elif not job.begun:
            self.give_back(job, now)
        else:
            self.interrupt(job, LEASE_EXPIRED, now)

    def held(self, token: HeldJob) -> ModelJob | None:
        """Return the job that a token holds; None if it is stale."""
        job = self.jobs.get(token.id)
        if job and (job.state, job.claims, job.worker) == (states.RUNNING, token.claims, token.worker_id):
            return job
        return None

    def ack(self, job: ModelJob, now: int, ttl: int | None) -> None:
        job.state, job.finished_at, job.lease_until = states.SUCCESSFUL, now, None
        job.expires_at = None if ttl is None else now + ttl
        if ttl == 0:
            del self.jobs[job.id]

    def fail(self, job: ModelJob, outcome: str, now: int, delay: int | None) -> None:
        """End an attempt; the next one waits for ``delay``, None: there shall be no other."""
        job.ended.append((outcome, job.worker))
        if delay is None or job.exhausted():
            self.die(job, now)
        elif self.give_back(job, now):
            job.due_at = now + delay

    def interrupt(self, job: ModelJob, outcome: str, now: int) -> None:
        """End an attempt whose holder is gone: the job is again where it was in the line."""
        job.ended.append((outcome, job.worker))
        if job.exhausted():
            self.die(job, now)
        else:
            self.give_back(job, now)

    def release(self, job: ModelJob, now: int) -> None:
        """Give a job back as if it had not been claimed."""
        job.attempts = max(job.attempts - 1, 0)
        self.give_back(job, now)

    def break_off(self, job: ModelJob, now: int, hidden_until: int) -> None:
        """Give back what may still be running until then."""
        job.ended.append((RELEASED, job.worker))
        self.release(job, now)
        job.lease_until = hidden_until if job.state == states.READY else None

    def give_back(self, job: ModelJob, now: int) -> bool:
        """Have a job wait again, at its place in the line; return False if it was asked to stop, and is dead."""
        if job.asked:
            self.bury(job, now)
            return False
        job.state, job.worker, job.lease_until = states.READY, "", None
        return True

    def die(self, job: ModelJob, now: int) -> None:
        job.state, job.finished_at, job.lease_until = states.FAILED, now, None
        job.expires_at = now + LETTERS_KEPT[job.queue] if job.queue in LETTERS_KEPT else None

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
        self.die(job, now)

    def renew(self, job: ModelJob, now: int) -> None:
        """Hide a job for its lease from now on; one that was extended for longer stays hidden until then."""
        job.lease_until = max(job.lease_until or 0, now + job.lease)

    def extend(self, job: ModelJob, until: int, *, kept_up: bool) -> None:
        """Hide a job until a moment; where its lease is kept up, no shorter than before. Later claims know nothing."""
        job.lease_until = max(job.lease_until or 0, until) if kept_up else until

    def requeue(self, job: ModelJob, now: int) -> None:
        self.inserted += 1
        job.number = self.inserted
        job.state, job.worker, job.due_at, job.attempts = states.READY, "", now, 0
        job.ended.append((REQUEUED, ""))
        job.finished_at = job.expires_at = None
        job.asked = False

    def forget(self, ids: Iterable[str]) -> None:
        for job_id in ids:
            del self.jobs[job_id]

    def unheld(self, now: int) -> list[str]:
        """Return the ids of unfinished jobs without a holder."""
        unfinished = [job for job in self.jobs.values() if job.state in (states.READY, states.RUNNING)]
        return [job.id for job in unfinished if not job.held(now)]

    def prunable(self, now: int, dead: bool, limit: int) -> list[str]:
        """Return the ids of what was kept for long enough, the longest kept first."""
        kept = [job for job in self.jobs.values() if job.expires_at is not None and job.expires_at <= now]
        kept = [job for job in kept if (job.state == states.FAILED) == dead]
        return [job.id for job in sorted(kept, key=lambda job: job.expires_at or 0)[:limit]]

    def rows(self) -> dict[str, tuple[Any, ...]]:
        return {job.id: job.row() for job in self.jobs.values()}
