"""One attempt at a job, as its thread knows it: the options that hold, the call, and the outcome with a settlement."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..backend import VTQueueBackend
from ..conf import Policy
from ..core import clock, states
from ..core.job import HeldJob
from ..core.settlement import Settlement
from ..tasks.compat import Task, TaskResult, TaskResultStatus, task_finished
from ..tasks.ledger import Ledger
from ..tasks.results import change, result_of_call, with_changes
from ..tasks.signals import received
from ..tasks.signatures import mask_of
from .outcomes import Outcome


@dataclass(slots=True)
class Attempt:
    """What is known of an attempt at a job; for ``inline`` see ``execute``."""

    job: HeldJob
    backend: VTQueueBackend
    inline: bool = False
    policy: Policy = field(init=False)  # of the queue, and with the task's own options once it is found
    options: Mapping[str, Any] = field(default_factory=dict)  # those of the task, once it is found
    call: tuple[Task, list[Any], dict[str, Any]] | None = None  # of a task that was found, as it is stored
    ledger: Ledger | None = None  # of a task that takes the context
    returned: Any = None
    final: bool = False  # no further attempt, however many are left: the call has returned
    _result: TaskResult | None = None
    _secrets: list[str] | None = None
    _began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.policy = self.backend.settings.policy(self.job.queue_name)

    @property
    def result(self) -> TaskResult | None:
        """What signals are sent of a task, made when it is first needed; None if none was found to call."""
        if self.call and self._result is None:
            (task, args, kwargs), job, alias = self.call, self.job, self.backend.alias
            if (task.queue_name, task.priority, task.backend) != (job.queue_name, job.priority, alias):
                task = with_changes(task, queue_name=job.queue_name, priority=job.priority, backend=alias)
            self._result = result_of_call(job, task, args, kwargs)
        return self._result

    def secrets(self) -> list[str]:
        """Return what the texts of this attempt must not repeat; made when the first of them is written.

        Where nothing was called (the task is gone, its payload damaged) there is nothing that could.
        """
        if self._secrets is None:
            job, found = self.job, self.call or not self.job.task_path
            mask = mask_of(job.task_path, job.queue_name, self.backend.database) if found else None
            self._secrets = mask.texts(job.payload) if mask else []
        return self._secrets

    def conclude(self, settlement: Settlement, error: BaseException | None = None) -> Outcome:
        """Return the outcome with this settlement; the result is completed if a receiver or the caller gets it."""
        needed = self.inline or error is not None or received(task_finished)
        if result := self.result if needed else None:
            change(
                result,
                status=TaskResultStatus(states.of_task(settlement.state)),
                finished_at=None if settlement.finished_at is None else clock.from_instant(settlement.finished_at),
                _return_value=self.returned if settlement.state == states.SUCCESSFUL else None,
            )
        return Outcome(self.job, settlement, result, error, time.perf_counter() - self._began)
