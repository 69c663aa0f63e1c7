"""What a clock that was ahead has stamped is set right: else it would wait until the clock is there again."""

from .clock import SECOND, since_boot
from .engines import Engine
from .jobs import Place

SLICE = 1000  # jobs looked at in one turn: a millisecond


class Repair:
    """A walk over the jobs that wait, at a process's start and after each step of the clock, a slice in each turn.

    Steps of less than half the shortest lease may add up to one; each alone delays nothing by more than a lease.
    """

    def __init__(self, engine: Engine, shortest_lease: float) -> None:
        self.engine = engine
        self._noticeable = shortest_lease / 2
        self._offset = float("-inf")  # seconds of the wall clock beyond the boot clock when the last walk began
        self._place: Place | None = None

    def unfinished(self) -> bool:
        """Return whether there is more to look at."""
        return self._place is not None

    def go_on(self) -> bool:
        """Look at the next slice, if a walk is due; return whether what was known of due jobs may be wrong."""
        now = self.engine.now()
        offset = now / SECOND - since_boot()
        stepped = abs(offset - self._offset) > self._noticeable
        if stepped:
            self._offset, self._place = offset, Place()
        if self._place is None:
            return False
        found, place = self.engine.stamped_ahead(self._place, now, SLICE)
        if found:
            with self.engine.transaction():
                self.engine.set_right(found, self.engine.now())
        self._place = place
        return stepped or bool(found)
