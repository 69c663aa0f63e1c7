"""The outcome of a job, and its announcement.

An outcome is a value. Settling it is the control loop's work; announcing it comes after the commit.
"""

from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import cast

from django.utils.module_loading import import_string

from ..backend import VTQueueBackend
from ..core.failures import from_task
from ..core.job import HeldJob
from ..core.settlement import Settlement, released
from ..exceptions import TaskTimeout
from ..queue.back_pressure import publishes_as_a_job
from ..tasks.compat import TaskResult, task_finished
from ..tasks.results import result_of_letter
from ..tasks.signals import send


class Settled(Enum):
    """Whether the settlement of an outcome was made."""

    OPEN = auto()  # not yet: the control loop does it
    DONE = auto()
    LOST = auto()  # it could not be: another worker holds the job


@dataclass(slots=True)
class Outcome:
    """What came of one execution; ``seconds``: how long it took.

    ``result``: what ``task_finished`` is sent with; None for a raw job, and for a success without a receiver.
    """

    job: HeldJob
    settlement: Settlement
    result: TaskResult | None
    exception: BaseException | None
    seconds: float
    settled: Settled = Settled.OPEN

    @property
    def has_only_loaded(self) -> bool:
        """Whether the job was held to load its task, and did."""
        return self.job.to_load and self.settlement.uses_no_attempt


def has_receivers(outcome: Outcome) -> bool:
    """Return whether ``task_finished`` is sent for an outcome: it has ended the job, and has a result to tell of."""
    return outcome.result is not None and not outcome.settlement.goes_on


def announce(outcome: Outcome, backend: VTQueueBackend) -> bool:
    """Send ``task_finished`` for an outcome that has receivers; return whether it was sent.

    To be called after the commit that stored the outcome.
    """
    if not has_receivers(outcome):
        return False
    with suppress(TaskTimeout):  # it has raised what the task had raised: nothing is timed here
        _send(cast(TaskResult, outcome.result), outcome.exception, backend)
    return True


@publishes_as_a_job
def _send(result: TaskResult, exception: BaseException | None, backend: VTQueueBackend) -> None:
    """Send ``task_finished``; for a failure from inside ``except``, so that Django's logger finds the traceback."""
    try:
        if exception is not None:
            raise exception
    except BaseException as error:
        BaseException.with_traceback(error, from_task(error))
        send(task_finished, type(backend), result)
    else:
        send(task_finished, type(backend), result)


def burial(settlement: Settlement, backend: VTQueueBackend) -> Outcome:
    """Return the outcome of a job that became a dead letter without being executed to its end.

    Its last holder died, it was cancelled and not started again, it has expired, or its row cannot be read.
    """
    job, failure = settlement.job, settlement.failure
    assert failure  # it is in the letter
    error = import_string(failure.exception_class)(failure.message)  # one of ours: no task has raised it
    result = result_of_letter(settlement, backend.alias) if job.task_path else None
    return Outcome(job, settlement, result, error, 0.0)


def not_executed(job: HeldJob) -> Outcome:
    """Return the outcome of a job that was not executed: another worker may have it at once."""
    return Outcome(job, released(job), None, None, 0.0)
