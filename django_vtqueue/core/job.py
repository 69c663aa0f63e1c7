"""A job on its way through the code: new, held, settled. Plain values; no database, no clock."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from ..exceptions import Cancelled, JobExpired
from . import history, states
from .clock import from_instant, microseconds, to_instant
from .failures import MAX_MESSAGE, Failure, recorded, shorten
from .steps import SNOOZE, Waiting

ClaimKey = tuple[str, int]  # id and claim number: the same job may be lost and claimed again by the same worker
Progress = tuple[float, str]  # 0 to 1, and a text
SHORT = 255  # characters of an indexed text column
MOST_CLAIMS = 1 << 53  # of a row, and attempts: they are counted up to that
LONGEST_LEASE = 10**17  # microseconds: 3000 years


@dataclass(slots=True)
class NewJobs:
    """What is published together: everything but the ids, payloads and unique keys is shared.

    Instants in microseconds. ``start_by``: what has not started by then is never run. ``unique_keys``: one for each
    job, or None; no other job of the queue, whatever its task, may have it until this one has ended ("done"), or
    started ("start").
    ``replace``: one that waits, and has the key, takes the place, the payload and all else of the new job.
    ``concurrency_keys``, ``rate_keys``: also one for each job, or None; they limit how many jobs of a key run at once,
    and how often they start. ``parent_id``: the job that waits for their end.
    """

    queue_name: str
    task_path: str
    priority: int
    max_attempts: int
    lease_us: int
    enqueued_at: int
    due_at: int
    jobs: list[tuple[str, str]]  # id, payload
    start_by: int | None = None
    unique_keys: list[str | None] | None = None
    unique_until: str = "done"
    replace: bool = False
    concurrency_keys: list[str | None] | None = None
    rate_keys: list[str | None] | None = None
    parent_id: str | None = None

    @property
    def keyed(self) -> bool:
        """Whether one of them has a key or a parent."""
        if not (self.unique_keys or self.concurrency_keys or self.rate_keys):  # most have none
            return self.parent_id is not None
        keys = [*(self.unique_keys or ()), *(self.concurrency_keys or ()), *(self.rate_keys or ())]
        return self.parent_id is not None or keys.count(None) < len(keys)


@dataclass(slots=True)
class HeldJob:
    """A claimed row as its holder knows it: ``id``, ``claims``, ``worker_id`` together are the right to change it.

    ``cancelled_by``: the name of the user who wants it to stop ("": not known), None without such a request.
    ``progress``: the last one that its code has reported; ``progress_in_row``: the stored one. ``recalled``: its worker
    is to stop, so code that can go on later shall give it back.
    """

    id: str
    queue_name: str
    task_path: str
    priority: int
    visible_at: int  # when the lease ends that its claim gave
    claims: int
    attempts: int
    max_attempts: int
    worker_id: str
    lease_us: int
    enqueued_at: int
    started_at: int | None
    payload: str
    history: str
    due_at: int  # its place in the line
    copies: str | None = None  # of a queue with overflow, as its row has them
    concurrency_key: str | None = None
    parent_id: str | None = None
    cancelled_by: str | None = field(default=None, kw_only=True)
    progress: Progress | None = field(default=None, kw_only=True)
    progress_in_row: Progress | None = field(default=None, kw_only=True)
    recalled: bool = field(default=False, kw_only=True)

    @property
    def key(self) -> ClaimKey:
        """This claim of the job, and no other."""
        return self.id, self.claims

    @property
    def news(self) -> Progress | None:
        """The progress that is to be stored."""
        return None if self.progress == self.progress_in_row else self.progress

    @property
    def begun(self) -> bool:
        """Whether its code was started; not yet if it was claimed ahead, or waits for its turn."""
        return self.started_at is not None

    def begin(self, now: int) -> None:
        """Note that its code starts: an attempt that its claim has not counted."""
        self.attempts, self.started_at = self.attempts + 1, now


@dataclass(slots=True)
class StoredJob(HeldJob):
    """A row of either table as it was read; ``state`` is FAILED for a dead letter."""

    state: str = ""
    finished_at: int | None = None
    result: str | None = None


class Scope(NamedTuple):
    """Which jobs a claim takes: those of ``queues`` (None: all), either tasks or raw payloads.

    ``worker``: one that takes no second copy of a job that it runs. Of a scope with one limited queue: ``room``: how
    many more of its jobs may run (None: any number), raw jobs with a ``concurrency_key`` not counted; ``starts``: how
    many may start now (None: any number); ``not_before``: the instant from which on some may.
    """

    queues: tuple[str, ...] | None
    raw: bool
    worker: str = ""
    room: int | None = None
    starts: int | None = None
    not_before: int = 0

    @property
    def limited(self) -> bool:
        """Whether its one queue has a limit of its own."""
        return self.room is not None or self.starts is not None


Handle = int | str  # names a row; only its engine understands it


class Due(NamedTuple):
    """A row that a claim may take.

    ``fresh``: it may be claimed ahead, if it is not ``keyed``: never claimed, more than one attempt, no ``expires``,
    no unique key until its start. The attempt of a job that is claimed ahead is counted only when it begins.
    ``start_by``: when it expires. ``queue_name``: of a job with a key, and where the claim asks for the names.
    ``again``: it runs already, and this is to be one more copy.
    """

    handle: Handle
    priority: int
    due_at: int
    claims: int
    fresh: int
    task_path: str
    start_by: int | None = None
    queue_name: str = ""
    concurrency_key: str | None = None
    rate_key: str | None = None
    moved_from: int | None = None
    again: int = 0

    @property
    def keyed(self) -> bool:
        """Whether it has a key that may have a limit."""
        return self.concurrency_key is not None or self.rate_key is not None

    def overdue(self, now: int) -> bool:
        """Return whether it has expired: it was to start by ``now``."""
        return self.start_by is not None and self.start_by <= now


class Ended(NamedTuple):
    """A hidden row that may be shown again.

    ``held``: a worker holds it, whose lease has ended although it had the time to renew it. Else the row was released
    a moment ago.
    """

    handle: Handle
    held: int


@dataclass(slots=True)
class Settlement:
    """How an attempt ends: the change that the holder of a job asks for. FAILED: the job moves to the dead letters.

    ``due_at``: the new place in the line of a READY job; None: it keeps the one it has. ``hidden_until``: it is not
    visible before, for its code may still be running. ``kept_until``: when the row may be deleted; of a dead letter
    queue/settling.py sets it. ``stopped``: it was to wait again, but had a stop request. ``meant``: what it was to be
    (state, ``due_at``, ``finished_at``), had no other copy of the job run on. ``waiting``: for what, of a job that is
    READY because its task waits, or has put it off.
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
    hidden_until: int | None = field(default=None, kw_only=True)
    stopped: bool = field(default=False, kw_only=True)
    meant: tuple[str, int | None, int | None] | None = field(default=None, kw_only=True)
    waiting: Waiting | None = field(default=None, kw_only=True)

    @property
    def uses_no_attempt(self) -> bool:
        """Whether the job waits again and the attempt is not used up."""
        return self.state == states.READY and self.failure is None

    @property
    def as_before(self) -> bool:
        """Whether the job is given back as if it had not been started: released, or put off."""
        return self.uses_no_attempt and (self.waiting is None or self.waiting.kind == SNOOZE)

    def shift(self, later: int) -> None:
        """Move the next attempt by ``later`` microseconds, for a caller that runs jobs as if it were later.

        What a task waits for comes at its own time.
        """
        if self.due_at is not None and not self.waiting:
            self.due_at += later


