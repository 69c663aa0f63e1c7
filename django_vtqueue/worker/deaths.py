"""The settlements of jobs that could not end by themselves: their worker died, or their time was up."""

from collections.abc import Sequence

from ..backend import VTQueueBackend
from ..core import history
from ..core.clock import SECOND, microseconds
from ..core.failures import Failure, recorded
from ..core.job import ClaimKey, HeldJob
from ..core.settlement import Settlement, exhausted, failed, interrupted, released
from ..exceptions import TaskTimeout, WorkerDied
from ..execution.time_limits import longest_runs
from ..tasks.task import loaded_task


def after_death(backend: VTQueueBackend, held: Sequence[HeldJob], now: int, *, over_time: bool) -> list[Settlement]:
    """Return the settlements of the jobs that a worker held when it died.

    ``over_time``: it was killed because one of them was over its time limit. That one has timed out, if it has not
    ended at the last moment, and the others are released, but for those that may begin only once.
    """
    begun = [job for job in held if job.begun]
    over = jobs_over_time(backend, begun, now) if over_time else set()

    def ending(job: HeldJob) -> Settlement:
        if job.key in over:
            return timed_out(backend, job, now)
        if not job.begun or (over_time and job.max_attempts != 1):
            return released(job)
        return _died(backend, job, now)

    return [ending(job) for job in held]


def jobs_over_time(backend: VTQueueBackend, begun: Sequence[HeldJob], now: int) -> set[ClaimKey]:
    """Return which of these jobs have run for longer than they may.

    If there is none, it is that one which ran longest of those whose task, and limit, this process does not know.
    """
    limits = longest_runs(begun, backend)
    over = {job.key for job, seconds in zip(begun, limits, strict=True) if _ran(job, now) >= seconds}
    unknown = [job for job in begun if job.task_path and not loaded_task(job.task_path)]
    if not over and unknown:
        over = {max(unknown, key=lambda job: _ran(job, now)).key}
    return over


def _ran(job: HeldJob, now: int) -> float:
    return (now - (job.started_at or now)) / SECOND


def _died(backend: VTQueueBackend, job: HeldJob, now: int) -> Settlement:
    """Return the settlement of a job that ran when its worker died.

    The first crash may have another cause than this job: it goes on at once. From the second on it waits for its
    backoff.
    """
    failure = recorded(WorkerDied, f"Its worker, {job.worker_id}, died.")
    return _ended(backend, job, history.WORKER_DIED, failure, history.crashes(job.history), now)


def timed_out(backend: VTQueueBackend, job: HeldJob, now: int) -> Settlement:
    """Return the settlement of a job that ran for too long and did not end by itself."""
    failure = recorded(TaskTimeout, f"It was ended after {_ran(job, now):.1f} s; it had not ended by itself.")
    return _ended(backend, job, history.TIMED_OUT, failure, job.attempts, now)


def _ended(backend: VTQueueBackend, job: HeldJob, outcome: str, failure: Failure, times: int, now: int) -> Settlement:
    """Return the settlement of a failed attempt; ``times``: of the backoff (0: none, and at its place)."""
    if not times:
        return interrupted(job, outcome, failure, now)
    policy = backend.policy_of(job.queue_name, job.task_path)
    delay = None if exhausted(job) else microseconds(policy.delay(times))
    return failed(job, outcome, failure, now, delay)
