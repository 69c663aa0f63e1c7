"""The queue in plain Python, as the diagram of its states says that it works: what the real one is compared with."""

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Any, NamedTuple, Protocol

from .words import (
    CANCELLED,
    DEAD,
    DONE,
    ERROR,
    EXPIRED,
    LEASE_EXPIRED,
    QUEUED,
    READY,
    RELEASED,
    REPLACE,
    REQUEUED,
    RUNNING,
    SCHEDULED,
    START,
    STARTED,
    SUCCESSFUL,
)

# Every step that a job may take. None: not there (yet, or any more).
DIAGRAM = {
    (None, READY): "publish",
    (None, SCHEDULED): "publish with a delay",
    (SCHEDULED, READY): "a claim when its moment has come, run now, or a replacement that is due",
    (SCHEDULED, RUNNING): "a claim when its moment has come, which takes it",
    (READY, SCHEDULED): "a replacement with a delay",
    (READY, RUNNING): "claim",
    (RUNNING, RUNNING): "extend, release while the code may run, or a claim of a job whose lease has ended",
    (RUNNING, READY): "nack, release, or the end of a lease",
    (RUNNING, SCHEDULED): "nack with a delay, or a replacement with one of a job that was given back",
    (RUNNING, SUCCESSFUL): "ack",
    (RUNNING, DEAD): "no attempts left, or asked to stop",
    (DEAD, READY): "requeue",
    (READY, DEAD): "cancel, or not started in time",
    (SCHEDULED, DEAD): "cancel, or not started in time",
    (READY, None): "purge, delete",
    (SCHEDULED, None): "purge, delete",
    (RUNNING, None): "purge or delete of a job whose lease has ended; ack of a result that is not kept",
    (SUCCESSFUL, None): "prune, delete",
    (DEAD, None): "prune, discard",
}


FIRST, LAST = 5, 45  # entries of a history that are kept
LETTERS_KEPT = {"b": 4_000_000}  # microseconds for which the dead letters of a queue are kept; of others for ever
GRACE = 500_000  # microseconds after its end for which a lease may still be renewed, or a tenth of the lease
APART = 100_000  # microseconds in which the holder of an ended lease may renew it while the write lock is free


class Row(NamedTuple):
    """What the tables say of a job, or a dead letter; instants and durations in microseconds.

    ``raw``: it is no task's. ``asked``: it was cancelled while it was held. ``history``: number, outcome and worker of
    each entry, or how many are left out.
    """

    queue: str
    raw: bool
    priority: int
    max_attempts: int
    lease: int
    state: str
    claims: int
    attempts: int
    worker: str
    lease_until: int | None
    due_at: int | None
    wake_at: int | None
    finished_at: int | None
    kept_until: int | None
    asked: bool
    key: str | None
    until: str
    start_by: int | None
    history: list[Any]


class Right(Protocol):
    """The right to settle a job: what a claim has given to its holder."""

    id: str
    claims: int
    worker_id: str