def succeeded(job: HeldJob, result: str, now: int, ttl: int | None) -> Settlement:
    """Return the acknowledgement; the row is kept for ``ttl`` microseconds (0: not at all, None: for ever)."""
    kept_until = None if ttl is None else now + ttl
    return Settlement(job, states.SUCCESSFUL, job.attempts, finished_at=now, kept_until=kept_until, result=result)


def released(job: HeldJob) -> Settlement:
    """Return the release of a job: it waits again, at its place in the line, and no attempt is used."""
    return Settlement(job, states.READY, job.attempts - job.begun)


def suspended(job: HeldJob, waiting: Waiting) -> Settlement:
    """Return the settlement of a job whose task waits, or has put it off: no attempt is used."""
    return Settlement(job, states.READY, job.attempts - job.begun, due_at=waiting.until, waiting=waiting)


def put_off(job: HeldJob, until: float | timedelta | datetime, now: int) -> Settlement:
    """Return the settlement of a job that is put off by seconds or a timedelta, or to a moment."""
    instant = to_instant(until) if isinstance(until, datetime) else now + microseconds(until)
    return suspended(job, Waiting(SNOOZE, "", max(instant, now), now))


def broken_off(job: HeldJob, now: int, hidden_until: int | None) -> Settlement:
    """Return the release of a job whose worker ends, with an entry of its attempt in the history, if it had begun.

    Until ``hidden_until`` its code may still run.
    """
    settlement = released(job)
    if not job.begun:
        return settlement
    entry = history.entry(history.number(job.history), job.worker_id, job.started_at, now, history.RELEASED, None)
    settlement.history, settlement.hidden_until = history.append(job.history, entry), hidden_until
    return settlement


