"""A turn of the control loop: leases are renewed, what has finished is settled, and what is due is claimed.

Renewals go first, in a transaction of their own; the rest is an ``Exchange``. After its commit jobs are started and
results announced.
"""

import logging
import time
from collections.abc import Sequence

from ..core.clock import NEVER, microseconds
from ..core.job import Scope
from ..engines import Trouble
from ..execution.outcomes import Outcome
from ..queue.workers import QUIET, STOP
from .exchange import Exchange
from .heartbeat import Heartbeat
from .housekeeping import Housekeeping
from .log import job_name
from .outage import Outage
from .work import AT_ONCE, Work

logger = logging.getLogger("django_vtqueue")

UNKNOWN_JOBS = "unknown jobs"  # a step that RowLocks may put off


class Turns:
    """The turns of one worker, and what it does between them."""

    def __init__(self, work: Work, heartbeat: Heartbeat, scopes: Sequence[Scope]) -> None:
        self.work, self.heartbeat = work, heartbeat
        self.engine, self.backend = work.engine, work.backend
        self.leases, self.next_due = work.leases, work.next_due
        self.locks = work.locks
        self.housekeeping = Housekeeping(self.engine, heartbeat, work)
        self.outage = Outage(self.engine)
        self.exchange = Exchange(work, heartbeat, scopes, self.outage)
        self.pacing = self.exchange.pacing
        self._stopping = False

    def stop(self) -> None:
        """Claim nothing more, for good; the jobs that can go on elsewhere are told now."""
        self._stopping = True
        self.work.in_flight.recall()

    @property
    def stopping(self) -> bool:
        """Whether nothing more is claimed, for good."""
        return self._stopping or self.housekeeping.foreign

    @property
    def quiet(self) -> bool:
        """Whether nothing more is to be claimed, for now: people want it, or the clock of this host is wrong."""
        return self.heartbeat.asked_to in (QUIET, STOP) or self.heartbeat.disk_clock.off

    def try_turn(self) -> None:
        """Take a turn, then maintain the database; after an error the worker waits and goes on."""
        try:
            self.turn()
            self.housekeeping.upkeep.do(contended=self.pacing.contended)
            self.answered()
        except Exception as error:
            self.recover(error)

    def answered(self) -> None:
        """Note that the database has done what it was asked for, at last, or has told why not."""
        self.leases.gaps.waited(self.outage.lasts())
        self.outage.over()

    def turn(self) -> None:
        """Renew what is held, settle what has finished, claim what is due, start jobs and announce results."""
        self.keep_up()
        work = self.work
        work.prefetch.measure(work.pool.slots)
        if (leaving := self.stopping or self.quiet) or work.prefetch.stale():
            work.release_ahead(everything=leaving)
        if leaving:
            work.in_flight.recall()
        begun = [job for job in work.in_flight.begun() if not self.locks.hold_up(job)]
        outcomes = self.locks.free(work.outcomes, AT_ONCE)
        free, ahead = self.room()
        if work.take_next_writer():
            free = max(free - 1, 0)  # a transactional job takes this slot
        if not ((free or ahead) and self.may_find(outcomes)):
            free = ahead = 0
        if not (outcomes or begun or free or ahead or work.starting):
            return
        self.exchange.take(outcomes, begun, free, ahead)

    def may_find(self, outcomes: Sequence[Outcome]) -> bool:
        """Return whether a claim may find something.

        With outcomes to settle the turn opens a transaction in any case, so nothing is read to find it out.
        """
        return self.next_due.worth_a_try() if outcomes else self.next_due.due()

    def keep_up(self) -> None:
        """Renew what is held, end what has run for too long, and do what is due once a second."""
        if self.outage.gone:
            self.housekeeping.look()  # it fails as long as the database is gone, which a turn without work would not
        elif self.outage.lasts():
            self.housekeeping.check_replaced()
        self.leases.look(self.engine.now())
        hung = self.work.end_over_time()
        if hung and not self.stopping:
            logger.warning("%s does not end; this worker finishes its other jobs and leaves", job_name(hung))
            self.stop()
        self.leases.renew()
        self.housekeeping.do()
        if self.exchange.unsure:
            self.exchange.unsure = not self.locks.passes(UNKNOWN_JOBS, self.leases.release_unknown)

    def room(self) -> tuple[int, int]:
        """Return how many jobs may be claimed now to be run at once, and how many ahead of that; see Work.room."""
        return (0, 0) if self.stopping or self.quiet else self.work.room()

    def recover(self, error: Exception) -> None:
        """Go on after an error: wait if the database has a passing trouble, else settle the outcomes one by one."""
        if self.locks.in_vain(error):
            self.answered()
            return
        trouble = self.engine.trouble(error)
        if trouble is Trouble.BUSY:
            self.pacing.busy()
        if trouble is None and self.work.outcomes:
            logger.warning("a turn failed (%r); its jobs are settled one by one", error)
            try:
                self.work.settle_alone()
                return
            except Exception as again:
                if self.locks.in_vain(again):
                    return
                error = again
        self.outage.failed(error, self.pacing.retry_factor, left=self.leases.left())

    # Between turns

    def next_at(self) -> float:
        """Return when the next turn is due (monotonic), if nothing comes up before that."""
        if self.outage.waiting():
            return self.outage.retry_at
        if self.locks.free(self.work.outcomes, 1):
            return 0.0
        at = min(self.housekeeping.next_at(), self.leases.next_at(), self.locks.next_at(), self.work.next_at())
        return min(at, time.monotonic() + self.next_due.seconds_to_sleep()) if any(self.room()) else at

    def look_at(self) -> float:
        """Return when to look at the database next (monotonic): not in trouble, nor as long as no slot is free."""
        return NEVER if self.outage.waiting() or not any(self.room()) else self.housekeeping.look_at

    def look(self) -> bool:
        """If it is time to, look whether the database has changed; return whether a turn is to be taken."""
        if self.outage.waiting() or time.monotonic() < self.housekeeping.look_at:
            return False
        try:
            return self.housekeeping.look()
        except Exception as error:
            self.recover(error)
            return True

    def wait_for_more(self) -> None:
        """Wait for a moment, where one turn for several outcomes is better than one for each."""
        self.work.prefetch.wait_for_more(self.work.pool.waiting)
        self.pacing.wait_for_more()

    def drained(self, seconds: float) -> bool:
        """Return whether nothing is due, nor will be within so many seconds."""
        if self.outage.waiting() or not self.heartbeat.moved_in or self.work.limits.imports.lately():
            return False
        if self.exchange.unsure:  # it may hold jobs that it does not know, and has to release
            return False
        try:
            return self.next_due.nothing_before(self.engine.now() + microseconds(seconds))
        except Exception as error:
            self.recover(error)
            return False
