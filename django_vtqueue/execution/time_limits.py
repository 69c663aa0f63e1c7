"""How long a job may run: until TaskTimeout is raised in it, until it is ended from outside, and in a transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..backend import VTQueueBackend
from ..conf import Policy
from ..core.job import HeldJob

LONGEST_TRANSACTION = 5.0  # seconds: other connections cannot write meanwhile; a task's own ``timeout`` replaces it


def timeout_of(options: Mapping[str, Any], policy: Policy) -> float | None:
    """Return the seconds after which TaskTimeout is raised in a task with these options; None: never."""
    seconds: float | None = options.get("timeout", policy.timeout)
    return seconds


def longest_runs(jobs: Sequence[HeldJob], backend: VTQueueBackend) -> list[float]:
    """Return for each job the seconds after which it is ended: its ``hard_timeout``, else ``max_runtime``."""
    known: dict[tuple[str, str], float] = {}
    for queue_name, task_path in {(job.queue_name, job.task_path) for job in jobs}:
        policy = backend.settings.policy(queue_name)
        own = backend.task_options(task_path).get("hard_timeout", policy.hard_timeout)
        known[queue_name, task_path] = own or policy.max_runtime
    return [known[job.queue_name, job.task_path] for job in jobs]


def transaction_seconds(job: HeldJob, backend: VTQueueBackend) -> float:
    """Return the seconds that the transaction of a transactional job gets."""
    own = backend.task_options(job.task_path).get("timeout")
    of_queue = backend.settings.policy(job.queue_name).timeout
    return own or min(of_queue or LONGEST_TRANSACTION, LONGEST_TRANSACTION)