def interrupted(job: HeldJob, outcome: str, failure: Failure, now: int) -> Settlement:
    """Return the settlement of an attempt whose holder is gone: due at its place, or a dead letter; see failed."""
    settlement = failed(job, outcome, failure, now, 0)
    settlement.due_at = None
    return settlement


def failed(job: HeldJob, outcome: str, failure: Failure, now: int, delay: int | None) -> Settlement:
    """Return the settlement of a failed attempt: visible again after ``delay`` microseconds, or a dead letter.

    It is a dead letter when the attempts are used up, or when ``delay`` is None (no further attempt makes sense).
    """
    entry = history.entry(history.number(job.history), job.worker_id, job.started_at, now, outcome, failure)
    kept = history.append(job.history, entry)
    if delay is not None and not exhausted(job):
        return Settlement(job, states.READY, job.attempts, due_at=now + delay, history=kept, failure=failure)
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
    settlement.stopped = True
    _bury(settlement, history.CANCELLED, recorded(Cancelled, cancellation(by)), now)


def expired(job: HeldJob, start_by: int | None, now: int) -> Settlement:
    """Return the settlement of a job that waits, and was to start by an instant that has come: it is never run."""
    settlement = Settlement(job, states.READY, job.attempts)
    _bury(settlement, history.EXPIRED, _not_started(start_by), now)
    return settlement


@lru_cache(maxsize=100)  # many may have been published together
def _not_started(start_by: int | None) -> Failure:
    told = "" if start_by is None else f" by {from_instant(start_by).isoformat(' ', 'seconds')}"
    return recorded(JobExpired, f"It had not started{told}.")


def _bury(settlement: Settlement, outcome: str, failure: Failure, now: int) -> None:
    """Change a settlement into the end of a job whose attempts are not used up."""
    entry = history.entry(history.NO_ATTEMPT, "", None, now, outcome, failure)
    settlement.history = history.append(settlement.history or settlement.job.history, entry)
    settlement.state, settlement.failure = states.FAILED, failure
    settlement.due_at, settlement.finished_at, settlement.waiting = None, now, None


def cancellation(by: str | None) -> str:
    """Return a sentence that says who cancelled a job."""
    return f"Cancelled by {by}." if by else "Cancelled."


def exhausted(job: HeldJob) -> bool:
    """Return whether the present attempt of a job is its last one; 0 attempts means unlimited."""
    return 0 < job.max_attempts <= job.attempts
