"""The pace of a worker, by its last turns: how soon one follows another, and what goes into it."""

import time

BETWEEN_TURNS = 0.005  # seconds between two turns while others often have the lock
OFTEN = 0.5  # of the tries to take it
MEMORY = 0.1  # the weight of the last try in that
LONG = 0.008  # seconds for which a lock is held, above what the statements take
HOLD_FADING = 0.99  # of a long one, from turn to turn


class Pacing:
    """Leaves the write lock to others while they want it: a turn for many jobs holds it hardly longer than for one."""

    def __init__(self) -> None:
        self._hold = 0.0  # seconds
        self._busy = 0.0  # the share of the tries that found the lock taken
        self._took_at = float("-inf")  # monotonic

    def note_busy(self) -> None:
        """Note that another connection had the lock."""
        self._busy += (1 - self._busy) * MEMORY

    def note_hold(self, hold: float) -> None:
        """Note a turn, which held the lock for so many seconds."""
        self._busy -= self._busy * MEMORY
        self._took_at, self._hold = time.monotonic(), max(hold, self._hold * HOLD_FADING)

    def leave_lock_to_others(self) -> None:
        """While others want to write, wait until a moment after the last turn: more jobs will have ended by then."""
        if self.contended and (seconds := self._took_at + BETWEEN_TURNS - time.monotonic()) > 0:
            time.sleep(seconds)

    @property
    def contended(self) -> bool:
        """Whether others often have the lock."""
        return self._busy > OFTEN

    @property
    def retry_factor(self) -> float:
        """How many times longer than a publisher a worker waits between two tries: publishers store one job only."""
        return 2.0 if self.contended else 1.0

    @property
    def apart(self) -> bool:
        """Whether settling and claiming are transactions of their own, each with half the statements.

        Threads that compute keep a loop from the interpreter after each statement, while it has the lock.
        """
        return self._hold > LONG
