"""What a worker does beside its jobs: it says that it is alive, and notices what other processes do to the database."""

import logging
import time

from django.conf import settings

from ..engines import Engine, Listener
from ..queue.clock_repair import ClockRepair
from ..queue.doorbell import HEARING_LOOK, LOOK, RARE_LOOK
from ..queue.origin import foreign_origin
from .cancel_and_progress import CancelAndProgress
from .heartbeat import Heartbeat
from .maintenance import Maintenance
from .schedules import Schedules
from .work import Work

logger = logging.getLogger("django_vtqueue")

WATCHFUL = 60.0  # seconds after a commit of another connection


class PeriodicWork:
    """What a worker does periodically; ``next_at``: when a part of it is due.

    ``foreign``: the database was replaced by a copy from elsewhere, whose jobs are not to run here. ``look_at``
    (monotonic): when to look at the database next.
    """

    def __init__(self, engine: Engine, heartbeat: Heartbeat, work: Work) -> None:
        self.engine, self.heartbeat, self.work, self.next_claim = engine, heartbeat, work, work.next_claim
        self.clock_repair = ClockRepair(engine)
        self.maintenance = Maintenance(work, self.clock_repair)
        self.cancel_and_progress = CancelAndProgress(engine, work.in_flight, work.leases)
        self.schedules = Schedules(engine, work.backend, heartbeat.worker, work.pool.call)
        self.listener = Listener()
        self.foreign = False
        self.look_at = self._watchful_until = 0.0

    def next_at(self) -> float:
        """Return when a part is due (monotonic)."""
        maintenance = min(self.maintenance.next_at, self.maintenance.unparking.next_at)
        return min(self.heartbeat.next_at, self.clock_repair.next_at, maintenance, self.schedules.next_at())

    def do_what_is_due(self) -> None:
        """Do what is due, before a turn."""
        if self.clock_repair.go_on():  # before the heartbeat, which sets right what says that a clock was ahead
            self.next_claim.forget()
            self.schedules.forget()
        if self.work.options.supervised and not self.heartbeat.origin_recorded and self.note_foreign():
            return  # its supervisor has moved in; this is another database
        if endings := self.heartbeat.keep():
            self.next_claim.forget()
            self.work.note_ended_elsewhere(endings)
        self.work.recorder.write()
        self.cancel_and_progress.do_what_is_due()
        if not self.foreign and self.schedules.keep():
            self.next_claim.forget()

    def note_ring(self, workers: bool) -> None:
        """Look for jobs, for the doorbell was rung; ``workers``: read the rows of the workers, too."""
        self.next_claim.note_ring()
        if workers:
            self.heartbeat.look_again()
            self.heartbeat.next_at = 0.0

    def look(self) -> bool:
        """Return whether the database was replaced, or another connection has committed since the last look."""
        now = time.monotonic()
        often = LOOK if now < self._watchful_until else RARE_LOOK
        first = not self.look_at
        self.look_at = now + (HEARING_LOOK if self.listener.hears else often)
        replaced = self.check_replaced()
        if changed := self.engine.changed():
            self.next_claim.forget()
            self.heartbeat.look_again()
            self.cancel_and_progress.look_again()
            self.schedules.look_again()
            self._watchful_until = 0.0 if first else now + WATCHFUL
        return replaced or changed

    def check_replaced(self) -> bool:
        """If another database has taken the place of ours, forget what is known; what runs is settled in that one.

        With DEBUG it may be a copy from elsewhere. Return whether it was replaced.
        """
        self.work.leases.notice_gap(self.engine.now())
        if not self.engine.replaced():
            return False
        if self.note_foreign():
            return True
        logger.warning("the database was replaced; this worker goes on with the new one")
        self.work.leases.renew_at = 0.0
        self.next_claim.forget()
        self.heartbeat.forget()
        self.schedules.forget()
        return True

    def note_foreign(self) -> bool:
        """With DEBUG, note whether the database is a copy from elsewhere; return that."""
        if settings.DEBUG and not self.foreign and (origin := foreign_origin(self.engine)):
            logger.warning("the database was replaced by one from %s; this worker leaves. Start it again", origin)
            self.foreign = True
        return self.foreign
