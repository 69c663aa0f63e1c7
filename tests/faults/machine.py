"""What may happen to a queue, step by step, in any order."""

from contextlib import nullcontext, suppress
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from django_vtqueue import Queue, QueueFull, control, requeue
from django_vtqueue.exceptions import DuplicateJob, WorkerDied

from . import stored
from .agreement import BUDGETS, LEASES, NAMES, Agreement
from .inside import (
    abandoned,
    failed,
    have_kept_up,
    held_of,
    new_id,
    own_worker_id,
    released,
    released_unfinished,
    set_max_depth,
    succeeded,
)
from .model import ModelJob
from .words import (
    DEAD,
    DONE,
    ERROR,
    FAILED,
    KEEP,
    READY,
    REPLACE,
    RUNNING,
    SCHEDULED,
    SECOND,
    START,
    SUCCESSFUL,
    WORKER_DIED,
)

KEPT = 86_400 * SECOND  # the default of result_ttl

pick = st.integers(0, 50)
names = st.sampled_from(NAMES)
holders = st.integers(0, 2)
limits = st.sampled_from([4, 1, 2, 9])
delays = st.sampled_from([0, 0, 2, 5])
backoffs = st.sampled_from([0, 0, 2, 5, 3600])
leases = st.sampled_from([5, 1, 60])  # seconds
ttls = st.sampled_from([KEPT, None, 0, 4 * SECOND])
expiries = st.sampled_from([None, None, 3, 9])  # seconds after it is due


def many(machine: Agreement) -> bool:
    """Return whether there are enough jobs to take some away, and the others go on."""
    return len(machine.model.jobs) > 6


