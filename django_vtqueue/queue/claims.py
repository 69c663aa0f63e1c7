"""The claim: take what is due, after ending the leases that have expired.

It has two steps, so that the write lock is held as short as possible: ``take`` inside a transaction, ``collect`` after
its commit, when no other process may change the leased rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ..core import history, states
from ..core.expiry import Patience
from ..core.failures import recorded
from ..core.job import Due, Expired, Handle, HeldJob, Key, Scope, Settlement, failed, interrupted, released, stop
from ..engines import Engine
from ..exceptions import DamagedJob, LeaseExpired

# -- settling ----------------------------------------------------------------------------------------------------------
#
# A job that was asked to stop is not given back: it is buried.

LetterTTL = Callable[[str], int | None]  # queue name -> microseconds for which its dead letters are kept


def settle(engine: Engine, settlements: Sequence[Settlement], letter_ttl: LetterTTL) -> set[Key]:
    """Carry out settlements inside a transaction, each only for its holder; return the keys of the lost jobs.

    A settlement that would give back a job which was asked to stop becomes the end of that job. The progress of a job
    is written before its settlement.
    """
    if said := [(s.job, s.job.progress) for s in settlements if s.job.progress and s.job.progress != s.job.stored]:
        engine.note_progress(said)
    lost = engine.settle(settlements)
    if refused := [s for s in settlements if s.job.key in lost and s.state == states.READY]:
        asked = engine.asked([s.job for s in refused])
        if stopped := [s for s in refused if s.job.key in asked]:
            for settlement in stopped:
                job = settlement.job
                stop(settlement, asked[job.key], engine.now(), letter_ttl(job.queue_name))
            lost = lost - asked.keys() | engine.settle(stopped)
    return lost


NONE = Patience()  # for a test, or where no holder can be alive
EXPIRED_AT_ONCE = 100  # leases that one claim ends: other writers wait meanwhile

Waits = Callable[[str], bool]  # path of a task -> whether its jobs begin later than they are claimed


def none_waits(task_path: str) -> bool:
    """Return False: jobs begin when they are claimed."""
    return False


@dataclass(slots=True)
class Taken:
    """What a claim took; ``endings``: the settlements of expired leases; ``everything``: nothing more was due."""

    worker_id: str
    rows: list[Due] = field(default_factory=list)
    endings: list[Settlement] = field(default_factory=list)
    everything: bool = False

    @property
    def buried(self) -> list[Settlement]:
        """The endings that made dead letters: of jobs without an attempt left, or asked to stop."""
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
    patience: Patience = NONE,
    ahead: int = 0,
    waits: Waits = none_waits,
) -> Taken:
    """Lease up to ``limit`` due rows to ``worker_id``; to be called inside ``engine.transaction()``.

    Before that, expired jobs become due again, at their place in the line; ``patience``: see core/expiry.py.
    ``ahead``: up to so many fresh rows directly behind them are leased too, and their attempts counted later; so are
    the attempts of tasks for which ``waits`` returns True.
    """
    scopes = engine.unpaused(scopes, now)
    expired = [row for scope in scopes for row in engine.expired(scope, EXPIRED_AT_ONCE, now, patience)]
    endings = end_leases(engine, expired, worker_id, now, letter_ttl)
    due = [row for scope in scopes for row in engine.due(scope, limit + ahead, now)]
    if len(scopes) > 1:
        due = sorted(due, key=lambda row: (-row.priority, row.due_at, row.handle))[: limit + ahead]
    taken = take_rows(engine, due, limit, worker_id, now, letter_ttl, lease_us=lease_us, ahead=ahead, waits=waits)
    taken.endings += endings
    taken.everything = taken.everything and len(expired) < EXPIRED_AT_ONCE
    return taken


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
    waits: Waits = none_waits,
) -> Taken:
    """Lease due rows that were found in the same transaction; see take."""
    rows, further = due[:limit], list(takewhile(lambda row: row.fresh, due[limit:]))
    later = [row.handle for row in rows if waits(row.task_path)]
    if at_once := [row.handle for row in rows if row.handle not in later]:
        engine.lease(at_once, worker_id, now, lease_us)
    if later := [*later, *(row.handle for row in further)]:
        engine.lease(later, worker_id, now, lease_us, attempts=0)
    return Taken(worker_id, [*rows, *further], everything=len(rows) + len(further) == len(due) < limit + ahead)


def begin_waiting(engine: Engine, job: HeldJob, now: int) -> bool:
    """Count the attempt of a job that has waited for its turn since its claim; return whether it may begin.

    It may not if it was asked to stop, or its queue was paused. To be called inside ``engine.transaction()``.
    """
    return job.queue_name not in engine.paused(now) and not engine.asked([job]) and engine.begin([job], now) == 1


def end_leases(
    engine: Engine, expired: Sequence[Expired], worker_id: str, now: int, letter_ttl: LetterTTL
) -> list[Settlement]:
    """Settle expired rows in the name of their holders; return the settlements: due again, or dead letters."""
    if given_back := [row.handle for row in expired if not row.held]:
        engine.show(given_back)
    held = engine.read([row.handle for row in expired if row.held])
    endings = {handle: end_lease(job, now, letter_ttl) for handle, job in held.items()}
    lost = settle(engine, list(endings.values()), letter_ttl) if endings else set()
    unreadable = [handle for handle, ending in endings.items() if ending.job.key in lost]
    ended = [ending for ending in endings.values() if ending.job.key not in lost]
    return ended + bury_unreadable(engine, unreadable, worker_id, now, letter_ttl) if unreadable else ended


def end_lease(job: HeldJob, now: int, letter_ttl: LetterTTL) -> Settlement:
    """Return the settlement of an expired job: due at its place in the line, or dead after its last attempt."""
    if not job.begun:
        return released(job)
    failure = recorded(LeaseExpired, f"The lease expired, held by {job.worker_id}.")
    return interrupted(job, history.LEASE_EXPIRED, failure, now, letter_ttl(job.queue_name))


def bury_unreadable(
    engine: Engine, handles: Sequence[Handle], worker_id: str, now: int, letter_ttl: LetterTTL
) -> list[Settlement]:
    """Make dead letters of rows that could not be settled as they were read, because a text in them is not UTF-8, say.

    They are leased once more, so that they have a holder whose name can be read.
    """
    engine.lease(handles, worker_id, now, None, attempts=0)
    failure = recorded(DamagedJob, "The row cannot be read as it is stored.")
    jobs = engine.read(handles).values()
    endings = [failed(job, history.FAILED, failure, now, None, letter_ttl(job.queue_name)) for job in jobs]
    lost = engine.settle(endings)
    return [ending for ending in endings if ending.job.key not in lost]


def collect(engine: Engine, taken: Taken) -> list[HeldJob]:
    """Return the jobs that were taken, in claim order, without those that another claim has taken since.

    A commit may take longer than a lease. Leases that have ended are renewed first, so that no job begins on one.
    """
    if not taken.rows:
        return []
    jobs = engine.read([row.handle for row in taken.rows])
    collected = []
    for row in taken.rows:
        job = jobs.get(row.handle)
        if job and job.claims == row.claims + 1 and job.worker_id == taken.worker_id:
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