@dataclass
class ModelJob:
    """A job. ``number``: its place in the order of insertion; ``ended``: outcome and worker of each ended attempt.

    A cancellation and a requeue are there too, and no attempts. ``due_at``: its place in the line, which no claim,
    renewal, release or expiry changes. ``wake_at``: when it enters the line, if that is later. ``lease_until``: while
    it is held, or was given back by a holder whose code may run until then. ``begun``: it was not only claimed ahead.
    ``start_by``: if it has not started by then it never will.
    """

    id: str
    queue: str
    raw: bool
    priority: int
    due_at: int
    lease: int
    max_attempts: int
    number: int
    state: str = READY
    claims: int = 0
    attempts: int = 0
    worker: str = ""
    wake_at: int | None = None
    lease_until: int | None = None
    begun: bool = False
    finished_at: int | None = None
    kept_until: int | None = None
    asked: bool = False
    key: str | None = None
    until: str = DONE
    start_by: int | None = None
    ended: list[tuple[str, str]] = field(default_factory=list)

    def exhausted(self) -> bool:
        return 0 < self.max_attempts <= self.attempts

    def put_in_line(self, due_at: int, now: int) -> None:
        """Give it a place in the line, which it enters at that moment."""
        self.due_at = due_at
        self.state, self.wake_at = (SCHEDULED, due_at) if due_at > now else (READY, None)

    def to_wake(self, now: int) -> bool:
        """Return whether a claim puts it into the line."""
        return self.state == SCHEDULED and self.due_at <= now

    def due(self, now: int) -> bool:
        return self.state == READY and self.due_at <= now

    def waits(self, now: int) -> bool:
        """Return whether no one holds it, and its code does not run any more; a claim need not have seen that yet."""
        return self.state in QUEUED or (self.given_back() and not self.held(now))

    def given_back(self) -> bool:
        """Return whether it has no holder, but its code may run on, or might a moment ago."""
        return self.state == RUNNING and not self.worker

    def overdue(self, now: int) -> bool:
        """Return whether it waits, and will never start."""
        return self.waits(now) and self.start_by is not None and self.start_by <= now

    def has_key(self, queue: str, key: str | None) -> bool:
        """Return whether no other job of the queue may have this key."""
        mine = (self.queue, self.key) == (queue, key) and key is not None and self.until != STARTED
        return mine and self.unfinished()

    def unfinished(self) -> bool:
        return self.state in (RUNNING, *QUEUED)

    def held(self, now: int) -> bool:
        """Return whether no other holder may have it: its lease goes on, or its code may."""
        return self.lease_until is not None and self.lease_until > now

    def may_be_claimed_ahead(self) -> bool:
        return self.claims == 0 and self.max_attempts != 1 and self.start_by is None and self.until != START

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
            attempt = outcome not in (CANCELLED, EXPIRED, REQUEUED)
            entries.append(((number + 1) * attempt, outcome, worker))
            number += attempt and outcome != RELEASED  # which has not been used
        surplus = len(entries) - FIRST - LAST - (self.ended[-1:] == [(REQUEUED, "")])
        if surplus <= 0:
            return entries
        omitted = sum(entry[0] > 0 and entry[1] != RELEASED for entry in entries[FIRST : FIRST + surplus])
        gap = [{"omitted": omitted}] if omitted else []
        return [*entries[:FIRST], *gap, *entries[FIRST + surplus :]]

    def row(self) -> Row:
        """Return what the tables must say about it."""
        due_at = self.finished_at if self.state == DEAD else self.due_at
        settings = (self.queue, self.raw, self.priority, self.max_attempts, self.lease)
        holder = (self.state, self.claims, self.attempts, self.worker, self.lease_until)
        moments = (due_at, self.wake_at, self.finished_at, self.kept_until)
        asked, start_by = (False, None) if self.state == DEAD else (self.asked, self.start_by)
        return Row(*settings, *holder, *moments, asked, self.key, self.until, start_by, self.history())


