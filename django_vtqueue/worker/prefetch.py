"""The prefetch: jobs that a worker claims ahead of its free slots, by the pace of its last turns."""

import time
from collections.abc import Callable, Sequence

from ..core.clock import NEVER
from ..core.job import HeldJob
from .in_flight import InFlight

STEP = 0.001  # seconds between two looks at what waits
PACE_FADING = 0.8  # of a pace from turn to turn: one that had to wait for the database tells too little
SLOW = 50  # jobs a second
MOST_AHEAD = 1200  # jobs
RELEASE_AFTER = 0.02  # seconds without an end of any job: then what has not begun is released
LONGEST = 3  # times the horizon, after which it is released in any case
LARGEST = 2_000_000  # characters of payloads
HORIZON = 0.06  # seconds of work that are claimed ahead, judged by the pace of the last turns
RESERVE = 2 / 3  # of these, that is left when the next ones are claimed, so that they run beside that turn


class Prefetch:
    """How many jobs to claim ahead of the free slots, so that short ones need not wait for the worker's next turn.

    Never more than what this worker finishes in a moment, and only for a moment: what no thread has taken by then is
    released, for another worker may have room. Its attempt counts from when a thread takes it.
    """

    def __init__(self, in_flight: InFlight) -> None:
        self.in_flight = in_flight
        self._release_at = NEVER  # monotonic
        self._pace = 0.0  # jobs a second
        self._finished, self._took = 0, 0.0  # jobs since the last measurement, and the seconds of all of them
        self._measured_at = self._claimed_at = 0.0  # monotonic
        self._size = 1  # characters of a payload, of the last ones
        self._none_found = False  # the last claim had no free slot, and found nothing that may be claimed ahead

    def depth(self) -> int:
        """Return how many jobs may wait for a thread; none at a pace at which they hardly wait for turns."""
        if self._pace < SLOW:
            return 0
        return min(int(self._pace * HORIZON), MOST_AHEAD, LARGEST // self._size)

    def more(self, ahead: int) -> int:
        """Return how many more jobs may be claimed ahead, beside those that are; a few are not worth a transaction."""
        depth = 0 if self._none_found else self.depth()
        return depth - ahead if depth - ahead > depth // 4 else 0

    def note_claim(self, *, found: bool) -> None:
        """Note whether the last claim had a free slot, or found something."""
        self._none_found = not found

    def let_threads_catch_up(self, undispatched: Callable[[], int]) -> None:
        """Put the next turn off while more than a reserve of what may be claimed ahead has no thread yet.

        One turn for many costs little more than one for each, but no thread shall run out of jobs before its end.
        """
        until = time.monotonic() + HORIZON / 2
        while undispatched() > self.depth() * RESERVE and time.monotonic() < until:
            time.sleep(STEP)

    def note_finished(self, seconds: float) -> None:
        """Note that a job has finished, which took so many seconds."""
        self._finished += 1
        self._took += seconds

    def measure(self, slots: int) -> None:
        """Judge the pace by the jobs that have finished since this was done last, in so many slots."""
        if self._finished:
            now = time.monotonic()
            pace = self._finished / max(now - self._measured_at, self._took / max(slots, 1), 1e-6)
            self._pace, self._measured_at = max(pace, self._pace * PACE_FADING), now
            self._finished, self._took = 0, 0.0
            if self.in_flight.number_uncounted:
                self._release_at = min(now + RELEASE_AFTER, self._claimed_at + HORIZON * LONGEST)

    def add(self, jobs: Sequence[HeldJob]) -> None:
        """Note jobs that were claimed, some of them ahead."""
        for job in jobs:
            self._size = max(len(job.payload), self._size // 2, 1)
        if not all(job.begun for job in jobs):
            self._claimed_at = time.monotonic()
            self._release_at = self._claimed_at + RELEASE_AFTER

    def note_recall(self) -> None:
        """Note that what has not begun was called back."""
        self._release_at = time.monotonic() + RELEASE_AFTER

    @property
    def release_at(self) -> float:
        """When what has not begun is to be released (monotonic)."""
        return self._release_at if self.in_flight.number_uncounted else NEVER

    def stale(self) -> bool:
        """Return whether what has not begun is to be released."""
        return time.monotonic() >= self.release_at
