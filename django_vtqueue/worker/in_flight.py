"""The table of the jobs that a worker holds, with the clock of each: how long its code may still run."""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ..core.clock import NEVER
from ..core.job import ClaimKey, HeldJob

HUNG_AFTER = 10.0  # seconds for a task to end after TaskTimeout was raised in it because its time was up


@dataclass(slots=True)
class Flight:
    """A job in flight. ``ends_at``: when its time is up; ``asked_to_end_at``: when it was asked to (both monotonic).

    ``uncounted``: its attempt is not in its row yet. True of a job that was claimed ahead: the turn after its code has
    begun writes the attempt (``begun_uncounted``, ``note_counted``). False of a transactional job: the turn that starts
    it has written the attempt.
    """

    job: HeldJob
    ends_at: float
    uncounted: bool
    finished: bool = False
    asked_to_end_at: float = NEVER


class InFlight:
    """The jobs that one worker holds: each once, whichever of its claims holds it."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}  # by the job's id
        self.number_uncounted = 0  # jobs whose attempt is not in their rows

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, key: ClaimKey) -> bool:
        return self._flight(key) is not None

    def __iter__(self) -> Iterator[HeldJob]:
        return (flight.job for flight in self._flights.values())

    def jobs(self) -> list[HeldJob]:
        """Return them, from any thread: the loop may add others meanwhile."""
        return [flight.job for flight in list(self._flights.values())]

    def get(self, key: ClaimKey) -> HeldJob | None:
        flight = self._flight(key)
        return flight.job if flight else None

    def _flight(self, key: ClaimKey) -> Flight | None:
        job_id, claims = key
        flight = self._flights.get(job_id)
        return flight if flight and flight.job.claims == claims else None

    def add(self, jobs: Sequence[HeldJob], seconds: Sequence[float], waiting: Collection[ClaimKey]) -> None:
        """Begin to hold jobs, each of which may run for so many seconds; the time of those ``waiting`` runs later."""
        now = time.monotonic()
        for job, longest in zip(jobs, seconds, strict=True):
            waits = job.key in waiting
            flight = Flight(job, NEVER if waits else now + longest, uncounted=not (waits or job.begun))
            self._flights[job.id] = flight
            self.number_uncounted += flight.uncounted

    def take_over(self, job: HeldJob) -> bool:
        """Have a job that is held already be held by this new claim of its row; return whether it is.

        Its code goes on, and what comes of it settles the new claim.
        """
        if not (flight := self._flights.get(job.id)):
            return False
        flight.job.take_over(job)
        self.note_counted([job] if job.begun else [])
        return True

    def start_clock(self, key: ClaimKey, seconds: float) -> None:
        """Have the time of a job run from now on."""
        if flight := self._flight(key):
            flight.ends_at = time.monotonic() + seconds

    def stop_clock(self, key: ClaimKey) -> float:
        """Have the time of a job not be up any more; return when it would have been. Any thread may do so."""
        if not (flight := self._flight(key)):
            return NEVER
        ends_at, flight.ends_at = flight.ends_at, NEVER
        return ends_at

    def finish(self, key: ClaimKey) -> None:
        """Note that the code of a job has ended: it cannot be over its time any more, however late it is settled."""
        if flight := self._flight(key):
            flight.finished, flight.ends_at, flight.asked_to_end_at = True, NEVER, NEVER

    def remove(self, key: ClaimKey) -> None:
        """Hold a job no longer."""
        if flight := self._flight(key):
            del self._flights[flight.job.id]
            self.number_uncounted -= flight.uncounted

    def begun_uncounted(self) -> list[HeldJob]:
        """Return the jobs whose attempt is to be counted now: a thread has taken them, and they have not finished."""
        if not self.number_uncounted:
            return []
        flights = self._flights.values()
        return [each.job for each in flights if each.uncounted and not each.finished and each.job.begun]

    def note_counted(self, jobs: Sequence[HeldJob]) -> None:
        """Note that the attempts of jobs are counted in their rows."""
        for job in jobs:
            if (flight := self._flight(job.key)) and flight.uncounted:
                flight.uncounted = False
                self.number_uncounted -= 1

    def note_stop(self) -> None:
        """Tell jobs that their worker is to stop: those that can go on elsewhere give themselves back."""
        for flight in self._flights.values():
            flight.job.worker_stops = True

    def next_end(self) -> float:
        """Return when the next job's time is up (monotonic); in any thread."""
        return min([flight.ends_at for flight in [*self._flights.values()]], default=NEVER)

    def over_time(self) -> list[HeldJob]:
        """Return the jobs whose time is up, each of them once."""
        now = time.monotonic()
        over_time = [flight for flight in self._flights.values() if flight.ends_at <= now]
        for flight in over_time:
            flight.ends_at, flight.asked_to_end_at = NEVER, now
        return [flight.job for flight in over_time]

    def asked_to_end(self, key: ClaimKey) -> bool:
        """Return whether a job was told to end because its time was up."""
        return (flight := self._flight(key)) is not None and flight.asked_to_end_at < NEVER

    def hung(self) -> list[HeldJob]:
        """Return the jobs that go on though they were told to end."""
        now = time.monotonic()
        return [flight.job for flight in self._flights.values() if now - flight.asked_to_end_at > HUNG_AFTER]
