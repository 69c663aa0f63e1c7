"""The claim: take what is due, after the leases that have ended are settled.

It has three steps:

- ``find`` reads which rows may be taken.
- ``take`` leases them.
- ``collect`` returns the jobs, after the commit. Their rows are read only now if the lease has not returned them.

A worker finds and takes in one transaction, for it has looked already whether something is due (worker/next_claim.py).
``Queue.claim`` finds without the write lock. If there is something to take, it finds again inside the transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ..core import states
from ..core.grace import GracePeriod
from ..core.job import Due, Handle, HeldJob, Scope
from ..core.settlement import Settlement
from ..engines import Engine
from ..engines.contract_parts import RateState
from .admission import Admission, Decision
from .claim_order import enough, find_due, in_order
from .ended_leases import bury_overdue, end_leases
from .limits import NO_LIMITS, Limits
from .pauses import paused_queues, unpaused
from .quotas import NO_QUEUES, Quota

NO_GRACE = GracePeriod()  # holders get no time: for tests, run_pending, and lists of all that is held
SET_ASIDE_BATCH = 500  # jobs that one claim parks, or moves
ENDED_BATCH = 100  # leases that one claim ends: other writers wait meanwhile
OVERDUE_BATCH = 100  # jobs that one claim buries
WAKING_BATCH = 2000  # jobs that one claim puts into the line

BeginsLater = Callable[[str], bool]  # path of a task -> whether its jobs begin later than they are claimed


def none_later(task_path: str) -> bool:
    """Return False: jobs begin when they are claimed."""
    return False


@dataclass(slots=True)
class Found:
    """What a claim may take: up to ``limit`` due rows, and directly behind them up to ``ahead`` fresh ones.

    ``scopes``: those of the claim without paused queues; ``ended``: rows whose lease has ended; ``woken``: how many
    rows were put into the line, or that some are to be; ``copies_due``: jobs of which one more copy may run;
    ``quotas``: of the limited queues, once one of their rows was found. ``admission``: of ``due``, if limits matter
    there.
    """

    limit: int
    ahead: int
    scopes: Sequence[Scope]
    ended: Sequence[Handle]
    copies_due: Sequence[Due]
    woken: int = 0
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    due: Sequence[Due] = ()
    admission: Admission | None = None

    @property
    def places(self) -> int:
        """How many rows may be leased."""
        return self.limit + self.ahead

    def may_go_ahead(self, row: Due) -> bool:
        """Return whether a row may be leased before it begins: not if it counts for a limit as soon as it is leased."""
        return bool(row.fresh) and not row.may_be_limited and row.queue_name not in self.quotas

    def with_copies_due(self, due: Sequence[Due]) -> Sequence[Due]:
        """Return due rows in claim order, with those of which one more copy may run."""
        return in_order([*due, *self.copies_due]) if self.copies_due else due


@dataclass(slots=True)
class Taken:
    """What a claim took; ``everything``: nothing more was due.

    ``endings``: the settlements of leases that have ended, and of jobs that are overdue; ``to_load``: rows that only
    load their task; ``jobs``: the rows as they were leased, if they need not be read any more.
    """

    worker_id: str
    rows: list[Due] = field(default_factory=list)
    endings: list[Settlement] = field(default_factory=list)
    everything: bool = False
    to_load: set[Handle] = field(default_factory=set)
    jobs: dict[Handle, HeldJob] = field(default_factory=dict)

    @property
    def buried(self) -> list[Settlement]:
        """The endings that made dead letters: of jobs without an attempt left, cancelled, or overdue."""
        return [ending for ending in self.endings if ending.state == states.FAILED]


@dataclass(slots=True, eq=False)
class Claims:
    """The claims of one worker, or of one queue of payloads.

    ``overflow``: see Options.overflowing. ``lease_us``: of each lease (None: what its job says). The attempts of tasks
    for which ``begins_later`` returns True (of a worker: transactional ones, which wait for their turn) are counted
    when they begin.
    """

    engine: Engine
    limits: Limits = NO_LIMITS
    overflow: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lease_us: int | None = None
    begins_later: BeginsLater = none_later
    _was_at_limit: bool = field(default=False, init=False)  # a queue with a limit, when last looked at

    def find(
        self,
        scopes: Sequence[Scope],
        limit: int,
        now: int,
        *,
        grace_period: GracePeriod = NO_GRACE,
        ahead: int = 0,
        only_due: bool = False,
        locked: bool = True,
    ) -> Found:
        """Return what may be taken now; ``grace_period``: see core/grace.py.

        Jobs whose time has come are put into the line first; without the right to write (``locked``) it is only noted
        that there are some. ``only_due``: do not look for leases that have ended; the caller looks for them a moment
        later.
        """
        engine, with_copies = self.engine, bool(self.overflow)
        scopes = unpaused(engine, scopes, now)
        ended: list[Handle] = []
        copies_due: list[Due] = []
        for scope in () if only_due else scopes:
            ended += engine.ended(scope, ENDED_BATCH, now, grace_period, overflow=with_copies)
            if with_copies:
                copies_due += engine.reappeared(scope, limit, now, grace_period)
        wake = engine.wake if locked else engine.to_wake
        woken = max((wake(scope, now, WAKING_BATCH) for scope in scopes), default=0)
        found = Found(limit, ahead, scopes, ended, copies_due, woken)
        if not ended:  # else take finds what is due, once these leases are ended: then their jobs are due, too
            self._find_due(found, found.places, now)
        return found

    def _find_due(self, found: Found, limit: int, now: int) -> None:
        """Find the first due rows, no more of a limited queue than its quota allows, and what is known of the limits.

        The rows are found first; then all that must be known of their limits is asked for at once. If a quota does
        not allow all of the rows, they are found a second time, with the quotas known. If a queue was at its limit the
        last time, the quotas are asked for first: hardly any of its rows may be taken.
        """
        engine, limits = self.engine, self.limits
        queues = NO_QUEUES if found.quotas else limits.limited(found.scopes)
        if queues.names:
            engine.lock_queues(queues.most, queues.rates)
            if self._was_at_limit:
                found.quotas = limits.quotas(engine, found.scopes, now)
        found.due, found.admission = find_due(engine, limits, found.scopes, found.quotas, limit, now), None
        if queues.names and not found.quotas and any(row.queue_name in queues.names for row in found.due):
            found.admission = Admission(engine, limits, found.due, queues)
            found.quotas = found.admission.quotas(now)
            if not enough(found.quotas, found.due):
                self._find_due(found, limit, now)
        elif any(row.may_be_limited for row in found.due):
            found.admission = Admission(engine, limits, found.due)
        if found.quotas:
            self._was_at_limit = not all(quota.allows(1) for quota in found.quotas.values())

    def take(self, found: Found, worker_id: str, now: int) -> Taken:
        """Lease rows to ``worker_id``; inside ``engine.transaction()``, with nothing changed since ``find``.

        First, jobs whose lease has ended become due at their place in the line, or dead letters, and due jobs that are
        overdue are buried.
        """
        taken = Taken(worker_id)
        if found.ended:
            taken.endings += end_leases(self.engine, found.ended, worker_id, now)
            self._find_due(found, found.places, now)
        more = len(found.ended) >= ENDED_BATCH or found.woken >= WAKING_BATCH
        due = found.with_copies_due(found.due)[: found.places]
        if any(row.overdue(now) for row in due):
            due, buried, more_overdue = self._bury_overdue(found, worker_id, now)
            taken.endings += buried
            more |= more_overdue
        rates: Mapping[str, RateState] = {}
        if found.admission:
            decision, more_aside = self._apply_limits(found, due, now)
            due, taken.to_load, rates = decision.allowed[: found.places], decision.to_load, decision.rates
            more |= more_aside
        begin_now = due[: found.limit]
        taken.rows = [*begin_now, *takewhile(found.may_go_ahead, due[found.limit :])]
        taken.jobs = self._lease(taken.rows, begin_now, worker_id, now)
        starts = [row for row in begin_now if row.handle not in taken.to_load] if taken.to_load else begin_now
        self._note_starts(found, taken.rows, starts, rates, now)
        taken.everything = len(taken.rows) == len(due) < found.places and not more
        return taken

    def claim(
        self,
        scopes: Sequence[Scope],
        limit: int,
        worker_id: str,
        now: int,
        *,
        grace_period: GracePeriod = NO_GRACE,
        ahead: int = 0,
        only_due: bool = False,
    ) -> Taken:
        """Find and take, inside ``engine.transaction()``."""
        found = self.find(scopes, limit, now, grace_period=grace_period, ahead=ahead, only_due=only_due)
        return self.take(found, worker_id, now)

    def _lease(self, rows: Sequence[Due], begin_now: Sequence[Due], worker_id: str, now: int) -> dict[Handle, HeldJob]:
        """Lease rows, and return them as Engine.lease does; the attempts of those ``begin_now`` are counted now."""
        jobs: dict[Handle, HeldJob] = {}
        if begin := [row.handle for row in begin_now if not (row.one_more_copy or self.begins_later(row.task_path))]:
            jobs |= self.engine.lease(begin, worker_id, now, self.lease_us)
        if len(begin) < len(rows):
            later = [row.handle for row in rows if row.handle not in {*begin}]
            jobs |= self.engine.lease(later, worker_id, now, self.lease_us, attempts=0)
        if self.overflow and (with_copies := [row.handle for row in rows if not self.begins_later(row.task_path)]):
            self.engine.write_copies(with_copies, now, self.overflow)
            return {}
        return jobs

    def _note_starts(
        self, found: Found, rows: Sequence[Due], starts: Sequence[Due], rates: Mapping[str, RateState], now: int
    ) -> None:
        """Note the starts of leased rows in the rates, and in the shares of the queues."""
        if found.quotas:
            rates = {**rates, **self.limits.started(found.quotas, starts, now)}
        if rates:
            self.engine.set_rates(rates)
        if self.limits.shares:
            self.limits.shares.note_served([row.queue_name for row in rows if row.queue_name])

    def _bury_overdue(self, found: Found, worker_id: str, now: int) -> tuple[Sequence[Due], list[Settlement], bool]:
        """Bury overdue rows of the first due ones; return the others, the burials, and whether more may be overdue."""
        limit = found.places + OVERDUE_BATCH
        self._find_due(found, limit, now)
        overdue = [row for row in found.due if row.overdue(now)]
        buried = bury_overdue(self.engine, overdue[:OVERDUE_BATCH], worker_id, now)
        # Of a limited queue no row was found beyond the quota, which overdue rows have used up, too.
        more = len(found.due) == limit or len(buried) < len(overdue) or bool(found.quotas)
        others = [row for row in found.due if not row.overdue(now)]
        return found.with_copies_due(others)[: found.places], buried, more

    def _apply_limits(self, found: Found, due: Sequence[Due], now: int) -> tuple[Decision, bool]:
        """Park or move what the limits do not allow of the first due rows, and look behind it.

        Return the decision about the rows that are first then, and whether there may be more.
        """
        aside = 0
        granted: set[Handle] = set()
        while True:
            admission = found.admission or Admission(self.engine, self.limits, due)
            decision = admission.decide(due, found.limit, now, granted)
            put_aside = decision.put_aside(self.engine)
            aside += put_aside
            if not put_aside or aside >= SET_ASIDE_BATCH:
                return decision, bool(aside)
            granted = {row.handle for row in decision.allowed[: found.limit]} - decision.to_load
            self._find_due(found, found.places + SET_ASIDE_BATCH, now)
            due = found.with_copies_due([row for row in found.due if not row.overdue(now)])


def start_attempt(engine: Engine, job: HeldJob, now: int) -> bool:
    """Count the attempt of a job that has waited for its turn since its claim; return whether it may begin.

    It may not if it was cancelled or is overdue, or its queue was paused. To be called inside
    ``engine.transaction()``.
    """
    if job.queue_name in paused_queues(engine, now) or engine.cancel_requests([job]):
        return False
    return engine.start_attempts([job], now) == 1


def collect(engine: Engine, taken: Taken) -> list[HeldJob]:
    """Return the jobs that were taken, in claim order, without those that another claim has taken since.

    A commit may take longer than a lease. Leases that have ended are renewed first, so that no job begins on one.
    """
    if not taken.rows:
        return []
    jobs = taken.jobs or engine.read([row.handle for row in taken.rows])
    collected = []
    for row in taken.rows:
        job = jobs.get(row.handle)
        if job and job.claims == row.claims + 1 and job.worker_id == taken.worker_id:
            if row.handle in taken.to_load:
                job.to_load, job.moved_from = True, row.moved_from
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
