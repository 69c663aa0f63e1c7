"""The transactions of a turn: what has finished is settled, what has begun is counted, and what is due is claimed.

Mostly it is one. It is two where one would hold the write lock for too long (``Pacing.apart``). After a wait in vain
for a lock of some rows (row_locks.py) each thing that may wait for a lock of its own has one.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from ..core.job import ClaimKey, HeldJob, Scope
from ..execution.outcomes import Outcome
from ..queue.claims import Claims, Taken, start_attempt
from ..queue.settling import settle, settled_before
from .heartbeat import Heartbeat
from .options import overflowing
from .outage import Outage
from .pacing import Pacing
from .row_locks import Ties
from .work import Work

ENDED_LEASES = "ended leases"  # the look for them: a step that RowLocks may put off


class Exchange:
    """Gives the database what has ended, and takes what is due.

    ``unsure``: the last transaction may or may not have been committed.
    """

    def __init__(self, work: Work, heartbeat: Heartbeat, scopes: Sequence[Scope], outage: Outage) -> None:
        self.work, self.heartbeat, self.scopes, self.outage = work, heartbeat, scopes, outage
        self.engine, self.leases, self.locks = work.engine, work.leases, work.locks
        overflow = overflowing(work.backend, scopes)
        self.claims = Claims(self.engine, work.limits, overflow, begins_later=work.transactional.is_transactional)
        self.pacing = Pacing()
        self.unsure = False

    def take(self, outcomes: Sequence[Outcome], begun: Sequence[HeldJob], free: int, ahead: int) -> None:
        """Settle, count what has begun, start the transactional job whose turn it is, and claim.

        ``free``, ``ahead``: into so many slots, and so many jobs to be run next.
        """
        if self.locks.apart:
            self.apart(outcomes, begun, free, ahead)
            return
        if (outcomes or begun) and (free or ahead) and self.pacing.apart:
            self.together(outcomes, begun, 0, 0)
            outcomes, begun = [], []
        self.together(outcomes, begun, free, ahead)

    def together(self, outcomes: Sequence[Outcome], begun: Sequence[HeldJob], free: int, ahead: int) -> None:
        """Do all of it in one transaction; after its commit start jobs and announce results.

        Where an error leaves open whether it was committed, the next turn releases what was claimed unknowingly.
        """
        lost: set[ClaimKey] = set()
        taken: Taken | None = None
        starting, unsure_before = self.work.starting, self.unsure
        self.unsure = True
        try:
            with self.engine.transaction():
                if self.outage.lasts():
                    self.engine.await_table()
                self.leases.gaps.locked(self.outage.lasts())
                if outcomes:
                    lost = self.settle(outcomes)
                if begun:
                    self.engine.start_attempts(begun, self.engine.now())
                starts = bool(starting and start_attempt(self.engine, starting, self.engine.now()))
                if free or ahead:
                    taken = self.claim(free, ahead)
        except Exception as error:
            self.unsure = unsure_before or not self.engine.waited_in_vain(error)
            raise
        self.pacing.took(self.engine.last_hold)
        self.work.in_flight.count(begun)
        self.work.settled(outcomes, lost)
        self.work.start(starts)
        if taken:
            self.work.claimed(taken, free)
        self.unsure = unsure_before

    def settle(self, outcomes: Sequence[Outcome]) -> set[ClaimKey]:
        """Settle jobs; return the keys of the lost ones, without those that the last commit has settled unanswered."""
        settlements = [outcome.settlement for outcome in outcomes]
        lost = settle(self.engine, settlements)
        if lost and self.outage.gone:
            missing = [s for s in settlements if s.job.key in lost]
            lost -= {s.job.key for s in missing if settled_before(s, self.engine.find(s.job.id))}
        return lost

    def claim(self, free: int, ahead: int) -> Taken:
        """Claim what is run at once and what is run next."""
        now = self.engine.now()
        self.leases.look(now)
        worker_id, grace_period = self.heartbeat.worker.worker_id, self.leases.gaps.grace_period()
        only_due = self.work.next_due.at_once or self.locks.is_off(ENDED_LEASES)
        waits = not self.locks.apart
        return self.claims.claim(
            self.scopes, free, worker_id, now,
            grace_period=grace_period, ahead=ahead, only_due=only_due, waits=waits,
        )  # fmt: skip

    # After a wait in vain

    def apart(self, outcomes: Sequence[Outcome], begun: Sequence[HeldJob], free: int, ahead: int) -> None:
        """Do it with a transaction for each thing that may wait for a lock of its own.

        One wait in vain for what jobs are tied to is enough for a turn, or as much time: leases are renewed between
        turns.
        """
        locks, starting = self.locks, self.work.starting
        until = time.monotonic() + locks.patience
        tied: defaultdict[Ties, list[Outcome]] = defaultdict(list)
        for outcome in outcomes:
            tied[locks.ties(outcome.job)].append(outcome)
        if starting and not self.start_apart(starting):
            return
        untied = [job for job in begun if locks.leases.renews(job)]  # the end of another writes that it has begun
        if untied:
            self.together([], untied, 0, 0)
        for ties, some in tied.items():
            if time.monotonic() > until or not locks.passes(ties, partial(self.together, some, [], 0, 0)):
                break
        if free or ahead:
            self.claim_apart(free, ahead)

    def start_apart(self, starting: HeldJob) -> bool:
        """Start the transactional job whose turn it is; return whether no lock was in the way."""
        try:
            self.together([], [], 0, 0)
            return True
        except Exception as error:
            if not self.locks.in_vain(error):
                raise
        if not self.leases.renews(starting):  # else its renewal finds it locked
            self.locks.put_off(self.locks.ties(starting))
        return False

    def claim_apart(self, free: int, ahead: int) -> None:
        """Claim; if that waits in vain, then next time without a look for leases that have ended."""
        try:
            self.together([], [], free, ahead)
        except Exception as error:
            if not self.locks.in_vain(error):
                raise
            self.locks.put_off(ENDED_LEASES)
