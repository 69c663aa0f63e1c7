"""The leases of the jobs in flight: they are kept up, and what is not finished is given back."""

import random
import time
from collections.abc import Sequence

from ..backend import VTQueueBackend
from ..conf import DEFAULT_BACKOFF
from ..core import history
from ..core.backoff import backoff_delay
from ..core.clock import NEVER, SECOND, microseconds
from ..core.expiry import Takeover
from ..core.failures import Failure, recorded
from ..core.job import HeldJob, Key, Settlement, broken_off, exhausted, failed, interrupted, released
from ..engines import Engine
from ..exceptions import TaskTimeout, WorkerDied
from ..execution.execute import longest_runs
from ..queue.settling import settle
from .in_flight import InFlight

GIVEN_BACK_AFTER = SECOND  # until a job whose code may still be running is visible again


class Leases:
    """The leases of the jobs in flight of one worker."""

    def __init__(self, engine: Engine, worker_id: str, backend: VTQueueBackend, in_flight: InFlight) -> None:
        self.engine, self.worker_id, self.backend, self.in_flight = engine, worker_id, backend, in_flight
        self.renew_at = NEVER  # monotonic: a wall clock that steps must not delay it
        self.renew_by = NEVER  # monotonic: when another process is to renew them, if this one cannot
        self.takeover = Takeover()
        self._ends_at = NEVER  # monotonic: when the first of the leases ends

    def add(self, jobs: Sequence[HeldJob]) -> None:
        """Begin to keep the leases of jobs up."""
        now, instant = time.monotonic(), self.engine.now()
        for job in jobs:
            lease, left = job.lease_us / SECOND, (job.visible_at - instant) / SECOND  # its commit may have taken long
            self.renew_at = min(self.renew_at, now + min(left - 2 * lease / 3, lease / 3))
            self.renew_by = min(self.renew_by, now + left - lease / 2)
            self._ends_at = min(self._ends_at, now + left)

    def shortest_lease(self, otherwise: float) -> float:
        """Return the shortest lease that is held, in seconds."""
        shortest = min((job.lease_us for job in self.in_flight), default=None)
        return otherwise if shortest is None else shortest / SECOND

    def look(self, now: int) -> None:
        """Notice a gap that ends now; after one in which a lease may have ended what is held is renewed at once."""
        if self.takeover.look(now) > self.shortest_lease(NEVER) / 2:
            self.renew_at = 0.0

    def left(self) -> float:
        """Return the seconds that are left of the lease that ends first; less than 0 if it has ended."""
        return self._ends_at - time.monotonic()

    def renew(self) -> None:
        """Hide what is held for one lease more, from now; what turns out to be lost is renewed no longer.

        A transaction of its own, before anything else in a turn. If it fails it is due again at once.
        """
        if time.monotonic() < self.renew_at:
            return
        self.renew_at = 0.0
        policy = self.backend.settings.policy
        jobs = [job for job in self.in_flight if policy(job.queue_name).renews(job.copies)]
        lost: set[Key] = set()
        began = time.monotonic()
        if jobs:
            with self.engine.transaction():
                began = time.monotonic()  # the leases are counted from here, however long the commit takes
                lost = self.engine.renew(jobs, self.engine.now(), afresh=self.takeover.stepped_back)
            self.takeover.stepped_back = False
        kept = [job for job in jobs if job.key not in lost]
        shortest = min(map(third, kept), default=NEVER)
        self.renew_at, self.renew_by, self._ends_at = (began + thirds * shortest for thirds in (1, 1.5, 3))

    def release_unknown(self) -> None:
        """Give back rows that are held in our name without our knowing: a claim whose commit had an unknown end."""
        unknown = [job for job in self.engine.held_by(self.worker_id) if job.key not in self.in_flight]
        if unknown:
            with self.engine.transaction():
                settle(self.engine, [released(job) for job in unknown], self.backend.settings.letter_ttl)

    def given_back(self, finished: Sequence[HeldJob]) -> list[Settlement]:
        """Return the settlements that give back what has not finished; the attempt is not counted.

        Its code may still run, so it is hidden for a second, before whose end the process must have ended.
        What was told to end and did not has timed out.
        """
        done = {job.key for job in finished}
        now = self.engine.now()
        until = now + GIVEN_BACK_AFTER
        return [
            timed_out(self.backend, job, now) if self.in_flight.told(job.key) else give_back(job, now, until)
            for job in self.in_flight
            if job.key not in done
        ]


def third(job: HeldJob) -> float:
    """Return the time between two renewals of a job, in seconds."""
    return job.lease_us / 3 / SECOND


def give_back(job: HeldJob, now: int, hidden_until: int | None) -> Settlement:
    """Return the settlement of a job that is given back, with a note of its attempt if it had begun."""
    return broken_off(job, now, hidden_until) if job.begun else released(job)


# -- jobs that could not end by themselves -----------------------------------------------------------------------------
#
# Their holder died, or their time was up.


def after_death(backend: VTQueueBackend, held: Sequence[HeldJob], now: int, *, overdue: bool) -> list[Settlement]:
    """Return the settlements of the jobs that a worker held when it died.

    ``overdue``: it was killed because one of them was over its time limit. That one has timed out, and the others are
    given back without an attempt, but for those that may begin only once.
    """
    begun = [job for job in held if job.begun]
    ran = {job.key: (now - (job.started_at or now)) / SECOND for job in begun} if overdue else {}
    limits = longest_runs(begun, backend)
    over = {job.key for job, seconds in zip(begun, limits, strict=True) if ran.get(job.key, 0) >= seconds}
    if ran and not over:  # this process does not know the task
        over = {max(ran, key=ran.__getitem__)}

    def ending(job: HeldJob) -> Settlement:
        if job.key in over:
            return timed_out(backend, job, now)
        if not job.begun or (over and job.max_attempts != 1):
            return released(job)
        return _died(backend, job, now)

    return [ending(job) for job in held]


def _died(backend: VTQueueBackend, job: HeldJob, now: int) -> Settlement:
    """Return the settlement of a job that ran when its worker died.

    The first crash may have another cause than this job: it goes on at once. From the second on it waits for its
    backoff.
    """
    failure = recorded(WorkerDied, f"Its worker, {job.worker_id}, died.")
    return _ended(backend, job, history.WORKER_DIED, failure, history.crashes(job.history), now)


def timed_out(backend: VTQueueBackend, job: HeldJob, now: int) -> Settlement:
    """Return the settlement of a job that ran for too long and did not end by itself."""
    seconds = (now - (job.started_at or now)) / SECOND
    failure = recorded(TaskTimeout, f"It was ended after {seconds:.1f} s; it had not ended by itself.")
    return _ended(backend, job, history.TIMED_OUT, failure, job.attempts, now)


def _ended(backend: VTQueueBackend, job: HeldJob, outcome: str, failure: Failure, times: int, now: int) -> Settlement:
    """Return the settlement of a failed attempt, with the backoff of the ``times``-th time (0: none, and at its place).

    A backoff that is a function is not called here: it is the task's code.
    """
    letter_ttl = backend.settings.letter_ttl(job.queue_name)
    if not times:
        return interrupted(job, outcome, failure, now, letter_ttl)
    policy = backend.settings.policy(job.queue_name)
    backoff = backend.task_options(job.task_path).get("backoff", policy.backoff)
    delay = None
    if not exhausted(job):
        seconds = DEFAULT_BACKOFF if callable(backoff) else backoff
        delay = microseconds(backoff_delay(seconds, policy.backoff_max, times, random.random()))
    return failed(job, outcome, failure, now, delay, letter_ttl)
