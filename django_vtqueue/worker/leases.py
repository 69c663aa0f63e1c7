"""The leases of the jobs in flight: they are renewed, and released at the end of the worker."""

import random
import time
from collections.abc import Container, Sequence

from ..backend import VTQueueBackend
from ..core.clock import NEVER, SECOND
from ..core.gaps import GapWatch
from ..core.grace import RENEWED_AFTER, RENEWED_BY
from ..core.job import ClaimKey, HeldJob
from ..core.settlement import Settlement, broken_off, released
from ..engines import Engine
from ..queue.settling import settle
from .deaths import timed_out
from .in_flight import InFlight

TRY_LOCKED = 0.25  # seconds between two tries to renew what is locked
PATIENCE = 1.0  # seconds for which the loop waits for a lock of a row at the most
OF_LEASE = 0.1  # of the shortest lease, if that is less
HIDDEN_FOR = SECOND  # a job whose code may still be running, after its release


class Leases:
    """The leases of the jobs in flight of one worker.

    ``locked``: those whose rows another transaction has locked, by the last try to renew them. They are not lost.
    """

    def __init__(self, engine: Engine, worker_id: str, backend: VTQueueBackend, in_flight: InFlight) -> None:
        self.engine, self.worker_id, self.backend, self.in_flight = engine, worker_id, backend, in_flight
        self.renew_at = NEVER  # monotonic: a wall clock that steps must not delay it
        self.renew_by = NEVER  # monotonic: when another process is to renew them, if this one cannot
        self.gaps = GapWatch()
        self.locked: set[ClaimKey] = set()
        self._try_at = NEVER  # monotonic: when to try again what is locked
        self._passed_over = 0  # how many renewals in a row have found something locked
        self._afresh = False  # the clock has gone back since something is locked
        self._ends_at = NEVER  # monotonic: when the first of the leases ends
        engine.patience = PATIENCE

    def add(self, jobs: Sequence[HeldJob]) -> None:
        """Begin to renew the leases of jobs."""
        now, instant = time.monotonic(), self.engine.now()
        for job in jobs:
            lease = job.lease_us / SECOND
            given_at = now + (job.visible_at - instant) / SECOND - lease  # its commit may have taken long
            self.renew_at = min(self.renew_at, min(given_at, now) + lease * RENEWED_AFTER)
            self.renew_by = min(self.renew_by, given_at + lease * RENEWED_BY)
            self._ends_at = min(self._ends_at, given_at + lease)
            self._be_patient(lease)

    def _be_patient(self, lease: float) -> None:
        """Have nothing wait for a lock for more than a tenth of a lease, nor for more than before."""
        self.engine.patience = min(self.engine.patience or PATIENCE, OF_LEASE * lease)

    def renews(self, job: HeldJob) -> bool:
        """Return whether the lease of a job is kept up."""
        return self.backend.settings.policy(job.queue_name).renews(job.copies)

    def next_at(self) -> float:
        """Return when there is something to renew (monotonic)."""
        return min(self.renew_at, self._try_at)

    def try_again(self, key: ClaimKey) -> None:
        """Look at once whether a job is still locked, for its code has ended: the lock may have been its own."""
        if key in self.locked:
            self._try_at = 0.0

    def shortest_lease(self, otherwise: float) -> float:
        """Return the shortest lease that is held, in seconds."""
        shortest = min((job.lease_us for job in self.in_flight), default=None)
        return otherwise if shortest is None else shortest / SECOND

    def look(self, now: int) -> None:
        """Notice a gap that ends now; after a long one, in which a lease may have ended, renew all at once."""
        if self.gaps.look(now) > self.shortest_lease(NEVER) / 2:
            self.renew_at = 0.0

    def left(self) -> float:
        """Return the seconds that are left of the lease that ends first; less than 0 if it has ended."""
        return self._ends_at - time.monotonic()

    def renew(self) -> None:
        """Renew what is held: each job for its lease, from now on.

        A lost job is tried again with the others, in vain, until its code ends; it makes no renewal come sooner.

        It has a transaction of its own, before anything else in a turn. If that fails, the next turn tries again. What
        is locked is tried again soon, alone; at each renewal, and when two of them have passed it over, its lock is
        waited for.
        """
        if time.monotonic() >= self.renew_at:
            self._renew_all()
            self._passed_over = self._passed_over + 1 if self.locked else 0
            self._renew_in_line()
        elif time.monotonic() >= self._try_at:
            self._renew([job for job in self.in_flight if job.key in self.locked], self._afresh)
            if self._passed_over > 1:
                self._renew_in_line()

    def _renew_all(self) -> None:
        self.renew_at = 0.0
        jobs = [job for job in self.in_flight if self.renews(job)]
        began, lost = self._renew(jobs, self._afresh or self.gaps.stepped_back)
        self.gaps.stepped_back = self.gaps.stepped_back and not jobs
        kept = [job for job in jobs if job.key not in lost]
        shortest = min((job.lease_us / SECOND for job in kept), default=NEVER)
        parts = (RENEWED_AFTER, RENEWED_BY, 1)
        self.renew_at, self.renew_by, self._ends_at = (began + part * shortest for part in parts)
        self.engine.patience = PATIENCE
        self._be_patient(shortest)

    def _renew(self, jobs: Sequence[HeldJob], afresh: bool) -> tuple[float, set[ClaimKey]]:
        """Renew leases, but for those that are locked; return since when they last (monotonic), and which are lost."""
        began, lost, locked = time.monotonic(), set[ClaimKey](), set[ClaimKey]()
        if jobs:
            with self.engine.transaction():
                began = time.monotonic()  # the leases are counted from here, however long the commit takes
                lost, locked = self.engine.renew_unlocked(jobs, self.engine.now(), afresh=afresh)
        self.locked, self._afresh = locked, afresh and bool(locked)
        self._try_at = time.monotonic() + TRY_LOCKED if locked else NEVER
        return began, lost

    def _renew_in_line(self) -> None:
        """Renew what is locked, each job alone and waiting for its lock, until one wait was in vain.

        Else a row that many short transactions lock, one after the other, would never be found free.
        """
        jobs = [job for job in self.in_flight if job.key in self.locked]
        for job in random.sample(jobs, len(jobs)):
            if not renewed_in_line(self.engine, job, afresh=self._afresh):
                self.gaps.locked_in_vain(self.engine.patience or 0.0)
                return
            self.locked.discard(job.key)

    def release_unknown(self) -> None:
        """Release rows that this worker holds unknowingly: it never learned whether their claim was committed."""
        unknown = [job for job in self.engine.held_by(self.worker_id) if job.key not in self.in_flight]
        if unknown:
            with self.engine.transaction():
                settle(self.engine, [released(job) for job in unknown])

    def endings(self, others: Container[ClaimKey]) -> list[Settlement]:
        """Return the settlements of all jobs but some ``others``, for a worker that ends: they are released.

        Their code may still run, so they are hidden for a second; the process must have ended before that. A job that
        was told to end and did not has timed out.
        """
        now = self.engine.now()
        until = now + HIDDEN_FOR
        return [
            timed_out(self.backend, job, now) if self.in_flight.told(job.key) else broken_off(job, now, until)
            for job in self.in_flight
            if job.key not in others
        ]


def renewed_in_line(engine: Engine, job: HeldJob, *, afresh: bool = False) -> bool:
    """Renew a lease, waiting for the lock of its row as others do; return False if that was in vain."""
    try:
        with engine.transaction():
            engine.renew([job], engine.now(), afresh=afresh)
        return True
    except Exception as error:
        if not engine.waited_in_vain(error):
            raise
        return False
