"""What a worker does once a second, apart from its jobs."""

import time
from collections.abc import Callable

from ..backend import VTQueueBackend
from ..engines import Engine
from ..jobs import Settlement
from ..repair import Repair
from .crew import Crew

PERIOD = 1.0  # seconds


class Chores:
    """The heartbeat, the leases of dead workers, and stamps of a wrong clock."""

    def __init__(self, engine: Engine, backend: VTQueueBackend, crew: Crew, memory: Callable[[], int]) -> None:
        self.engine, self.crew, self.memory = engine, crew, memory
        self.repair = Repair(engine)
        self.at = self.mend_at = 0.0  # monotonic: when they are due

    def do(self) -> list[Settlement]:
        """Tell the others that this one is alive, if it is time to; return what became of the jobs of the dead."""
        if time.monotonic() < self.at:
            return []
        # If a lock prevents it, the next turn begins with it: no job is held before we are known.
        self.crew.beat(self.memory)
        self.at = time.monotonic() + PERIOD
        return self.crew.end_leases_of_the_dead()

    def mend(self) -> bool:
        """Set right what a wrong clock has stamped, if it is time to; return whether jobs may have become due by it."""
        if time.monotonic() < self.mend_at:
            return False
        self.mend_at = time.monotonic() + PERIOD
        mended = self.repair.go_on()
        if self.repair.unfinished():
            self.mend_at = 0.0  # go on after the next turn
        return mended
