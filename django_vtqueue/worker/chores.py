"""What a worker does once a second, apart from its jobs."""

import logging
import time
from collections.abc import Callable

from ..backend import VTQueueBackend
from ..engines import Engine
from ..jobs import Settlement
from ..repair import Repair
from .crew import Crew

logger = logging.getLogger("django_vtqueue")

PERIOD = 1.0  # seconds
HUGE_LOG = 64_000_000  # bytes
TIDY_AGAIN = 0.02  # seconds, if somebody wrote just then
PRUNED_AT_ONCE = 200


class Chores:
    """The heartbeat, the leases of dead workers, stamps of a wrong clock, the database's log, and some pruning."""

    def __init__(self, engine: Engine, backend: VTQueueBackend, crew: Crew, memory: Callable[[], int]) -> None:
        self.engine, self.crew, self.memory = engine, crew, memory
        self.repair = Repair(engine, backend.settings.shortest_lease())
        self.at = 0.0  # monotonic: when they are due
        self._tidy_at = 0.0  # monotonic
        self._told = False

    def do(self) -> list[Settlement] | None:
        """Do them if they are due; return what became of the jobs of the dead, None if nothing has become due by it."""
        if time.monotonic() < self.at:
            return None
        # If a lock prevents it, the next turn begins with it: no job is held before we are known.
        self.crew.beat(self.memory)
        self.at = time.monotonic() + PERIOD
        endings = self.crew.end_leases_of_the_dead()
        repaired = self.repair.go_on()
        self.tidy()
        if self._prune() or self.repair.unfinished():
            self.at = 0.0  # go on after the next turn
        return endings if endings or repaired else None

    def _prune(self) -> bool:
        """Delete some of what was kept for long enough; return whether there is more."""
        now = self.engine.now()
        if not self.engine.prunable(now):
            return False
        usual, self.at = self.at, 0.0  # if a lock prevents it, it is due again in the next turn, not in a second
        pruned = self.engine.prune(now, PRUNED_AT_ONCE)
        self.at = usual
        return pruned >= PRUNED_AT_ONCE

    def tidy(self) -> None:
        """Keep the database's log short, after each turn; say once if somebody lets it grow."""
        if time.monotonic() < self._tidy_at or (kept := self.engine.tidy()) is None:
            return
        self._tidy_at = time.monotonic() + (PERIOD if kept else TIDY_AGAIN)
        if kept > HUGE_LOG and not self._told:
            self._told = True
            logger.warning(
                "the log beside the database (-wal) has over %d MB: a transaction that reads has been open for long (a "
                "shell, a backup, a streamed response), and until it ends the log cannot begin anew",
                HUGE_LOG // 1_000_000,
            )
