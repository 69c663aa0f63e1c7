"""How long a job may run: until it is ended from outside, and in a transaction; and from when on its time runs.

``timeout`` is in execute.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..backend import VTQueueBackend
from ..core.job import ClaimKey, HeldJob

LONGEST_TRANSACTION = 5.0  # seconds: other connections cannot write meanwhile; a task's own ``timeout`` replaces it


def longest_runs(jobs: Sequence[HeldJob], backend: VTQueueBackend) -> list[float]:
    """Return for each job the seconds after which it is ended: its ``hard_timeout``, else ``max_runtime``."""
    known = {each: backend.policy_of(*each) for each in {(job.queue_name, job.task_path) for job in jobs}}
    policies = [known[job.queue_name, job.task_path] for job in jobs]
    return [policy.hard_timeout or policy.max_runtime for policy in policies]


def transaction_seconds(job: HeldJob, backend: VTQueueBackend) -> float:
    """Return the seconds that the transaction of a transactional job gets."""
    own = backend.task_options(job.task_path).get("timeout")
    of_queue = backend.settings.policy(job.queue_name).timeout
    return own or min(of_queue or LONGEST_TRANSACTION, LONGEST_TRANSACTION)


# -- What the thread of a job tells the control loop ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskFound:
    """The task of a job with a ``hard_timeout`` of its own is loaded: it may not have been when the job was claimed."""

    key: ClaimKey


@dataclass(frozen=True, slots=True)
class TransactionWaits:
    """A transactional job waits for the right to write; meanwhile its time does not run."""

    key: ClaimKey


@dataclass(frozen=True, slots=True)
class TransactionBegun:
    """The transaction of a transactional job has begun: its time runs from now on."""

    key: ClaimKey


Notice = TaskFound | TransactionWaits | TransactionBegun
Notify = Callable[[Notice], None]


def ignore(notice: Notice) -> None:
    """Take no notice: for jobs that run inline, one by one."""