class QueueAgainstModel(Agreement):
    """Workers that claim for themselves, two Queue objects of one process, and people."""

    @initialize()
    def begin(self) -> None:
        self.publish("a", 2, 0, 0)
        self.publish("b", 1, 7, 2)
        self.enqueue("a", 0, 0, 1)
        self.enqueue("b", 7, 0, 3)

    @rule(
        name=names,
        count=st.integers(1, 3),
        priority=st.sampled_from([0, 0, -100, 7]),
        delay=delays,
        expires=expiries,
    )
    def publish(self, name: str, count: int, priority: int, delay: int, expires: int | None = None) -> None:
        until = None if expires is None else delay + expires
        ids = self.queues[name].publish_many([None] * count, delay=delay, priority=priority, expires=until)
        lease, now = LEASES[name] * SECOND, self.clock.instant
        start_by = None if until is None else now + until * SECOND
        self.published([job_id.hex for job_id in ids], name, True, priority, delay, lease, BUDGETS[name], start_by)

    @rule(
        name=names,
        keys=st.sampled_from([["k"], ["k"], ["j"], ["k", "k"], ["j", None, "k"]]),
        until=st.sampled_from([DONE, START]),
        on_duplicate=st.sampled_from([KEEP, KEEP, REPLACE, ERROR]),
        raw=st.sampled_from([True, True, False]),
        delay=delays,
        expires=expiries,
    )
    def publish_unique(
        self,
        name: str,
        keys: list[str | None],
        until: str,
        on_duplicate: str,
        raw: bool,
        delay: int,
        expires: int | None,
    ) -> None:
        """What is stored, replaced, found or refused is what the model says, for one or several at once."""
        now, ids = self.clock.instant, [new_id() for _ in keys]
        due_at = now + delay * SECOND
        start_by = None if expires is None else due_at + expires * SECOND
        given: dict[str, Any] = {
            "queue": name,
            "raw": raw,
            "priority": 0,
            "due_at": due_at,
            "lease": 5 * SECOND,
            "max_attempts": 3,
        }
        given |= {"until": until, "start_by": start_by}
        expected = self.model.publish_unique(ids, keys, on_duplicate, now, **given)
        try:
            found = self.hands.publish_unique(ids, keys, on_duplicate, now, **given)
        except DuplicateJob:
            assert expected is None
        else:
            assert found == expected

    @rule(
        name=names,
        until=st.sampled_from([DONE, START]),
        on_duplicate=st.sampled_from([KEEP, REPLACE, ERROR]),
        seconds=st.sampled_from([0, 3]),
        requeued=st.booleans(),
    )
    def rival(self, name: str, until: str, on_duplicate: str, seconds: int, requeued: bool) -> None:
        """A key is published while its job is held, or has expired, and perhaps once more after it has died."""
        for priority in (7, 0):
            self.enqueue(name, priority, 0, 0)
            self.tables_and_model_agree()
        self.publish_unique(name, ["k"], until, KEEP, False, 0, 3)
        self.tables_and_model_agree()
        self.clock.advance(seconds)
        if not (seconds and requeued):
            self.claim_as_worker(0, {False}, name, 1, 9)
            self.tables_and_model_agree()
        if not seconds:
            self.claim_as_worker(0, {False}, name, 9)
            self.tables_and_model_agree()
        self.publish_unique(name, ["k"], until, on_duplicate, False, 0, None)
        self.tables_and_model_agree()
        if requeued and not seconds:
            self.fail(0, None)
            self.tables_and_model_agree()
            self.requeue(0)

    @rule(limit=st.integers(1, 3))
    def bury_overdue(self, limit: int) -> None:
        """A worker buries what no claim comes across."""
        now = self.clock.instant
        assert self.model.bury_overdue(now, limit, self.hands.bury_overdue(limit, "w0", now))

    @rule(name=names, count=st.integers(1, 3), most=st.sampled_from([3, 1, 4]))
    def publish_if_there_is_room(self, name: str, count: int, most: int) -> None:
        """So small a ``max_depth`` is exact: what fits is stored, and of what does not fit nothing is."""
        queue = Queue(name, self.alias, LEASES[name], BUDGETS[name])
        set_max_depth(queue, most)
        depth, ids = self.model.depth(name, self.clock.instant), list[UUID]()
        with pytest.raises(QueueFull) if depth + count > most else nullcontext() as full:
            ids = queue.publish_many([None] * count)
        assert full is None or full.value.depth == min(depth, most)
        self.published([job_id.hex for job_id in ids], name, True, 0, 0, LEASES[name] * SECOND, BUDGETS[name])

    @rule(
        name=names,
        priority=st.sampled_from([0, 7, 100]),
        delay=delays,
        attempts=st.sampled_from([1, 3, 0]),
        lease=leases,
    )
    def enqueue(self, name: str, priority: int, delay: int, attempts: int, lease: int = 5) -> None:
        now = self.clock.instant
        due_at, lease_us = now + delay * SECOND, lease * SECOND
        job_id = self.hands.enqueue(name, now, priority=priority, due_at=due_at, lease=lease_us, max_attempts=attempts)
        self.published([job_id], name, False, priority, delay, lease_us, attempts)

    def published(
        self,
        ids: list[str],
        name: str,
        raw: bool,
        priority: int,
        delay: int,
        lease: int,
        limit: int,
        start_by: int | None = None,
    ) -> None:
        values = {"priority": priority, "due_at": self.clock.instant + delay * SECOND, "start_by": start_by}
        self.model.publish(ids, self.clock.instant, queue=name, raw=raw, lease=lease, max_attempts=limit, **values)

    @rule(
        holder=holders,
        kinds=st.sampled_from([{True, False}, {True}, {False}]),
        name=st.none() | names,
        limit=limits,
        ahead=st.sampled_from([0, 3]),
    )
    def claim_as_worker(self, holder: int, kinds: set[bool], name: str | None, limit: int, ahead: int = 0) -> None:
        queues, worker = (name,) if name else None, self.workers[holder]
        jobs = self.hands.claim(name, kinds, limit, worker, self.clock.instant, ahead)
        leased, *_ = self.model.claim(queues, kinds, limit, worker, self.clock.instant, None, ahead)
        assert [job.id for job in jobs] == leased
        self.hold([(job, None) for job in jobs if job.begun])
        self.hold_ahead([job for job in jobs if not job.begun])

    @rule(holder=holders, name=names, which=pick)
    def crowd(self, holder: int, name: str, which: int) -> None:
        """A worker claims some jobs ahead, and a job that is held is asked to stop."""
        for _ in range(4):
            self.enqueue(name, 7, 0, 0)
        self.tables_and_model_agree()
        self.claim_as_worker(holder, {False}, name, 1, 3)
        self.tables_and_model_agree()
        held = [row for row in self.model.jobs.values() if row.state == RUNNING and row.worker]
        for row in held[which % (2 * len(held)) :][:1] if held else ():
            assert bool(control.cancel([row.id], using=self.alias)) == self.model.cancel(row, self.clock.instant)

    @precondition(lambda self: self.ahead)
    @rule(told=st.booleans())
    def begin_one(self, told: bool) -> None:
        """A thread takes what was claimed ahead; the row is told of it now, or by its end."""
        held, now = self.ahead.pop(0), self.clock.instant
        self.hands.begin(held, now, told=told)
        self.tokens.append((held, None))
        if told and (row := self.model.held(held)):
            row.attempts, row.begun = 1, True

    @precondition(lambda self: self.ahead)
    @rule()
    def recall(self) -> None:
        """All that has not begun is given back; what was asked to stop among it ends, and costs no other anything."""
        now, held, self.ahead = self.clock.instant, self.ahead, []
        rows = {job.key: self.model.held(job) for job in held}
        lost = self.hands.settle(*map(released, held))
        assert lost >= {key for key, row in rows.items() if row is None}  # nothing tells whose a mere release was
        for row in filter(None, rows.values()):
            self.model.release(row, now)

    @rule(name=names, limit=limits)
    def claim_from_queue(self, name: str, limit: int) -> None:
        now = self.clock.instant
        jobs = self.queues[name].claim_many(limit)
        leased, now = self.model.claim_from_queue(name, limit, own_worker_id(), now, LEASES[name] * SECOND)
        assert ([job.id.hex for job in jobs], self.clock.instant) == (leased, now)
        self.hold([(held_of(job), job) for job in jobs])

    @precondition(lambda self: self.tokens)
    @rule(which=pick, ttl=ttls)
    def ack(self, which: int, ttl: int | None) -> None:
        now, (held, job) = self.clock.instant, self.token(which)
        mine = self.settle(held, succeeded(held, "1", now, ttl)) if job is None else self.told(job.ack)
        self.agree(held, mine, lambda row: self.model.ack(row, now, ttl if job is None else KEPT))

    @precondition(lambda self: self.tokens)
    @rule(which=pick, delay=st.none() | backoffs)
    def fail(self, which: int, delay: int | None) -> None:
        now, (held, job) = self.clock.instant, self.token(which)
        wait = None if delay is None else delay * SECOND
        if job:
            wait = wait or 0
            mine = self.told(lambda: job.nack(delay or 0))
        else:
            mine = self.settle(held, failed(held, FAILED, now, wait))
        self.agree(held, mine, lambda row: self.model.fail(row, FAILED, now, wait))

    @precondition(lambda self: self.tokens)
    @rule(which=pick)
    def release(self, which: int) -> None:
        now, (held, job) = self.clock.instant, self.token(which)
        mine = self.settle(held, released(held)) if job is None else self.told(job.release)
        self.agree(held, mine, lambda row: self.model.release(row, now))

    @precondition(lambda self: self.tokens)
    @rule(which=pick)
    def renew(self, which: int) -> None:
        """Leases that are kept up are renewed, also when they have ended while no other worker has the job."""
        now, (held, _) = self.clock.instant, self.token(which)
        mine = self.hands.renew(now, held)
        row = self.model.held(held)
        assert mine == (row is not None)
        if row:
            self.model.renew(row, now)

    @precondition(lambda self: self.tokens)
    @rule(which=pick, seconds=st.sampled_from([1, 9, 90]), kept_up=st.booleans())
    def extend(self, which: int, seconds: int, kept_up: bool) -> None:
        """``extend`` promises more than a renewal, and refuses when the lease has ended."""
        now, (held, job) = self.clock.instant, self.token(which)
        if job is None:
            return
        row = self.model.held(held)
        have_kept_up(job, kept_up)
        mine = self.told(lambda: job.extend(seconds))
        assert mine == bool(row and row.held(now))
        if row and mine:
            self.model.extend(row, now + seconds * SECOND, kept_up=kept_up)

    @rule(seconds=st.sampled_from([8, 3, 5, 0.5, 100_000]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(name=names, limit=limits)
    def overrun(self, name: str, limit: int) -> None:
        """What a Queue object has claimed expires, and another one of its process claims it."""
        self.clock.advance(LEASES[name])
        self.claim_from_queue(name, limit)

    @rule(holder=holders)
    def crash(self, holder: int) -> None:
        """A worker forgets all it holds; the one that starts in its place has a name of its own."""
        name, _, times = self.workers[holder].partition(".")
        self.tokens = [token for token in self.tokens if token[0].worker_id != self.workers[holder]]
        self.ahead = [held for held in self.ahead if held.worker_id != self.workers[holder]]
        self.workers[holder] = f"{name}.{int(times) + 1}"

    @rule(holder=holders, seconds=st.sampled_from([2, 0]))
    def leave(self, holder: int, seconds: int) -> None:
        """A worker that leaves at once gives back what may still be running, held by no one for a second."""
        now, worker = self.clock.instant, self.workers[holder]
        held = [held for held, _ in self.tokens if held.worker_id == worker and self.model.held(held)]
        assert not self.hands.settle(*(released_unfinished(job, now, now + SECOND) for job in held))
        for job in held:
            self.agree(job, True, lambda row: self.model.break_off(row, now, now + SECOND))
        self.crash(holder)
        self.clock.advance(seconds)

    @rule()
    def restart(self) -> None:
        """A process that starts looks for what a clock ahead has stamped; where none was it changes nothing."""
        assert self.hands.repair_clocks(self.clock.instant) == []

    @rule(holder=holders, delay=delays)
    def be_found_dead(self, holder: int, delay: int) -> None:
        """Others end the leases of a worker, with or without a backoff; it may still be there, and come back."""
        now, worker = self.clock.instant, self.workers[holder]
        held = self.hands.held_by(worker)
        endings = [
            released(job)
            if not job.begun
            else failed(job, WORKER_DIED, now, delay * SECOND, WorkerDied)
            if delay
            else abandoned(job, WORKER_DIED, now)
            for job in held
        ]
        assert not self.hands.settle(*endings)
        rows = [row for job in held if (row := self.model.held(job))]
        assert len(rows) == len(held)
        for row in rows:
            if not row.begun:
                self.model.give_back(row, now)
            elif delay:
                self.model.fail(row, WORKER_DIED, now, delay * SECOND)
            else:
                self.model.interrupt(row, WORKER_DIED, now)

    @precondition(many)
    @rule(name=names, times=st.sampled_from([1, 25]))
    def wear_out(self, name: str, times: int) -> None:
        """A job that is tried again and again has a history with a gap."""
        self.enqueue(name, 100, 0, 0) if not any(self.worn(row) for row in self.model.jobs.values()) else None
        [row] = [row for row in self.model.jobs.values() if self.worn(row)][:1]
        for _ in range(times if row.unfinished() and not row.worker else 0):
            self.clock.instant = max(self.clock.instant, row.due_at) + 1
            self.claim_as_worker(0, {False}, row.queue, 1)
            if not self.tokens or self.model.held(self.tokens[-1][0]) is not row:  # another one was before it
                return
            self.fail(0, 0)

    def worn(self, row: ModelJob) -> bool:
        return (row.raw, row.priority, row.max_attempts) == (False, 100, 0) and row.state != SUCCESSFUL

    @rule(which=pick)
    def requeue(self, which: int) -> None:
        dead = [row for row in self.model.jobs.values() if row.state == DEAD]
        for row in dead[which:][:1] or self.some_job(which):
            moved = requeue(row.id, using=self.alias)
            moves = row.state == DEAD and self.model.requeue(row, self.clock.instant)
            assert [job_id.hex for job_id in moved] == [row.id] * moves

    @precondition(many)
    @rule(which=pick)
    def discard(self, which: int) -> None:
        """Afterwards it is no dead letter; one that was none is left alone."""
        for row in self.some_job(which):
            gone = [row.id] * (row.state == DEAD)
            assert self.hands.discard_letter(row.id) == gone
            self.model.forget(gone)

    @precondition(many)
    @rule(which=pick)
    def run_now(self, which: int) -> None:
        for row in self.some_job(which):
            now = self.clock.instant
            waits = (row.state == SCHEDULED and row.due_at > now) or (row.state == READY and row.due_at == now)
            assert [job_id.hex for job_id in control.run_now([row.id], using=self.alias)] == [row.id] * waits
            if waits:
                row.put_in_line(now, now)

    @rule(which=pick)
    def cancel(self, which: int) -> None:
        """What waits is dead, what runs is asked; the rest is left alone."""
        for row in self.some_job(which):
            told = [job_id.hex for job_id in control.cancel([row.id], using=self.alias)]
            assert told == [row.id] * self.model.cancel(row, self.clock.instant)

    @precondition(many)
    @rule(which=pick)
    def delete(self, which: int) -> None:
        """Of jobs, not of letters; what is held stays."""
        for row in self.some_job(which):
            gone = [row.id] * (row.state == SUCCESSFUL or row.id in self.model.unheld(self.clock.instant))
            assert self.hands.delete_job(row.id) == gone
            self.model.forget(gone)

    @precondition(many)
    @rule(name=names)
    def purge(self, name: str) -> None:
        gone = [job_id for job_id in self.model.unheld(self.clock.instant) if self.model.jobs[job_id].queue == name]
        assert self.queues[name].purge() == len(gone)
        self.model.forget(gone)

    @rule(limit=st.integers(1, 3))
    def prune(self, limit: int) -> None:
        now = self.clock.instant
        pruned, left = self.hands.prune(limit, now), set(stored.rows(self.alias))
        gone = [*self.model.prunable(now, False, limit, left), *self.model.prunable(now, True, limit, left)]
        assert pruned == len(gone)
        self.model.forget(gone)

    @precondition(lambda self: self.tokens)
    @rule(which=pick, limit=limits)
    def roll_back(self, which: int, limit: int) -> None:
        """A turn whose commit fails has settled and claimed nothing."""
        held, _ = self.token(which)
        with suppress(ZeroDivisionError), transaction.atomic(self.alias):
            self.settle(held, succeeded(held, "1", self.clock.instant, KEPT))
            self.hands.claim(None, [True, False], limit, "nobody", self.clock.instant)
            raise ZeroDivisionError
