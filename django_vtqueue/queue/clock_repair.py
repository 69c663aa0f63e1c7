"""Repair of rows that were stamped by a clock that was ahead: else they wait until the clock has come so far again.

How a holder notices that, and renews what it holds, is in core/gaps.py and worker/leases.py.
"""

import time

from ..core.clock import SECOND, since_boot
from ..core.job import Handle
from ..engines import Engine

SLICE = 1000  # rows looked at in one turn: a millisecond
PERIOD = 1.0  # seconds
NOTICEABLE = 1.0  # seconds by which the clock goes back


class ClockRepair:
    """A walk over all rows, a slice at a time, after a clock is known to have been ahead.

    At the start of a process stamps in the database tell that; later the step of the clock itself does. A step that is
    not noticeable delays no job by more than a moment. ``next_at`` (monotonic): when to call ``go_on`` next.
    ``was_ahead``: a clock was, and nobody has cut the rates that it has used yet; see Unparking.cut_rates.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._offset: float | None = None  # seconds: the wall clock less the boot clock, when it was last compared
        self._after: Handle | None = None  # the row after which to go on; None: there is nothing to do
        self.next_at = 0.0
        self.was_ahead = False

    def unfinished(self) -> bool:
        """Return whether there are more rows to look at."""
        return self._after is not None

    def go_on(self) -> bool:
        """Look at the clock once a second, and repair a slice of rows if it was ahead.

        Return whether jobs may be due now.
        """
        if time.monotonic() < self.next_at:
            return False
        self.next_at = time.monotonic() + PERIOD  # also if it fails
        changed = self._sweep()
        if self.unfinished():
            self.next_at = 0.0
        return changed

    def _sweep(self) -> bool:
        now = self.engine.now()
        offset = now / SECOND - since_boot()
        before = self._offset
        stepped = before is not None and abs(offset - before) > NOTICEABLE
        if before is None or stepped:
            was_ahead = self.engine.clock_was_ahead(now) if before is None else offset < before
            self._offset = offset
            if was_ahead:
                self._after, self.was_ahead = 0, True
        if self._after is None:
            return stepped
        found, after = self.engine.stamped_ahead(self._after, now, SLICE)
        if found:
            with self.engine.transaction():
                self.engine.repair_stamps(found, self.engine.now())
        self._after = after  # only now: a slice that could not be repaired, for a lock, is looked at again
        return stepped or bool(found)
