"""What goes between running jobs and their rows once a second: cancel requests in, progress out."""

import time

from ..core.job import ClaimKey
from ..engines import Engine
from .in_flight import InFlight
from .leases import Leases

PERIOD = 0.9  # seconds; a turn comes at least once a second


class CancelAndProgress:
    """Passes cancel requests on to the jobs that a worker runs, and writes their progress, once a second."""

    def __init__(self, engine: Engine, in_flight: InFlight, leases: Leases) -> None:
        self.engine, self.in_flight, self.leases = engine, in_flight, leases
        self._at = 0.0  # monotonic
        self._look = True

    def look_again(self) -> None:
        """Have cancel requests read again, for another connection has written."""
        self._look = True

    def do_what_is_due(self) -> None:
        """Pass on what is new, if it is time to."""
        if not self.in_flight or time.monotonic() < self._at:
            return
        self._at = time.monotonic() + PERIOD
        self._read_requests()
        self._write_progress()

    def _read_requests(self) -> None:
        """Tell jobs that they were cancelled."""
        requests = self.engine.cancel_requests(list(self.in_flight)) if self._look else {}
        requests |= self._look_at_copies() if self._look else {}
        self._look = False
        for job in self.in_flight:
            if job.key in requests and job.cancelled_by is None:
                job.cancelled_by = requests[job.key]

    def _look_at_copies(self) -> dict[ClaimKey, str]:
        """Note how many copies of a job run, for its lease; return which are to end, for another was first, say."""
        ours = [job for job in self.in_flight if job.copies and job.begun]
        running = self.engine.copies(ours) if ours else {}
        requests = {}
        for job in ours:
            job.copies, by = running.get(job.key, (job.copies, ""))
            if by is not None:
                requests[job.key] = by
        return requests

    def _write_progress(self) -> None:
        """Write how far jobs are, in one statement for all of them."""
        if changed := [(job, progress) for job in self.in_flight if (progress := job.unsaved_progress)]:
            with self.engine.transaction():
                self.engine.write_progress(changed)
                self.leases.renew_late()
            for job, progress in changed:
                job.progress_in_row = progress
