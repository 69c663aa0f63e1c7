"""Rows that a clock stamped while it was ahead are set right: else they would wait until the clock is there again."""

import time

from ..core.clock import SECOND, since_boot
from ..engines import Engine

SLICE = 1000  # rows looked at in one turn: a millisecond
PERIOD = 1.0  # seconds
NOTICEABLE = 1.0  # seconds by which the clock goes back


class ClockSteps:
    """A walk over the rows, a slice in each turn, where a clock is known to have been ahead.

    At the start of a process that is said by stamps in the database, afterwards by the step of the clock itself. Steps
    that are not noticeable may add up to one; each alone delays nothing by more than a moment. ``due_at`` (monotonic):
    when ``go_on`` has something to do.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._offset: float | None = None  # seconds of the wall clock beyond the boot clock when this was last judged
        self._after: int | None = None  # behind which row to go on
        self.due_at = 0.0

    def unfinished(self) -> bool:
        """Return whether there is more to look at."""
        return self._after is not None

    def go_on(self) -> bool:
        """Once a second, look at the clock and at a slice of the rows; return whether jobs may have become due."""
        if time.monotonic() < self.due_at:
            return False
        self.due_at = time.monotonic() + PERIOD  # also if it fails
        changed = self._look()
        if self.unfinished():
            self.due_at = 0.0
        return changed

    def _look(self) -> bool:
        now = self.engine.now()
        offset = now / SECOND - since_boot()
        before = self._offset
        stepped = before is not None and abs(offset - before) > NOTICEABLE
        if before is None or stepped:
            was_ahead = self.engine.clock_was_ahead(now) if before is None else offset < before
            self._offset = offset
            if was_ahead:
                self._after = 0
        if self._after is None:
            return stepped
        found, self._after = self.engine.stamped_ahead(self._after, now, SLICE)
        if found:
            with self.engine.transaction():
                self.engine.set_right(found, self.engine.now())
        return stepped or bool(found)