class Model:
    """All jobs, dead letters among them.

    ``by_id``: those of one priority that are due at one moment come in the order of their ids, else of their insertion.
    """

    def __init__(self, *, by_id: bool = False) -> None:
        self.by_id = by_id
        self.jobs: dict[str, ModelJob] = {}
        self.inserted = 0
        self.locked = self.locked_before = -inf  # when Queue objects had the write lock, so long apart from each other

    def publish(self, ids: Iterable[str], now: int, **settings: Any) -> None:
        for job_id in ids:
            self.inserted += 1
            self.jobs[job_id] = ModelJob(job_id, number=self.inserted, **settings)
            self.jobs[job_id].put_in_line(settings["due_at"], now)

    def depth(self, queue: str, now: int) -> int:
        """Return how many jobs of a queue wait."""
        waiting = [job for job in self.jobs.values() if job.waits(now)]
        return sum(job.queue == queue for job in waiting)

    def publish_unique(
        self, ids: Sequence[str], keys: Sequence[str | None], on_duplicate: str, now: int, **settings: Any
    ) -> list[str] | None:
        """Return, for each key, the id of the job that has it then; None, and change nothing, if that is refused.

        ``ids``: those of the jobs that are new.
        """
        before = deepcopy(self.jobs)
        given = [key for key in keys if key is not None]
        found = [self.put(job_id, key, on_duplicate, now, settings) for job_id, key in zip(ids, keys, strict=True)]
        there = [self.jobs[job_id] for job_id, new in zip(found, ids, strict=True) if job_id != new]
        for job in there:
            if job.overdue(now):
                self.expire(job, now)
        late = {job.id for job in there if job.state == DEAD}
        again = [index for index, job_id in enumerate(found) if job_id in late]
        for index in again:
            found[index] = self.put(ids[index], keys[index], on_duplicate, now, settings)
        there = [self.jobs[job_id] for job_id, new in zip(found, ids, strict=True) if job_id != new]
        refused = on_duplicate == ERROR and (bool(there) or len(set(given)) < len(given))
        if refused or any(job.raw != settings["raw"] for job in there):
            self.jobs = before
            return None
        return found

    def put(self, job_id: str, key: str | None, on_duplicate: str, now: int, settings: dict[str, Any]) -> str:
        """Insert a job, or find the one that has its key; return its id."""
        job = next((job for job in self.jobs.values() if job.has_key(settings["queue"], key)), None)
        if job is None:
            self.publish([job_id], now, key=key, **settings)
            return job_id
        if on_duplicate == REPLACE and job.waits(now) and job.raw == settings["raw"]:
            for name in ("priority", "lease", "max_attempts", "until", "start_by"):
                setattr(job, name, settings[name])
            job.attempts, job.lease_until = 0, None
            job.put_in_line(settings["due_at"], now)
        return job.id

    def expire(self, job: ModelJob, now: int) -> None:
        """End a job that has not started in time."""
        job.ended.append((EXPIRED, ""))
        self.die(job, now)

    def bury_overdue(self, now: int, limit: int, buried: list[str]) -> bool:
        """End these, which no claim comes across; return whether they are the most overdue, as many as may be.

        A job that was given back is among them when a claim has put it into the line.
        Which of those that are overdue since the same moment come first is not promised: a bulk of any size may be.
        """
        seen = [job for job in self.jobs.values() if job.overdue(now) and job.lease_until is None]
        late = sorted(job.start_by for job in seen if job.start_by is not None)
        jobs = [self.jobs[job_id] for job_id in buried]
        most = all(job.overdue(now) for job in jobs) and sorted(job.start_by or 0 for job in jobs) == late[:limit]
        for job in jobs:
            self.expire(job, now)
        return most

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
    ) -> tuple[list[str], list[str], bool]:
        """Return the ids of what is leased, in order, of those whose leases had ended, and whether any is buried.

        The leases are ended first, and what has come due enters the line. If one of those that would be leased is
        overdue, all such are buried.

        ``lease``: that of a Queue object, which keeps no lease up. ``ahead``: how many are leased besides, directly
        behind the others, as long as they were never claimed and may be claimed again. ``free``: see ModelJob.expired.
        """
        scope = [job for job in self.jobs.values() if job.raw in kinds and (queues is None or job.queue in queues)]
        ended = [job for job in scope if job.expired(now, worker if lease else "", free)]
        for job in sorted(ended, key=ModelJob.given_back):  # a key that a death leaves free they take back
            self.end_lease(job, now)
        for job in scope:
            if job.to_wake(now):
                job.put_in_line(job.due_at, now)
        due = [job for job in scope if job.due(now)]
        due.sort(key=lambda job: (-job.priority, job.due_at, job.id if self.by_id else job.number))
        late = [job for job in due if job.overdue(now)] if any(job.overdue(now) for job in due[: limit + ahead]) else []
        for job in late:
            self.expire(job, now)
        due = [job for job in due if job not in late]
        begun, rest = due[:limit], due[limit : limit + ahead]
        fresh = list(takewhile(lambda job: job.may_be_claimed_ahead(), rest))
        for job in begun + fresh:
            job.state, job.worker, job.begun = RUNNING, worker, job in begun
            job.claims, job.attempts = job.claims + 1, job.attempts + job.begun
            job.lease = lease or job.lease
            job.lease_until = now + job.lease
            job.until = STARTED if job.until == START else job.until
        return [job.id for job in begun + fresh], [job.id for job in ended], bool(late)

    def claim_from_queue(self, queue: str, limit: int, worker: str, now: int, lease: int) -> tuple[list[str], int]:
        """Return the ids of what a Queue object claims, and when it did so: it waits for holders whose leases ended."""
        while True:
            of_queue = [job for job in self.jobs.values() if job.raw and job.queue == queue]
            expired = any(job.expired(now, worker) for job in of_queue)
            if not expired and not any(job.due(now) or job.to_wake(now) for job in of_queue):
                return [], now
            if now - self.locked >= APART:
                self.locked_before, self.locked = self.locked, now
            leased, ended, late = self.claim((queue,), {True}, limit, worker, now, lease, free=self.locked_before)
            if leased or not (ended or expired or late):
                return leased, now
            if expired and not ended:
                now += APART + 10_000

    def end_lease(self, job: ModelJob, now: int) -> None:
        """Settle a lease that has ended: an attempt was used, if one had begun."""
        if job.given_back():
            self.take_key_back(job)
            self.give_back(job, now)
        elif not job.begun:
            self.give_back(job, now)
        else:
            self.interrupt(job, LEASE_EXPIRED, now)

    def held(self, token: Right) -> ModelJob | None:
        """Return the job that a token holds; None if it is stale."""
        job = self.jobs.get(token.id)
        if job and (job.state, job.claims, job.worker) == (RUNNING, token.claims, token.worker_id):
            return job
        return None

    def ack(self, job: ModelJob, now: int, ttl: int | None) -> None:
        job.state, job.finished_at, job.lease_until = SUCCESSFUL, now, None
        job.kept_until = None if ttl is None else now + ttl
        if ttl == 0:
            del self.jobs[job.id]

    def fail(self, job: ModelJob, outcome: str, now: int, delay: int | None) -> None:
        """End an attempt; the next one waits for ``delay``, None: there shall be no other."""
        job.ended.append((outcome, job.worker))
        if delay is None or job.exhausted():
            self.die(job, now)
        elif self.give_back(job, now):
            job.put_in_line(now + delay, now)

    def interrupt(self, job: ModelJob, outcome: str, now: int) -> None:
        """End an attempt whose holder is gone: the job is again where it was in the line."""
        job.ended.append((outcome, job.worker))
        if job.exhausted():
            self.die(job, now)
        else:
            self.give_back(job, now)

    def release(self, job: ModelJob, now: int) -> None:
        """Give a job back as if it had not been claimed: with its key, if that is free."""
        job.attempts = max(job.attempts - 1, 0)
        self.take_key_back(job)
        self.give_back(job, now)

    def take_key_back(self, job: ModelJob) -> None:
        """Have a job that was to be unique until its start be so again, if its key is free."""
        if job.until == STARTED and not job.asked:
            taken = any(other.has_key(job.queue, job.key) for other in self.jobs.values())
            job.until = STARTED if taken else START

    def break_off(self, job: ModelJob, now: int, held_until: int) -> None:
        """Give back what may still be running until then."""
        job.ended.append((RELEASED, job.worker))
        self.release(job, now)
        if job.state == READY:
            job.state, job.lease_until = RUNNING, held_until

    def give_back(self, job: ModelJob, now: int) -> bool:
        """Have a job wait again, at its place in the line; return False if it was asked to stop, and is dead."""
        if job.asked:
            self.bury(job, now)
            return False
        job.state, job.worker, job.lease_until = READY, "", None
        job.start_by = None if job.attempts else job.start_by
        return True

    def die(self, job: ModelJob, now: int) -> None:
        job.state, job.finished_at, job.lease_until, job.wake_at = DEAD, now, None, None
        job.kept_until = now + LETTERS_KEPT[job.queue] if job.queue in LETTERS_KEPT else None

    def cancel(self, job: ModelJob, now: int) -> bool:
        """Return whether it was cancelled, or asked to stop."""
        if job.asked or not job.unfinished():
            return False
        job.asked = True
        if not job.worker:
            self.bury(job, now)
        return True

    def bury(self, job: ModelJob, now: int) -> None:
        """End a job that was cancelled."""
        job.ended.append((CANCELLED, ""))
        self.die(job, now)

    def renew(self, job: ModelJob, now: int) -> None:
        """Hide a job for its lease from now on; one that was extended for longer stays hidden until then."""
        job.lease_until = max((job.lease_until or 0) + 1, now + job.lease)  # each renewal changes the row

    def extend(self, job: ModelJob, until: int, *, kept_up: bool) -> None:
        """Hide a job until a moment; where its lease is kept up, no shorter than before. Later claims know nothing."""
        job.lease_until = max(job.lease_until or 0, until) if kept_up else until

    def requeue(self, job: ModelJob, now: int) -> bool:
        """Return whether it is a job again: not if another one has its key."""
        if any(other.has_key(job.queue, job.key) for other in self.jobs.values()):
            return False
        job.until, job.start_by = START if job.until == STARTED else job.until, None
        self.inserted += 1
        job.number = self.inserted
        job.worker, job.attempts = "", 0
        job.put_in_line(now, now)
        job.ended.append((REQUEUED, ""))
        job.finished_at = job.kept_until = None
        job.asked = False
        return True

    def forget(self, ids: Iterable[str]) -> None:
        for job_id in ids:
            del self.jobs[job_id]

    def unheld(self, now: int) -> list[str]:
        """Return the ids of unfinished jobs without a holder."""
        unfinished = [job for job in self.jobs.values() if job.unfinished()]
        return [job.id for job in unfinished if not job.held(now)]

    def prunable(self, now: int, dead: bool, limit: int, left: Collection[str]) -> list[str]:
        """Return the ids of what was kept for long enough, the longest kept first, and of equals what is not left."""
        kept = [job for job in self.jobs.values() if job.kept_until is not None and job.kept_until <= now]
        kept = [job for job in kept if (job.state == DEAD) == dead]
        return [job.id for job in sorted(kept, key=lambda job: (job.kept_until or 0, job.id in left))[:limit]]

    def rows(self) -> dict[str, Row]:
        return {job.id: job.row() for job in self.jobs.values()}
