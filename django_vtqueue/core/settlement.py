"""How an attempt ends, or a job that waits: the change of its row that is asked for. Plain values."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from ..exceptions import Cancelled, JobExpired
from . import history, states
from .clock import SECOND, from_instant, microseconds, to_instant
from .failures import MAX_MESSAGE, Failure, recorded
from .job import SHORT, HeldJob, StoredJob
from .steps import EVENT, GATHER, SNOOZE, Waiting
from .text import shorten

KEPT_FOR_PARENT = 90 * 86_400 * SECOND  # at least: until then its parent has read what became of a child


@dataclass(slots=True)
class Settlement:
    """How an attempt ends: the change that the holder of a job asks for. FAILED: the job moves to the dead letters.

    ``due_at``: the new place in the line of a job that is not at its end; None: it keeps the one it has. ``wake_at``:
    when it comes into the line, if that is later. ``held_until``: it is given back only then, for its code may still
    be running. ``kept_until``: when the row may be deleted; of a dead letter
    queue/settling.py sets it. ``cancelled``: it was to wait again, but was cancelled. ``requested``: the state,
    ``due_at``, ``wake_at`` and ``finished_at`` that were asked for, of a settlement that has ended one copy only.
    ``waiting``: for what its task waits, or that it has put the job off. ``unparked``: other
    jobs were put back into the line with it.
    """

    job: HeldJob
    state: str
    attempts: int
    due_at: int | None = None
    finished_at: int | None = None
    kept_until: int | None = None
    result: str | None = None
    history: str | None = None
    failure: Failure | None = None
    wake_at: int | None = field(default=None, kw_only=True)
    held_until: int | None = field(default=None, kw_only=True)
    cancelled: bool = field(default=False, kw_only=True)
    requested: tuple[str, int | None, int | None, int | None] | None = field(default=None, kw_only=True)
    waiting: Waiting | None = field(default=None, kw_only=True)
    unparked: bool = field(default=False, kw_only=True, compare=False)

    @property
    def unkept(self) -> bool:
        """Whether the job ends now and its row is not kept at all (``result_ttl`` 0)."""
        return self.kept_until is not None and self.kept_until == self.finished_at

    @property
    def goes_on(self) -> bool:
        """Whether the job is not at its end: it is to run again, or it waits."""
        return self.state in states.QUEUED

    @property
    def uses_no_attempt(self) -> bool:
        """Whether the job waits again and the attempt is not used up."""
        return self.goes_on and self.failure is None

    def others_due(self, now: int) -> bool:
        """Whether other workers have to look: it was given back and may be due, or the next of its key, or its parent.

        A failed attempt is repeated by the worker that had it, which has a free slot now.
        """
        return (self.uses_no_attempt and self.due_again(now)) or self.unparked or self.job.parent_id is not None

    def due_again(self, now: int) -> bool:
        """Whether the job may be due before others look by themselves, in a second.

        An event or a child that it waits for may have come already.
        """
        if not self.goes_on:
            return False
        soon = self.due_at is None or self.due_at < now + SECOND
        return soon or (self.waiting and self.waiting.kind) in (EVENT, GATHER)

    @property
    def as_before(self) -> bool:
        """Whether the job is given back as if it had not been started: released, or put off."""
        return self.uses_no_attempt and (self.waiting is None or self.waiting.kind == SNOOZE)

    def left(self, row: StoredJob | None) -> bool:
        """Return whether a row is as this settlement leaves it.

        The claim number alone does not say that: what was requeued has the same. What has ended is known by the moment;
        its history is also that of its copies. What waits again is known by its start and its history, wherever an
        event or a limit has moved it since; what is put off, by the moment until which it is.
        """
        job = self.job
        if row is None or (row.claims, row.finished_at) != (job.claims, self.finished_at):
            return False
        written = (states.RUNNING,) if self.held_until else states.QUEUED if self.goes_on else (self.state,)
        if row.state not in written or (self.held_until and row.worker_id):
            return False
        if self.finished_at is not None:
            return True
        if self.as_before and self.due_at not in (None, row.due_at):
            return False
        return (row.started_at, row.history) == (job.started_at, self.history or job.history)


def succeeded(job: HeldJob, result: str, now: int, ttl: int | None) -> Settlement:
    """Return the acknowledgement; ``ttl``: see kept_until."""
    until = kept_until(job, now, ttl)
    return Settlement(job, states.SUCCESSFUL, job.attempts, finished_at=now, kept_until=until, result=result)


def kept_until(job: HeldJob, ended_at: int, ttl: int | None) -> int | None:
    """Return until when a job that has ended is kept: for ``ttl`` microseconds (0: not at all), or for good (None).

    A child is kept for its parent, whatever ``ttl`` says.
    """
    return None if ttl is None else ended_at + (max(ttl, KEPT_FOR_PARENT) if job.parent_id else ttl)


def released(job: HeldJob) -> Settlement:
    """Return the release of a job: it waits again, at its place in the line, and no attempt is used."""
    return Settlement(job, states.READY, job.attempts - job.begun)


def suspended(job: HeldJob, waiting: Waiting) -> Settlement:
    """Return the settlement of a job whose task waits, or has put it off: no attempt is used."""
    state = states.SCHEDULED if waiting.kind == SNOOZE else states.WAITING
    attempts = job.attempts - job.begun
    return Settlement(job, state, attempts, due_at=waiting.until, wake_at=waiting.until, waiting=waiting)


def snoozed(job: HeldJob, until: float | timedelta | datetime, now: int) -> Settlement:
    """Return the settlement of a job that is put off by seconds or a timedelta, or to a moment."""
    instant = to_instant(until) if isinstance(until, datetime) else now + microseconds(until)
    return suspended(job, Waiting(SNOOZE, "", max(instant, now), now))


def released_unfinished(job: HeldJob, now: int, held_until: int | None) -> Settlement:
    """Return the release of a job whose worker ends, with an entry of its attempt in the history, if it had begun.

    Until ``held_until`` its code may still run.
    """
    settlement = released(job)
    if not job.begun:
        return settlement
    entry = history.entry(history.number(job.history), job.worker_id, job.started_at, now, history.RELEASED, None)
    settlement.history, settlement.held_until = history.append(job.history, entry), held_until
    return settlement


def abandoned(job: HeldJob, word: str, failure: Failure, now: int) -> Settlement:
    """Return the settlement of an attempt whose holder is gone: due at its place, or a dead letter; see failed."""
    settlement = failed(job, word, failure, now, 0)
    settlement.due_at = None
    return settlement


def given_back(job: HeldJob) -> Settlement:
    """Return the settlement of a job whose holder gave it back a moment ago: now its code has ended."""
    return Settlement(job, states.READY, job.attempts)


def failed(job: HeldJob, word: str, failure: Failure, now: int, delay: int | None) -> Settlement:
    """Return the settlement of a failed attempt: visible again after ``delay`` microseconds, or a dead letter.

    It is a dead letter when the attempts are used up, or when ``delay`` is None (no further attempt makes sense).
    """
    entry = history.entry(history.number(job.history), job.worker_id, job.started_at, now, word, failure)
    kept = history.append(job.history, entry)
    if delay is not None and not exhausted(job):
        again = Settlement(job, states.READY, job.attempts, due_at=now + delay, history=kept, failure=failure)
        if delay > 0:
            again.state, again.wake_at = states.SCHEDULED, again.due_at
        return again
    return Settlement(
        job,
        states.FAILED,
        job.attempts,
        finished_at=now,
        history=kept,
        failure=Failure(
            failure.exception_class[:SHORT],
            shorten(failure.message, MAX_MESSAGE)[:SHORT],
            failure.traceback,
            failure.fingerprint,
        ),
    )


def cancelled(job: HeldJob, by: str, now: int) -> Settlement:
    """Return the settlement that ends a waiting job; ``by``: the name of the user who cancelled it ("": not known)."""
    settlement = Settlement(job, states.READY, job.attempts)
    end_cancelled(settlement, by, now)
    return settlement


def end_cancelled(settlement: Settlement, by: str, now: int) -> None:
    """Change the settlement of a job that would wait again: the job becomes a dead letter, cancelled by ``by``."""
    settlement.cancelled = True
    _make_burial(settlement, history.CANCELLED, recorded(Cancelled, cancellation(by)), now)


def overdue(job: HeldJob, start_by: int | None, now: int) -> Settlement:
    """Return the settlement of a job that waits, and was to start by an instant that has come: it is never run."""
    settlement = Settlement(job, states.READY, job.attempts)
    _make_burial(settlement, history.EXPIRED, _not_started(start_by), now)
    return settlement


@lru_cache(maxsize=100)  # many may have been published together
def _not_started(start_by: int | None) -> Failure:
    told = "" if start_by is None else f" by {from_instant(start_by).isoformat(' ', 'seconds')}"
    return recorded(JobExpired, f"It had not started{told}.")


def _make_burial(settlement: Settlement, word: str, failure: Failure, now: int) -> None:
    """Change a settlement into the end of a job whose attempts are not used up."""
    entry = history.entry(history.NO_ATTEMPT, "", None, now, word, failure)
    settlement.history = history.append(settlement.history or settlement.job.history, entry)
    settlement.state, settlement.failure = states.FAILED, failure
    settlement.due_at, settlement.wake_at, settlement.held_until, settlement.waiting = None, None, None, None
    settlement.finished_at = now


def cancellation(by: str | None) -> str:
    """Return a sentence that says who cancelled a job."""
    return f"Cancelled by {by}." if by else "Cancelled."


def exhausted(job: HeldJob) -> bool:
    """Return whether the present attempt of a job is its last one; 0 attempts means unlimited."""
    return 0 < job.max_attempts <= job.attempts
