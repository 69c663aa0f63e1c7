"""How a job goes on that could not end by itself: its holder died, or its time was up."""

import random

from .. import history
from ..backend import VTQueueBackend
from ..clock import SECOND, microseconds
from ..conf import DEFAULT_BACKOFF
from ..exceptions import TaskTimeout, WorkerDied
from ..failures import Failure, recorded
from ..jobs import HeldJob, Settlement, exhausted, failed, interrupted, released
from ..retry import backoff_delay


def after_death(backend: VTQueueBackend, job: HeldJob, what: str, now: int) -> Settlement:
    """Return the settlement of a job that was running when ``what`` died.

    The first crash of a job may be anybody's fault: it goes on at once. From the second on it waits for its backoff.
    One that had not begun is given back.
    """
    if not job.begun:
        return released(job)
    return _ended(
        backend, job, history.WORKER_DIED, recorded(WorkerDied, f"{what} died."), history.crashes(job.history), now
    )


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
