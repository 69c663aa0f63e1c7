"""The claim: take what is due, after writing down what became of the holders before.

Two steps, so that the write lock is held for as short as possible: ``take`` inside a transaction, ``collect`` after its
commit (nobody else may change a row that is leased to us).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from . import history, states
from .engines.base import Engine
from .exceptions import DamagedJob, LeaseExpired
from .failures import recorded
from .jobs import Due, HeldJob, Scope, Settlement, exhausted, failed, released
from .settlements import LetterTTL, settle


@dataclass(slots=True)
class Taken:
    """What a claim took; ``endings``: what became of the attempts of former holders. ``all``: there was no more."""

    worker_id: str
    rows: list[Due] = field(default_factory=list)
    endings: list[Settlement] = field(default_factory=list)
    all: bool = False

    @property
    def buried(self) -> list[Settlement]:
        """Jobs without an attempt left, or asked to stop: they are dead letters now."""
        return [ending for ending in self.endings if ending.state == states.FAILED]


def take(
    engine: Engine,
    scopes: Sequence[Scope],
    limit: int,
    worker_id: str,
    now: int,
    letter_ttl: LetterTTL,
    *,
    lease_us: int | None = None,
    resumed_at: int = 0,
    ahead: int = 0,
) -> Taken:
    """Lease up to ``limit`` due rows to ``worker_id``; to be called inside ``engine.transaction()``.

    ``ahead``: how many fresh ones directly behind them are leased too, without an attempt yet.
    """
    due = [row for scope in scopes for row in engine.due(scope, limit + ahead, now, resumed_at)]
    if len(scopes) > 1:
        due = sorted(due, key=lambda row: (-row.priority, row.visible_at, row.rowid))[: limit + ahead]
    return take_rows(engine, due, limit, worker_id, now, letter_ttl, lease_us=lease_us, ahead=ahead)


def take_rows(
    engine: Engine,
    due: Sequence[Due],
    limit: int,
    worker_id: str,
    now: int,
    letter_ttl: LetterTTL,
    *,
    lease_us: int | None = None,
    ahead: int = 0,
) -> Taken:
    """Lease due rows that were found in this transaction; see take."""
    rows, further = due[:limit], list(takewhile(lambda row: row.fresh and row.sound, due[limit:]))
    taken = Taken(worker_id, all=len(rows) + len(further) == len(due) < limit + ahead)
    endings = end_former(engine, rows, worker_id, now, letter_ttl)
    dead = {rowid for rowid, ending in endings.items() if ending.state == states.FAILED}
    taken.endings = list(endings.values())
    taken.rows = [row for row in rows if row.rowid not in dead]
    if taken.rows:
        engine.lease([row.rowid for row in taken.rows], worker_id, now, lease_us)
    if further:
        engine.lease([row.rowid for row in further], worker_id, now, lease_us, attempts=0)
        taken.rows += further
    return taken


def end_former(
    engine: Engine, rows: Sequence[Due], worker_id: str, now: int, letter_ttl: LetterTTL
) -> dict[int, Settlement]:
    """Settle the expired ones of due rows for their former holders, and the damaged ones; return what became of them.

    An expired row that is not as it was read, inside one transaction, has a value that no comparison finds.
    """
    endings = {}
    if expired := [row.rowid for row in rows if row.expired and row.sound]:
        endings = {rowid: end_lease(job, now, letter_ttl) for rowid, job in engine.read(expired).items()}
        lost = settle(engine, list(endings.values()), letter_ttl)
        endings = {rowid: ending for rowid, ending in endings.items() if ending.job.key not in lost}
    if damaged := [row.rowid for row in rows if not row.sound or (row.expired and row.rowid not in endings)]:
        engine.mend(damaged, worker_id)
        ended = {rowid: end_damaged(job, now, letter_ttl) for rowid, job in engine.read(damaged).items()}
        engine.settle(list(ended.values()))
        endings |= ended
    return endings


def end_lease(job: HeldJob, now: int, letter_ttl: LetterTTL) -> Settlement:
    """Return how an expired job goes on: due at once, or a dead letter when that was its last attempt."""
    if not job.begun:
        return released(job, now)
    failure = recorded(LeaseExpired, f"The lease expired, held by {job.worker_id}.")
    delay = None if exhausted(job) else 0
    return failed(job, history.LEASE_EXPIRED, failure, now, delay, letter_ttl(job.queue_name))


def end_damaged(job: HeldJob, now: int, letter_ttl: LetterTTL) -> Settlement:
    """Return the end of a job whose row somebody damaged: what it was is not known, so it is not run."""
    failure = recorded(DamagedJob, "The row had values that no job can have; they were replaced by the nearest ones.")
    return failed(job, history.FAILED, failure, now, None, letter_ttl(job.queue_name))


def collect(engine: Engine, taken: Taken) -> list[HeldJob]:
    """Return the jobs taken, in claim order; without any whose lease has already ended and gone to somebody else.

    A commit may take longer than a lease: what has ended is renewed first, so that nobody begins on an ended lease.
    """
    if not taken.rows:
        return []
    jobs = engine.read([row.rowid for row in taken.rows])
    collected = []
    for row in taken.rows:
        job = jobs.get(row.rowid)
        if job and job.claims == row.claims + 1 and job.worker_id == taken.worker_id:
            job.due_at = row.visible_at
            collected.append(job)
    now = engine.now()
    if ended := [job for job in collected if job.visible_at <= now]:
        with engine.transaction():
            now = engine.now()
            lost = engine.renew(ended, now)
        for job in ended:
            job.visible_at = now + job.lease_us
        collected = [job for job in collected if job.key not in lost]
    return collected
