"""The clock of each job in flight: when its time is up, as its own thread says it, and as the supervisor is told."""

import time
from threading import Lock

from ..backend import VTQueueBackend
from ..core.clock import NEVER
from ..core.job import ClaimKey
from ..execution.time_limits import longest_runs
from .in_flight import InFlight
from .shared_state import SharedState

TOLD_LATER = 1.0  # seconds: the thread that looks after leases looks five times as often


class JobClocks:
    """The clocks of the jobs of one worker; any thread may set and tell them, for the loop may wait for a lock."""

    def __init__(self, in_flight: InFlight, backend: VTQueueBackend, state: SharedState) -> None:
        self.in_flight, self.backend, self.state = in_flight, backend, state
        self._lock = Lock()

    def tell(self) -> None:
        """Tell the supervisor when the time of the next job is up."""
        with self._lock:  # a thread may set the limit of its job meanwhile
            self.state.ends_at = self.in_flight.next_end()

    def start(self, key: ClaimKey, *, runs: bool) -> None:
        """Have the time of a job run from now on, and tell the supervisor, or have it not run."""
        if job := self.in_flight.get(key):
            seconds = longest_runs([job], self.backend)[0] if runs else NEVER
            with self._lock:
                self.in_flight.start_clock(key, seconds)
                self.state.ends_at = min(self.state.ends_at, time.monotonic() + seconds)

    def stop(self, key: ClaimKey) -> None:
        """Have the time of a job that has ended not be up.

        What has much time left is told to the supervisor later, by the loop or by the thread that looks after leases.
        """
        if self.in_flight.stop_clock(key) < time.monotonic() + TOLD_LATER:
            self.tell()
