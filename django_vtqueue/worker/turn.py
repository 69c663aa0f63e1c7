"""A turn of the control loop: what has finished is settled and what is due is claimed, in one transaction.

Renewals go before it, in a transaction of their own. After the commit jobs are started and results announced.
"""

import logging
from collections.abc import Sequence

from django.conf import settings

from ..core import states
from ..core.clock import microseconds
from ..core.job import HeldJob, Key, Scope
from ..engines import Trouble
from ..execution.outcomes import Outcome
from ..queue.claims import Taken, begin_waiting, settle, take
from ..queue.clock_steps import ClockSteps
from ..queue.origin import left_behind
from ..queue.workers import QUIET, STOP
from .cancellation import Cancellation
from .children.pool import Processes
from .heartbeat import Heartbeat
from .log import WorkerLog, name
from .maintenance import Maintenance
from .options import WorkerOptions
from .outage import Outage, settle_alone
from .pacing import NextDue, Pacing
from .thread_pool import Pool
from .work import AT_ONCE, Work

logger = logging.getLogger("django_vtqueue")


class Turns:
    """The turns of one worker, and what comes round between them."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        pool: Pool | Processes,
        options: WorkerOptions,
        log: WorkerLog,
        scopes: Sequence[Scope],
    ) -> None:
        self.heartbeat, self.pool, self.scopes = heartbeat, pool, scopes
        self.id, self.engine, self.backend = heartbeat.worker.worker_id, heartbeat.engine, heartbeat.backend
        self.next_due = NextDue(self.engine, scopes)
        self.work = Work(self.engine, self.backend, self.id, pool, options, log, self.next_due)
        self.leases = self.work.leases
        self.pacing = Pacing()
        self.clock_steps = ClockSteps(self.engine)
        self.maintenance = Maintenance(self.engine)
        self.cancellation = Cancellation(self.engine, self.work.in_flight, pool)
        self.outage = Outage(self.engine)
        self.stopping = False  # nothing more is claimed
        self._unsure = False  # the last turn may or may not have been committed

    @property
    def quiet(self) -> bool:
        """Whether people want nothing more to be claimed, for now."""
        return self.heartbeat.asked_to in (QUIET, STOP)

    def try_turn(self) -> None:
        """Take a turn, and keep the database in order; one that fails is not the end."""
        try:
            self.turn()
            self.maintenance.do(contended=self.pacing.contended)
            self.leases.takeover.waited(self.outage.lasts())  # it got the lock at last
            self.outage.over()
        except Exception as error:
            self.recover(error)

    def turn(self) -> None:
        """Keep up what is held; settle and claim, in one transaction; then start and announce."""
        self.keep_up()
        work = self.work
        work.prefetch.measure(self.pool.slots)
        if (leaving := self.stopping or self.quiet) or work.prefetch.overdue():
            work.give_back_waiting(everything=leaving)
        begun, outcomes = work.in_flight.begun(), work.outcomes[:AT_ONCE]
        free, ahead = self.room()
        if work.next_writer():
            free = max(free - 1, 0)
        if not (free or ahead) or not (self.next_due.worth_a_try() if outcomes else self.next_due.due()):
            free = ahead = 0
        if not (outcomes or begun or free or ahead or work.starting):
            return
        if (outcomes or begun) and (free or ahead) and self.pacing.apart:
            self.exchange(outcomes, begun, 0, 0)
            outcomes, begun = [], []
        self.exchange(outcomes, begun, free, ahead)

    def exchange(self, outcomes: Sequence[Outcome], begun: Sequence[HeldJob], free: int, ahead: int) -> None:
        """Settle and claim, in one transaction; then start and announce."""
        lost: set[Key] = set()
        taken: Taken | None = None
        starting = self.work.starting
        self._unsure = True
        with self.engine.transaction():
            self.leases.takeover.locked(self.outage.lasts())
            if outcomes:
                settlements = [outcome.settlement for outcome in outcomes]
                lost = settle(self.engine, settlements, self.backend.settings.letter_ttl)
            if begun:
                self.engine.begin(begun, self.engine.now())
            starts = bool(starting and begin_waiting(self.engine, starting, self.engine.now()))
            if free or ahead:
                taken = self.claim(free, ahead)
        self.pacing.took(self.engine.last_hold)
        self.work.in_flight.count(begun)
        self.work.settled(outcomes, lost)
        self.work.start(starts)
        if taken:
            self.work.claimed(taken, free)
        self._unsure = False

    def keep_up(self) -> None:
        """Renew what is held, end what has run for too long, and do what comes round once a second."""
        if self.outage.lasts():
            self.check_replaced()
        self.leases.look(self.engine.now())
        hung = self.work.end_overdue()
        if hung and not self.stopping:
            logger.warning("%s does not end; this worker finishes its other jobs and leaves", name(hung))
            self.stopping = True
        self.pool.maintain()
        self.leases.renew()
        if self.clock_steps.go_on():  # before the heartbeat, which sets right what says that a clock was ahead
            self.next_due.forget()
        if endings := self.heartbeat.keep(self.pool.memory):
            self.next_due.forget()
            self.work.recorder.count_endings(endings)
            for settlement in endings:
                if settlement.state == states.FAILED:
                    self.pool.announce_burial(settlement)
        self.work.recorder.write()
        if self._unsure:
            self.leases.release_unknown()
            self._unsure = False
        self.cancellation.keep()

    def room(self) -> tuple[int, int]:
        """Return how many jobs may be claimed now to be run at once, and how many ahead of that; see Work.room."""
        return (0, 0) if self.stopping or self.quiet else self.work.room()

    def claim(self, free: int, ahead: int) -> Taken:
        """Claim, inside the turn's transaction, what is run at once and what is run next."""
        now, letter_ttl = self.engine.now(), self.backend.settings.letter_ttl
        self.leases.look(now)
        return take(
            self.engine,
            self.scopes,
            free,
            self.id,
            now,
            letter_ttl,
            patience=self.leases.takeover.patience(),
            ahead=ahead,
            waits=self.work.transactional.waits,
        )

    def recover(self, error: Exception) -> None:
        """Go on after an error: wait if it is one that passes, else find out which settlement it was."""
        trouble = self.engine.trouble(error)
        if trouble is Trouble.BUSY:
            self.pacing.busy()
        if trouble is None and self.work.outcomes:
            logger.warning("a turn failed (%r): its settlements are made one by one", error)
            try:
                outcomes = list(self.work.outcomes)
                letter_ttl = self.backend.settings.letter_ttl
                self.work.settled(outcomes, settle_alone(self.engine, outcomes, letter_ttl, self.pool.forget))
                return
            except Exception as again:
                error = again
        self.outage.failed(error, self.pacing.patience, left=self.leases.left())

    def look(self) -> bool:
        """Find out whether the database has changed, or was replaced: then what is known of it is read anew."""
        try:
            replaced = self.check_replaced()
            if changed := self.engine.changed():
                self.next_due.forget()
                self.heartbeat.look_again()
                self.cancellation.look_again()
            return replaced or changed
        except Exception as error:
            self.recover(error)
            return True

    def drained(self, seconds: float) -> bool:
        """Return whether nothing is due, nor will be within so many seconds."""
        if self.outage.waiting() or not self.heartbeat.moved_in:
            return False
        try:
            return self.next_due.nothing_before(self.engine.now() + microseconds(seconds))
        except Exception as error:
            self.recover(error)
            return False

    def check_replaced(self) -> bool:
        """If another database has taken the place of ours, forget what is known; what runs is settled in that one.

        With DEBUG it may be a copy from elsewhere, whose jobs are not to run here. Return whether it was one.
        """
        self.leases.look(self.engine.now())
        if not self.engine.replaced():
            return False
        if settings.DEBUG and (home := left_behind(self.engine)):
            logger.warning("the database was replaced by one from %s; this worker leaves. Start it anew", home)
            self.stopping = True
            return True
        logger.warning("the database was replaced; this worker goes on with the new one")
        self.leases.renew_at = 0.0
        self.next_due.forget()
        self.heartbeat.forget()
        return True
