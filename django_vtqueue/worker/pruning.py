"""Upkeep of the database between turns: its log is kept short, what is outdated is deleted, what has expired buried."""

import logging
import time
from collections.abc import Callable

from ..engines import Engine, Trouble

logger = logging.getLogger("django_vtqueue")

PERIOD = 1.0  # seconds
BUSY_AGAIN = 0.002  # seconds, if another connection had the lock
TIDY_AGAIN = 0.02  # seconds, if another connection wrote just then
HUGE_LOG = 64_000_000  # bytes
PRUNED_AT_ONCE = 200  # rows
PRUNING_SHARE = 0.1  # of the time, as long as there is more to prune: in one go it would hold up the jobs of a moment
PRUNE_AGAIN = 0.1  # seconds, if there was something: what ends in a stream is outdated in a stream


class Pruning:
    """Keeps the log of a database short, and deletes what was kept for long enough.

    ``bury_overdue`` makes dead letters of up to so many jobs that have expired, and returns how many; ``give_back``
    gives back jobs that are parked without a reason, and returns whether there may be more.
    """

    def __init__(
        self, engine: Engine, bury_overdue: Callable[[int], int], give_back: Callable[[], bool] = lambda: False
    ) -> None:
        self.engine, self.bury_overdue, self.give_back = engine, bury_overdue, give_back
        self.next_at = 0.0  # monotonic
        self._tidy_at = 0.0  # monotonic
        self._told_of_log = self._told_of_failure = False

    def do(self, *, contended: bool) -> None:
        """Do what is due, after a turn, which stands even if this fails; ``contended``: others often have the lock."""
        now = time.monotonic()
        try:
            if now >= self._tidy_at:
                self._tidy(now, contended)
            if now >= self.next_at:
                self._prune(now)
        except Exception as error:
            trouble = self.engine.trouble(error)
            if trouble is Trouble.BUSY:
                self.next_at = now + BUSY_AGAIN
            elif trouble is None and not self._told_of_failure:
                self._told_of_failure = True
                logger.warning("pruning the database, or keeping its log short, failed: %r. Jobs go on", error)

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
                "backup, a streamed response), and the file cannot be used anew until that ends",
                HUGE_LOG // 1_000_000,
            )

    def _prune(self, now: float) -> None:
        """Delete some of what was kept for long enough; bury some of what has expired."""
        self.next_at = now + PERIOD  # also if it fails
        instant = self.engine.now()
        pruned = max(self.engine.prune(instant, PRUNED_AT_ONCE), self.bury_overdue(PRUNED_AT_ONCE))
        if self.give_back() or pruned >= PRUNED_AT_ONCE:
            self.next_at = now + (time.monotonic() - now) / PRUNING_SHARE
        elif pruned:
            self.next_at = now + PRUNE_AGAIN
