"""A turn of the control loop: it settles finished jobs and claims due ones, in one transaction.

It is two transactions where one would hold the lock for too long (``Pacing.apart``). Renewals go before it, in a
transaction of their own. After the commit jobs are started and results announced.
"""

import logging
import time
from collections.abc import Sequence

from ..core.clock import NEVER, microseconds
from ..core.job import HeldJob, Scope
from ..engines import Trouble
from ..exceptions import LogDeleted
from ..execution.outcomes import Outcome
from ..queue.claims import Claims, Taken, start_attempt
from ..queue.workers import QUIET, STOP
from .heartbeat import Heartbeat
from .log import job_name
from .options import overflowing
from .outage import Outage
from .pacing import Pacing
from .periodic import PeriodicWork
from .work import BATCH, Work

logger = logging.getLogger("django_vtqueue")

LOOK_AT_ANNOUNCER = 0.05  # seconds between two looks whether receivers of signals have caught up


class Turns:
    """The turns of one worker, and what it does between them."""

    def __init__(self, work: Work, heartbeat: Heartbeat, scopes: Sequence[Scope]) -> None:
        self.work, self.heartbeat, self.scopes = work, heartbeat, scopes
        self.engine, self.backend = work.engine, work.backend
        self.leases, self.next_claim = work.leases, work.next_claim
        overflow = overflowing(self.backend, scopes)
        self.claims = Claims(self.engine, work.limits, overflow, begins_later=work.transactional.is_transactional)
        self.pacing = Pacing()
        self.periodic = PeriodicWork(self.engine, heartbeat, work)
        self.outage = Outage(self.engine)
        self._stopping = False
        self._unsure = False  # the last turn may or may not have been committed

    def stop(self) -> None:
        """Claim nothing more, for good; the jobs that can go on elsewhere are told now."""
        self._stopping = True
        self.work.in_flight.note_stop()

    @property
    def stopping(self) -> bool:
        """Whether nothing more is claimed, for good."""
        return self._stopping or self.periodic.foreign

    @property
    def quiet(self) -> bool:
        """Whether nothing more is to be claimed, for now: people want it, or the clock of this host is wrong."""
        # STOP as well: this is asked amid a turn, and the loop obeys after the turn (Worker.obey).
        return self.heartbeat.asked_to in (QUIET, STOP) or self.heartbeat.clock_check.off

    def try_turn(self) -> None:
        """Take a turn, then maintain the database; after an error the worker waits and goes on."""
        try:
            self.turn()
            claiming = not (self.stopping or self.quiet)
            self.periodic.maintenance.do_what_is_due(contended=self.pacing.contended, claiming=claiming)
            self.leases.gaps.note_wait(self.outage.seconds())
            self.outage.note_success()
        except Exception as error:
            self.recover(error)

    def turn(self) -> None:
        """Renew what is held, settle what has finished, claim what is due, start jobs and announce results."""
        self.before_work()
        work = self.work
        work.prefetch.measure(work.pool.slots)
        leaving = self.stopping or self.quiet
        if leaving or work.out_of_step or work.prefetch.stale():
            work.release_ahead(everything=leaving or work.out_of_step)
        if leaving:
            work.in_flight.note_stop()
        # After a lost connection one only: the server may have cut it because all of them took too long to send.
        uncounted, outcomes = work.in_flight.begun_uncounted(), work.outcomes[: 1 if self.outage.gone else BATCH]
        free, ahead = self.capacity()
        if work.take_next_transactional():
            free = max(free - 1, 0)  # a transactional job takes this slot
        if not ((free or ahead) and self.next_claim.may_find(opened=bool(outcomes))):
            free = ahead = 0
        if not (outcomes or uncounted or free or ahead or work.next_transactional):
            return
        if (outcomes or uncounted) and (free or ahead) and self.pacing.apart:  # two transactions instead of one
            self.settle_and_claim(outcomes, uncounted, 0, 0)
            outcomes, uncounted = [], []
        self.settle_and_claim(outcomes, uncounted, free, ahead)

    def settle_and_claim(
        self, outcomes: Sequence[Outcome], uncounted: Sequence[HeldJob], free: int, ahead: int
    ) -> None:
        """Settle, count attempts that have begun, claim into ``free`` slots and ``ahead`` of them: in one transaction.

        After its commit start jobs and announce results. Where an error leaves open whether it was committed, the next
        turn releases what was claimed unknowingly.
        """
        taken: Taken | None = None
        transactional = self.work.next_transactional
        self._unsure = True
        with self.engine.transaction():
            self.leases.gaps.note_lock(self.outage.seconds())
            lost = self.work.settle(outcomes, in_doubt=self.outage.gone) if outcomes else set()
            if uncounted:
                self.engine.start_attempts(uncounted, self.engine.now())
            may_begin = bool(transactional and start_attempt(self.engine, transactional, self.engine.now()))
            if free or ahead:
                taken = self.claim(free, ahead)
            self.leases.renew_late()
        with self.work.keeping_step():
            self.pacing.note_hold(self.engine.last_hold)
            self.work.in_flight.note_counted(uncounted)
            self.work.after_commit(outcomes, lost)
            self.work.run_transactional(may_begin)
            if taken:
                self.work.start_claimed(taken, free)
        self._unsure = False

    def before_work(self) -> None:
        """Renew what is held, end what has run for too long, and do what is due once a second."""
        if self.outage.gone:
            self.periodic.look()  # it fails as long as the database is gone, which a turn without work would not
        elif self.outage.seconds():
            self.periodic.check_replaced()
        self.leases.notice_gap(self.engine.now())
        hung = self.work.end_over_time()
        if hung and not self.stopping:
            logger.warning("%s does not end; this worker finishes its other jobs and leaves", job_name(hung))
            self.stop()
        self.leases.renew()
        self.periodic.do_what_is_due()
        if self._unsure or (self.work.out_of_step and self.work.back_in_step()):
            self._unsure = True
            self.leases.release_unknown()
            self._unsure = False

    def capacity(self) -> tuple[int, int]:
        """Return how many jobs may be claimed now to be run at once, and how many ahead of that; see Work.capacity."""
        waits = self.stopping or self.quiet or self.work.out_of_step or self.work.pool.announces_late()
        return (0, 0) if waits else self.work.capacity()

    def claim(self, free: int, ahead: int) -> Taken:
        """Claim, inside the turn's transaction, what is run at once and what is run next."""
        now = self.engine.now()
        self.leases.notice_gap(now)
        worker_id, only_due = self.leases.worker_id, self.next_claim.without_look
        grace = self.leases.gaps.grace_period()
        return self.claims.claim(self.scopes, free, worker_id, now, grace_period=grace, ahead=ahead, only_due=only_due)

    def recover(self, error: Exception) -> None:
        """Go on after an error: wait if the database has a passing trouble, else settle the outcomes one by one.

        Where the process is the worker's own, LogDeleted has ended it; in a caller's the worker ends.
        """
        if isinstance(error, LogDeleted):
            raise error
        trouble = self.engine.trouble(error)
        if trouble is Trouble.BUSY:
            self.pacing.note_busy()
        if trouble in (None, Trouble.MEMORY) and self.work.outcomes:
            if trouble is None:
                logger.warning("a turn failed (%r); its jobs are settled one by one", error)
            try:
                self.work.settle_one_by_one()
                return
            except Exception as again:
                error = again
        leases = self.leases
        lease = leases.shortest_lease(NEVER)
        self.outage.note_failure(error, self.pacing.retry_factor, left=leases.left(), lease=lease)

    # Between turns

    def next_at(self) -> float:
        """Return when the next turn is due (monotonic), if nothing comes up before that."""
        if self.outage.waiting():
            return self.outage.retry_at
        if self.work.outcomes:
            return 0.0
        at = min(self.periodic.next_at(), self.leases.renew_at, self.work.next_at())
        if self.work.pool.announces_late():
            return min(at, time.monotonic() + LOOK_AT_ANNOUNCER)
        return min(at, time.monotonic() + self.next_claim.seconds_to_sleep()) if any(self.capacity()) else at

    def look_at(self) -> float:
        """Return when to look at the database next (monotonic): not in trouble, nor as long as no slot is free."""
        return NEVER if self.outage.waiting() or not any(self.capacity()) else self.periodic.look_at

    def look(self) -> bool:
        """If it is time to, look whether the database has changed; return whether a turn is to be taken."""
        if self.outage.waiting() or time.monotonic() < self.periodic.look_at:
            return False
        try:
            return self.periodic.look()
        except Exception as error:
            self.recover(error)
            return True

    def wait_for_more(self) -> None:
        """Wait for a moment, where one turn for several outcomes is better than one for each."""
        self.work.prefetch.let_threads_catch_up(self.work.pool.undispatched)
        self.pacing.leave_lock_to_others()

    def drained(self, seconds: float) -> bool:
        """Return whether nothing is due, nor will be within so many seconds."""
        if self.outage.waiting() or not self.heartbeat.origin_recorded:
            return False
        if self._unsure or self.work.out_of_step:  # it may hold jobs that it does not know, and has to release
            return False
        try:
            return self.next_claim.nothing_before(self.engine.now() + microseconds(seconds))
        except Exception as error:
            self.recover(error)
            return False
