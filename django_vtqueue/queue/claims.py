"""The claim: take what is due, after ending the leases that have expired.

It has two steps, so that the write lock is held as short as possible: ``take`` inside a transaction, ``collect`` after
its commit, when no other process may change the leased rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ..core import states
from ..core.grace import GracePeriod
from ..core.job import Due, Handle, HeldJob, Scope, Settlement
from ..core.shares import Shares
from ..engines import Engine
from ..engines.limits import RateState
from .ended_leases import end_leases
from .limits import AMONG, NO_LIMITS, Limits, has_own_key
from .overdue import bury_overdue
from .parking import judge
from .pauses import paused_queues, unpaused

NO_OVERFLOW: Mapping[str, tuple[int, int]] = {}
NO_GRACE = GracePeriod()  # holders get no time: for tests, run_pending, and lists of all that is held
SET_ASIDE_AT_ONCE = 500  # jobs that one claim parks, or moves
NO_RATES: Mapping[str, RateState] = {}
ENDED_AT_ONCE = 100  # leases that one claim ends: other writers wait meanwhile
OVERDUE_AT_ONCE = 100  # jobs that one claim buries

Waits = Callable[[str], bool]  # path of a task -> whether its jobs begin later than they are claimed


def none_waits(task_path: str) -> bool:
    """Return False: jobs begin when they are claimed."""
    return False


@dataclass(slots=True)
class Taken:
    """What a claim took; ``everything``: nothing more was due.

    ``endings``: the settlements of expired leases, and of jobs that have expired.
    """

    worker_id: str
    rows: list[Due] = field(default_factory=list)
    endings: list[Settlement] = field(default_factory=list)
    everything: bool = False

    @property
    def buried(self) -> list[Settlement]:
        """The endings that made dead letters: of jobs without an attempt left, asked to stop, or expired."""
        return [ending for ending in self.endings if ending.state == states.FAILED]


def take(
    engine: Engine,
    scopes: Sequence[Scope],
    limit: int,
    worker_id: str,
    now: int,
    *,
    lease_us: int | None = None,
    grace_period: GracePeriod = NO_GRACE,
    ahead: int = 0,
    waits: Waits = none_waits,
    overflow: Mapping[str, tuple[int, int]] = NO_OVERFLOW,
    limits: Limits = NO_LIMITS,
) -> Taken:
    """Lease up to ``limit`` due rows to ``worker_id``; to be called inside ``engine.transaction()``.

    First, jobs whose lease has ended become due at their place in the line, or dead letters, and due jobs that are
    overdue are buried. ``grace_period``: see core/grace.py.
    ``ahead``: so many fresh rows directly behind them are leased too, at the most. Their attempts are counted later,
    and so are the attempts of tasks for which ``waits`` returns True. ``overflow``: see Options.overflowing.
    """
    scopes, shared = unpaused(engine, scopes, now), bool(overflow)
    ended = [row for scope in scopes for row in engine.ended(scope, ENDED_AT_ONCE, now, grace_period, overflow=shared)]
    endings = end_leases(engine, ended, worker_id, now)
    scopes = limits.scoped(engine, limits.apart(scopes), now)
    due = find_due(engine, scopes, limit + ahead, now, limits.shares)
    if (
        again := [row for scope in scopes for row in engine.reappeared(scope, limit, now, grace_period)]
        if shared
        else []
    ):
        due = in_order([*due, *again])[: limit + ahead]
    taken = take_rows(
        engine,
        scopes,
        due,
        limit,
        worker_id,
        now,
        lease_us=lease_us,
        ahead=ahead,
        waits=waits,
        overflow=overflow,
        limits=limits,
    )
    taken.endings += endings
    taken.everything = taken.everything and len(ended) < ENDED_AT_ONCE
    return taken


def find_due(engine: Engine, scopes: Sequence[Scope], limit: int, now: int, shares: Shares | None = None) -> list[Due]:
    """Return the first ``limit`` due rows of all scopes, in claim order, or as ``shares`` has it."""
    if shares or any(scope.limited for scope in scopes):
        return find_apart(engine, scopes, limit, now, shares)
    due = [row for scope in scopes for row in engine.due(scope, limit, now)]
    return in_order(due)[:limit] if len(scopes) > 1 else due


def find_apart(engine: Engine, scopes: Sequence[Scope], limit: int, now: int, shares: Shares | None) -> list[Due]:
    """Return the first due rows of scopes of which some have one queue: no more of it than it has room for.

    With ``shares`` all have one. Of a queue with a limit no row is claimed ahead.
    """
    found: list[Due] = []
    left: dict[tuple[str, str], int] = {}
    for scope in scopes:
        if scope.queues == () or scope.starts == 0 or (scope.room == 0 and not scope.raw):
            continue
        if not (shares or scope.limited):
            found += engine.due(scope, limit, now)
            continue
        [name] = scope.queues or ("",)
        left |= {(name, "room"): _any(scope.room), (name, "starts"): _any(scope.starts)}
        rows = engine.due(scope, max(limit, AMONG) if scope.raw and scope.room is not None else limit, now)
        found += [row._replace(fresh=row.fresh and not scope.limited, queue_name=name) for row in rows]
    due: list[Due] = []
    for row in in_order(found):
        name = row.queue_name
        uses = [(name, "starts")] if has_own_key(row) else [(name, "room"), (name, "starts")]
        if name and not all(left[use] for use in uses):
            continue
        left.update((use, left[use] - 1) for use in uses if name)
        due.append(row)
    if shares:
        return shares.order({name: [row for row in due if row.queue_name == name] for name, _ in left}, limit)
    return due[:limit]


def _any(number: int | None) -> int:
    """Return a number of places; None: more than there are."""
    return -1 if number is None else number


def in_order(rows: Sequence[Due]) -> list[Due]:
    """Return rows in claim order."""
    return sorted(rows, key=lambda row: (-row.priority, row.due_at, row.handle))


def take_rows(
    engine: Engine,
    scopes: Sequence[Scope],
    due: Sequence[Due],
    limit: int,
    worker_id: str,
    now: int,
    *,
    lease_us: int | None = None,
    ahead: int = 0,
    waits: Waits = none_waits,
    overflow: Mapping[str, tuple[int, int]] = NO_OVERFLOW,
    limits: Limits = NO_LIMITS,
) -> Taken:
    """Lease due rows that were found in the same transaction; see take."""
    buried: list[Settlement] = []
    more_overdue = False
    if any(row.overdue(now) for row in due):
        again = [row for row in due if row.again]
        due, buried, more_overdue = look_behind(engine, scopes, limit + ahead, worker_id, now, limits.shares)
        due = in_order([*due, *again])[: limit + ahead] if again else due
    more_aside, rates = False, NO_RATES
    if any(row.keys for row in due):
        due, more_aside, rates = sifted(engine, limits, scopes, due, limit, ahead, now)
    rows, further = due[:limit], list(takewhile(lambda row: row.fresh and not row.keys, due[limit:]))
    later = [row.handle for row in rows if row.again or waits(row.task_path)]
    if at_once := [row.handle for row in rows if row.handle not in later]:
        engine.lease(at_once, worker_id, now, lease_us)
    if later := [*later, *(row.handle for row in further)]:
        engine.lease(later, worker_id, now, lease_us, attempts=0)
    if limits.queues:
        rates = {**rates, **limits.started(scopes, rows, now)}
    if rates:
        engine.set_rates(rates)
    if limits.shares:
        limits.shares.served([row.queue_name for row in (*rows, *further) if row.queue_name])
    if overflow and (shared := [row.handle for row in (*rows, *further) if not waits(row.task_path)]):
        engine.share(shared, now, overflow)
    took_all, found_all = (
        len(rows) + len(further) == len(due),
        len(due) < limit + ahead and not (more_overdue or more_aside),
    )
    return Taken(worker_id, [*rows, *further], buried, took_all and found_all)


def sifted(
    engine: Engine, limits: Limits, scopes: Sequence[Scope], due: Sequence[Due], limit: int, ahead: int, now: int
) -> tuple[Sequence[Due], bool, Mapping[str, RateState]]:
    """Park or move what the limits do not allow of the first ``limit`` due rows, and look behind it.

    Return the rows that may be leased, whether there may be more, and the states of their rates after that.
    """
    aside, again = 0, [row for row in due if row.again]
    granted: set[Handle] = set()
    while True:
        verdict = judge(engine, limits, due, limit, now, granted)
        put_aside = verdict.put_aside(engine)
        aside += put_aside
        if not put_aside or aside >= SET_ASIDE_AT_ONCE:
            return verdict.allowed[: limit + ahead], bool(aside), verdict.rates
        granted = {row.handle for row in verdict.allowed[:limit]}
        found = find_due(engine, scopes, limit + ahead + SET_ASIDE_AT_ONCE, now, limits.shares)
        due = [row for row in found if not row.overdue(now)]
        due = in_order([*due, *again]) if again else due


def look_behind(
    engine: Engine, scopes: Sequence[Scope], limit: int, worker_id: str, now: int, shares: Shares | None = None
) -> tuple[list[Due], list[Settlement], bool]:
    """Bury some of the first due rows that have expired; return up to ``limit`` others, and the burials.

    Also return whether more may have expired.
    """
    found = find_due(engine, scopes, limit + OVERDUE_AT_ONCE, now, shares)
    overdue = [row for row in found if row.overdue(now)]
    buried = bury_overdue(engine, overdue[:OVERDUE_AT_ONCE], worker_id, now)
    more = len(found) == limit + OVERDUE_AT_ONCE or len(buried) < len(overdue)
    return [row for row in found if not row.overdue(now)][:limit], buried, more


def start_attempt(engine: Engine, job: HeldJob, now: int) -> bool:
    """Count the attempt of a job that has waited for its turn since its claim; return whether it may begin.

    It may not if it was asked to stop or has expired, or its queue was paused. To be called inside
    ``engine.transaction()``.
    """
    stopped = job.queue_name in paused_queues(engine, now) or engine.stop_requests([job])
    return not stopped and engine.start_attempts([job], now) == 1


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
