"""Maintenance of the database between turns: its log is kept short, old rows are deleted, overdue jobs are buried.

It looks at all queues, also at those at which no claim looks: they are paused, or have no worker.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from math import inf

from ..core.grace import GracePeriod
from ..core.job import Handle, Scope
from ..core.settlement import Settlement
from ..engines import Trouble
from ..queue.claims import ENDED_BATCH, NO_GRACE, WAKING_BATCH
from ..queue.clock_repair import ClockRepair
from ..queue.doorbell import ring
from ..queue.ended_leases import bury_overdue, end_leases
from ..queue.unparking import Unparking
from .options import scopes_of
from .work import Work

logger = logging.getLogger("django_vtqueue")

PERIOD = 1.0  # seconds
BUSY_AGAIN = 0.002  # seconds, if another connection had the lock
TIDY_AGAIN = 0.02  # seconds, if another connection wrote just then
HUGE_LOG = 64_000_000  # bytes
WAKING = 0.2  # seconds: then leases are renewed before it goes on
PRUNED_BATCH = 200  # rows
# While there is more to prune, batches take this share of the time: all at once would hold up the jobs. A batch is also
# pruned each time that so many jobs were started, however long it takes: else the table of a busy worker would grow.
PRUNING_SHARE = 0.1
PRUNE_AGAIN = 0.1  # seconds, if a part of a batch was pruned: where jobs end all the time, more is soon to be pruned

Part = Callable[[], int | None]  # does a part of the maintenance; returns how many rows, if it is about some


class Maintenance:
    """Looks after the database of a worker: its log, what was kept for long enough, what waits without a reason."""

    def __init__(self, work: Work, clock_repair: ClockRepair) -> None:
        self.engine, self.work, self.clock_repair = work.engine, work, clock_repair
        self.unparking = Unparking(work.limits)
        self.scopes = [Scope(None, raw=False), *scopes_of(work.backend, None)[1:]]  # all tasks, raw jobs
        self.next_at = 0.0  # monotonic
        self._more_at = inf  # when so many jobs were started, there is more to prune
        self._tidy_at = 0.0  # monotonic
        self._told_of_log = False
        self._told: set[str] = set()  # of which parts it was said that they fail

    def do_what_is_due(self, *, contended: bool, claiming: bool = True) -> None:
        """Do what is due, after a turn, which stands even if this fails. A part that fails stops no other part.

        ``contended``: others often have the lock. ``claiming``: this worker may end leases, as its claims do.
        """
        now, most = time.monotonic(), 0
        for name, part in self._due(now, contended, claiming):
            try:
                most = max(most, part() or 0)
            except Exception as error:
                trouble = self.engine.trouble(error)
                if trouble not in (None, Trouble.RIGHTS):  # no part can be done now
                    if trouble is Trouble.BUSY:
                        self.next_at = now + BUSY_AGAIN
                    return
                if name not in self._told:
                    self._told.add(name)
                    logger.warning("maintenance of the database: %s failed: %r. Jobs go on", name, error)
        if most >= PRUNED_BATCH:
            self.next_at = now + (time.monotonic() - now) / PRUNING_SHARE
            self._more_at = self.work.jobs_started + PRUNED_BATCH
        elif most:
            self.next_at = now + PRUNE_AGAIN

    def _due(self, now: float, contended: bool, claiming: bool) -> Iterator[tuple[str, Part]]:
        """Yield the parts that are due, by name. Leases end first: what is hidden has its key, and is not overdue."""
        if now >= self._tidy_at:
            yield "keeping its log short", lambda: self._tidy(now, contended)
        if now >= self.next_at or self.work.jobs_started >= self._more_at:
            self.next_at, self._more_at = now + PERIOD, inf  # also if a part fails
            if claiming:
                yield "ending leases", self._end_leases
            yield "dead-lettering overdue jobs", self._bury_overdue
            yield "waking jobs", self._wake
            yield "pruning", lambda: self.engine.prune(self.engine.now(), PRUNED_BATCH)
        if now >= self.unparking.next_at:
            yield "putting blocked jobs back", self._unpark

    def _tidy(self, now: float, contended: bool) -> None:
        """Keep the database's log short; say once if another connection lets it grow."""
        self._tidy_at = now + PERIOD  # also if it fails
        kept = self.engine.tidy(early=contended)
        if not kept:
            self._tidy_at = 0.0 if kept is None else now + TIDY_AGAIN
            return
        if kept > HUGE_LOG and not self._told_of_log:
            self._told_of_log = True
            logger.warning(
                "the WAL file has grown beyond %d MB: another connection keeps a read transaction open (a shell, a "
                "backup, a streamed response), and the file cannot be used again until that ends",
                HUGE_LOG // 1_000_000,
            )

    def _end_leases(self) -> None:
        """Have some hidden jobs of any queue be visible again, or buried, as a claim does with those of its queues."""
        engine, leases = self.engine, self.work.leases
        if not self._ended(1, engine.now(), NO_GRACE):
            return
        with engine.transaction():
            leases.gaps.note_lock(0.0)
            now = engine.now()
            leases.notice_gap(now)
            rows = self._ended(ENDED_BATCH, now, leases.gaps.grace_period())
            endings = end_leases(engine, rows, leases.worker_id, now)
        if rows:
            self._tell(endings)

    def _ended(self, limit: int, now: int, grace_period: GracePeriod) -> list[Handle]:
        """Return up to ``limit`` rows of each kind whose lease has ended, except those that reappear."""
        found = [self.engine.ended(scope, limit, now, grace_period, overflow=True) for scope in self.scopes]
        return [row for rows in found for row in rows]

    def _wake(self) -> None:
        """Put jobs of any queue into the line whose time has come, also while no thread is free to claim them."""
        engine, now, ends = self.engine, self.engine.now(), time.monotonic() + WAKING
        for scope in self.scopes:
            while engine.to_wake(scope, now, 1):
                with engine.transaction():
                    if engine.wake(scope, now, WAKING_BATCH) < WAKING_BATCH:
                        break
                if time.monotonic() > ends:
                    self.next_at = 0.0
                    return

    def _bury_overdue(self) -> int:
        """Make dead letters of some overdue jobs that no claim has come across, of any queue; return how many."""
        engine, now = self.engine, self.engine.now()
        if not engine.overdue(1, now):
            return 0
        with engine.transaction():
            endings = bury_overdue(engine, engine.overdue(PRUNED_BATCH, now), self.work.leases.worker_id, now)
        self._tell(endings)
        return len(endings)

    def _tell(self, endings: Sequence[Settlement]) -> None:
        """Tell of ended jobs, and have any worker look for what is due now: they, their parents, what they held up."""
        self.work.note_ended_elsewhere(endings)
        self.work.next_claim.forget()
        ring(self.work.backend.database, self.work.backend.settings.doorbells)

    def _unpark(self) -> None:
        """Put back some jobs that a limit holds up without a reason."""
        work = self.work
        back = self.unparking.look(self.engine)
        self.unparking.cut_rates(self.engine, self.clock_repair)
        if work.backend.limits.queues:
            work.next_claim.forget()  # what is due in a queue at its limit has become more, or may be claimed now
        if back:
            work.next_claim.expect(0)
            ring(work.backend.database, work.backend.settings.doorbells)
