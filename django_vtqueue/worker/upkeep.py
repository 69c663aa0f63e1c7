"""What a worker does for the database itself, between turns: its log is kept short, and what is outdated deleted."""

import logging
import time

from ..engines import Engine, Trouble

logger = logging.getLogger("django_vtqueue")

PERIOD = 1.0  # seconds
TIDY_AGAIN = 0.02  # seconds, if somebody wrote just then
HUGE_LOG = 64_000_000  # bytes
PRUNED_AT_ONCE = 200  # rows
PRUNING_SHARE = 0.1  # of the time, as long as there is more to prune: in one go it would hold up the jobs of a moment
PRUNE_AGAIN = 0.1  # seconds, if there was something: what ends in a stream is outdated in a stream


class Upkeep:
    """Keeps the log of a database short, and deletes what was kept for long enough."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.prune_at = 0.0  # monotonic
        self._tidy_at = 0.0  # monotonic
        self._told = False

    def do(self, *, contended: bool) -> None:
        """Do what is due, after a turn; ``contended``: others often have the lock."""
        if time.monotonic() >= self._tidy_at:
            self._tidy(contended)
        if time.monotonic() >= self.prune_at:
            self._prune()

    def _tidy(self, contended: bool) -> None:
        """Keep the database's log short; say once if somebody lets it grow."""
        if (kept := self.engine.tidy(early=contended)) is None:
            return
        self._tidy_at = time.monotonic() + (PERIOD if kept else TIDY_AGAIN)
        if kept > HUGE_LOG and not self._told:
            self._told = True
            logger.warning(
                "the log beside the database (-wal) has over %d MB: a transaction that reads has been open for long (a "
                "shell, a backup, a streamed response), and until it ends the log cannot begin anew",
                HUGE_LOG // 1_000_000,
            )

    def _prune(self) -> None:
        """Delete some of what was kept for long enough; what a lock prevents is done after the next turn."""
        began = time.monotonic()
        now = self.engine.now()
        try:
            pruned = self.engine.prune(now, PRUNED_AT_ONCE) if self.engine.prunable(now) else 0
        except Exception as error:
            self.prune_at = 0.0 if self.engine.trouble(error) is Trouble.BUSY else began + PERIOD
            raise
        if pruned >= PRUNED_AT_ONCE:
            self.prune_at = began + (time.monotonic() - began) / PRUNING_SHARE
        else:
            self.prune_at = began + (PRUNE_AGAIN if pruned else PERIOD)
