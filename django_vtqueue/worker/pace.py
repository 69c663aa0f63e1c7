"""How soon a turn follows another, and how much goes into one transaction, judged by what the last turns met."""

import time

GAP = 0.005  # seconds between two turns while others want to write
CONTENDED_FOR = 0.1  # seconds after the lock was found taken
LONG = 0.008  # seconds for which a lock is held, above what the statements take
FADING = 0.99  # of a long one, from turn to turn


class Pace:
    """Leaves the write lock to others while they want it: a turn for many jobs holds it hardly longer than for one."""

    def __init__(self) -> None:
        self._hold = 0.0  # seconds
        self._busy_at = self._took_at = float("-inf")  # monotonic

    def busy(self) -> None:
        """Note that somebody else had the lock."""
        self._busy_at = time.monotonic()

    def took(self, hold: float) -> None:
        """Note a turn, which held the lock for so many seconds."""
        self._took_at, self._hold = time.monotonic(), max(hold, self._hold * FADING)

    def linger(self) -> None:
        """While others want to write, wait until a moment after the last turn: more jobs will have ended by then."""
        now = time.monotonic()
        if now < self._busy_at + CONTENDED_FOR and now < self._took_at + GAP:
            time.sleep(self._took_at + GAP - now)

    @property
    def apart(self) -> bool:
        """Whether settling and claiming are transactions of their own, each with half the statements.

        Threads that compute keep a loop from the interpreter after each statement, while it has the lock.
        """
        return self._hold > LONG
