"""What a worker does beside its jobs: it says that it is alive, and notices what other processes do to the database."""

import logging
import time

from django.conf import settings

from ..engines import Engine, Listener
from ..queue.clock_steps import ClockSteps
from ..queue.doorbell import HEARING_LOOK, LOOK, RARE_LOOK
from ..queue.origin import foreign_origin
from .cancellation import Cancellation
from .heartbeat import Heartbeat
from .recurring import Recurring
from .upkeep import Upkeep
from .work import Work

logger = logging.getLogger("django_vtqueue")

WATCHFUL = 60.0  # seconds after a commit of another connection


class Housekeeping:
    """What a worker does periodically; each part says when it is next due (``next_at``).

    ``foreign``: the database was replaced by a copy from elsewhere, whose jobs are not to run here. ``look_at``
    (monotonic): when to look at the database next.
    """

    def __init__(self, engine: Engine, heartbeat: Heartbeat, work: Work) -> None:
        self.engine, self.heartbeat, self.work, self.next_due = engine, heartbeat, work, work.next_due
        self.clock_steps = ClockSteps(engine)
        self.upkeep = Upkeep(work)
        self.locks = work.locks
        self.cancellation = Cancellation(engine, work.in_flight, work.locks)
        self.recurring = Recurring(engine, work.backend, heartbeat.worker)
        self.listener = Listener()
        self.foreign = False
        self.look_at = self._watchful_until = 0.0

    def next_at(self) -> float:
        """Return when a part is due (monotonic)."""
        steps = {self.look_at_clock: self.clock_steps.next_at, self.beat: self.heartbeat.next_at}
        steps[self.keep_schedules] = self.recurring.next_at()
        return min(self.upkeep.next_at, *(max(at, self.locks.off_until(step)) for step, at in steps.items()))

    def do(self) -> None:
        """Do what is due, before a turn; what waits for a lock in vain is put off."""
        self.locks.passes(self.look_at_clock, self.look_at_clock)  # first, for the heartbeat sets right what tells it
        if self.heartbeat.moved_in:
            self.locks.passes(self.beat, self.beat)
        else:  # it holds no job before the others know it
            self.beat()
        self.work.recorder.write()
        self.cancellation.keep()
        self.locks.passes(self.keep_schedules, self.keep_schedules)

    def look_at_clock(self) -> None:
        """Repair what a clock that was ahead has stamped."""
        if self.clock_steps.go_on():
            self.next_due.forget()
            self.recurring.forget()

    def beat(self) -> None:
        """Say that this worker is alive, and settle what dead ones held."""
        if endings := self.heartbeat.keep():
            self.next_due.forget()
            self.work.ended_elsewhere(endings)

    def keep_schedules(self) -> None:
        """Publish recurring jobs."""
        if not self.foreign and self.recurring.keep():
            self.next_due.forget()

    def rung(self, workers: bool) -> None:
        """Look for jobs, for the doorbell was rung; ``workers``: read the rows of the workers, too."""
        self.next_due.rung()
        if workers:
            self.heartbeat.others.look_again()
            self.heartbeat.next_at = 0.0

    def look(self) -> bool:
        """Return whether the database was replaced, or another connection has committed since the last look."""
        now = time.monotonic()
        often = LOOK if now < self._watchful_until else RARE_LOOK
        first, self.look_at = not self.look_at, now + (HEARING_LOOK if self.listener.hears else often)
        replaced = self.check_replaced()
        if changed := self.engine.changed():
            self.next_due.forget()
            self.heartbeat.others.look_again()
            self.cancellation.look_again()
            self.recurring.look_again()
            self._watchful_until = 0.0 if first else now + WATCHFUL
        return replaced or changed

    def check_replaced(self) -> bool:
        """If another database has taken the place of ours, forget what is known; what runs is settled in that one.

        With DEBUG it may be a copy from elsewhere. Return whether it was replaced.
        """
        self.work.leases.look(self.engine.now())
        if not self.engine.replaced():
            return False
        if settings.DEBUG and (origin := foreign_origin(self.engine)):
            logger.warning("the database was replaced by one from %s; this worker leaves. Start it anew", origin)
            self.foreign = True
            return True
        logger.warning("the database was replaced; this worker goes on with the new one")
        self.work.leases.renew_at = 0.0
        self.next_due.forget()
        self.heartbeat.forget()
        self.recurring.forget()
        return True
