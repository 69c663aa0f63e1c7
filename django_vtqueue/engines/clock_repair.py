"""The part of the contract of a database that is for rows which a clock has stamped that was ahead."""

from collections.abc import Sequence

from ..core.job import Handle


class ClockStamps:
    """See Engine, and queue/clock_repair.py, which walks over the rows."""

    def clock_was_ahead(self, now: int) -> bool:
        """Return whether some row has a stamp of a clock that was ahead of ``now``; it costs a few seeks."""
        return False

    def stamped_ahead(self, after: Handle, now: int, limit: int) -> tuple[list[Handle], Handle | None]:
        """Read the ``limit`` rows after a row; return those that wait for a time stamped by a clock that was ahead.

        Also return the last row that was read, to go on from there; None if it was the last one of all.
        """
        return [], None

    def repair_stamps(self, handles: Sequence[Handle], now: int) -> int:
        """Repair what a clock that was ahead has stamped in these rows; return how many rows were changed.

        A row that waits for such a time is due now; a lease that ends at such a time ends one lease from now.
        """
        return 0
