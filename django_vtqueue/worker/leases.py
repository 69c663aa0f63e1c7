"""The leases of the jobs in flight: they are renewed as long as their code runs."""

import time
from collections.abc import Sequence

from ..backend import VTQueueBackend
from ..core.clock import NEVER, SECOND
from ..core.gaps import GapWatch
from ..core.grace import RENEWED_AFTER, RENEWED_BY
from ..core.job import ClaimKey, HeldJob
from ..core.settlement import released
from ..engines import Engine
from ..queue.settling import settle
from .in_flight import InFlight


class Leases:
    """The leases of the jobs in flight of one worker."""

    def __init__(self, engine: Engine, worker_id: str, backend: VTQueueBackend, in_flight: InFlight) -> None:
        self.engine, self.worker_id, self.backend, self.in_flight = engine, worker_id, backend, in_flight
        self.renew_at = NEVER  # monotonic: a wall clock that steps must not delay it
        self.renew_by = NEVER  # monotonic: when another thread or process is to renew them, if this loop cannot
        self.locked = False  # the last renewal has passed over locked rows: another thread is to stand in their line
        self.gaps = GapWatch()
        self.refused: set[ClaimKey] = set()  # their code has ended, their rows refuse that: held until the lease ends
        self._ends_at = NEVER  # monotonic: when the first of the leases ends

    def add(self, jobs: Sequence[HeldJob]) -> None:
        """Begin to renew the leases of jobs."""
        now, instant = time.monotonic(), self.engine.now()
        for job in jobs:
            lease = job.lease_us / SECOND
            given_at = now + (job.visible_at - instant) / SECOND - lease  # its commit may have taken long
            self.renew_at = min(self.renew_at, min(given_at, now) + lease * RENEWED_AFTER)
            self.renew_by = min(self.renew_by, given_at + lease * RENEWED_BY)
            self._ends_at = min(self._ends_at, given_at + lease)

    def shortest_lease(self, otherwise: float) -> float:
        """Return the shortest lease that is held, in seconds."""
        shortest = min((job.lease_us for job in self.in_flight), default=None)
        return otherwise if shortest is None else shortest / SECOND

    def notice_gap(self, now: int) -> None:
        """Notice a gap that ends now; after a long one, in which a lease may have ended, renew all at once."""
        if self.gaps.notice_gap(now) > self.shortest_lease(NEVER) / 2:
            self.renew_at = 0.0

    def left(self) -> float:
        """Return the seconds that are left of the lease that ends first; less than 0 if it has ended."""
        return self._ends_at - time.monotonic()

    def renew(self) -> None:
        """Renew what is held: each job for its lease, from now on.

        A lost job is tried again with the others, in vain, until its code ends; it makes no renewal come sooner.

        It has a transaction of its own, before anything else in a turn. If that fails, the next turn tries again. It
        waits for no locked row; RenewalThread does.
        """
        if time.monotonic() < self.renew_at:
            return
        self.renew_at = 0.0
        jobs = self.renewable()
        lost: set[ClaimKey] = set()
        locked: list[HeldJob] = []
        began = time.monotonic()
        if jobs:
            with self.engine.transaction():
                began = time.monotonic()  # the leases are counted from here, however long the commit takes
                lost, locked = self.engine.renew_unlocked(jobs, self.engine.now(), afresh=self.gaps.stepped_back)
            self.gaps.stepped_back = self.gaps.stepped_back and bool(locked)
        kept = [job for job in jobs if job.key not in lost]
        shortest = min((job.lease_us / SECOND for job in kept), default=NEVER)
        parts = (RENEWED_AFTER, RENEWED_BY, 1)
        self.renew_at, self.renew_by, self._ends_at = (began + part * shortest for part in parts)
        self.locked = bool(locked)

    def renew_late(self) -> None:
        """Renew at the end of a transaction, if that has become due while the transaction waited.

        It may hold locks that keep others from these rows: no lease shall have ended when it commits. ``renew_at``
        stays, so the next turn renews again.
        """
        if time.monotonic() >= self.renew_at:
            self.engine.renew_unlocked(self.renewable(), self.engine.now())

    def renewable(self) -> list[HeldJob]:
        """Return the jobs whose leases are renewed, from any thread."""
        policy = self.backend.settings.policy
        return [job for job in self.in_flight.jobs() if policy(job.queue_name).renews(job.copies)]

    def release_unknown(self) -> None:
        """Release rows that this worker holds unknowingly: it never learned whether their claim was committed.

        Not those in ``refused``: their code has run, and would be run again at once.
        """
        held, now = self.engine.held_by(self.worker_id), self.engine.now()
        self.refused &= {job.key for job in held if job.visible_at > now}
        unknown = [job for job in held if job.key not in self.in_flight and job.key not in self.refused]
        if unknown:
            with self.engine.transaction():
                settle(self.engine, [released(job) for job in unknown])
