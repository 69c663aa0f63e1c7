"""One job to its outcome: the task is called, what it raises is caught, what will be stored is encoded."""

import logging
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any, cast

from django.utils.module_loading import import_string

from ..backend import VTQueueBackend
from ..conf import DEFAULT_BACKOFF, Policy
from ..core import clock, history, states
from ..core.allowed import Invalid, duration
from ..core.encoding import decode, encode_result
from ..core.failures import describe, one_line, shown, storable, summary
from ..core.job import HeldJob
from ..core.masks import replaced
from ..core.settlement import (
    KEPT_FOR_PARENT,
    Settlement,
    cancellation,
    exhausted,
    failed,
    snoozed,
    succeeded,
    suspended,
)
from ..core.steps import Suspend
from ..exceptions import (
    Cancelled,
    DamagedPayload,
    DurableMismatch,
    GiveUp,
    Indescribable,
    PayloadTooLarge,
    Retry,
    Snooze,
    StepError,
    TaskTimeout,
    UnknownTask,
)
from ..queue.back_pressure import publishes_as_a_job
from ..queue.claimed_job import ClaimedJob
from ..queue.pauses import hold_up
from ..runtime.async_code import awaited, awaited_value
from ..runtime.forks import ForksEnd
from ..runtime.timeouts import timekeeper
from ..tasks.children import Children
from ..tasks.compat import Task, TaskError, TaskResult, TaskResultStatus, task_finished, task_started
from ..tasks.context import JobContext
from ..tasks.ledger import Ledger
from ..tasks.results import call_of, change, result_of_call, with_changes
from ..tasks.signals import received
from ..tasks.signatures import mask_of
from ..tasks.task import find_task, options_of, policy_of
from .connections import close_leftovers, refresh_connections
from .outcomes import Outcome
from .time_limits import Notify, TaskFound, ignore
from .transactional import execute_transactional

logger = logging.getLogger("django_vtqueue")

HISTORY_WORDS = {
    Retry: history.RETRY,
    GiveUp: history.GAVE_UP,
    TaskTimeout: history.TIMED_OUT,
    Cancelled: history.CANCELLED,
}
FINAL_ERRORS = (GiveUp, Cancelled, DamagedPayload, StepError)  # exceptions after which there is no further attempt
is_async = lru_cache(maxsize=1000)(iscoroutinefunction)  # which calls five functions
UNKNOWN_TASK_DELAY = 30  # seconds: during a rolling deploy the web process knows a new task before the worker does


@publishes_as_a_job
def execute(
    job: HeldJob, backend: VTQueueBackend, *, inline: bool = False, later: int = 0, tell: Notify = ignore
) -> Outcome:
    """Run one job to its end in this thread.

    ``later``: the microseconds by which it is later than the clock says, for a caller that lets time pass. ``tell`` is
    given, in this thread, what changes the time that the job may take: its task is found, its transaction begins.

    Whatever the task raises is its outcome, SystemExit and KeyboardInterrupt too. Two exceptions go through:
    KeyboardInterrupt with ``inline`` (the caller's own thread and transaction, where Ctrl-C raises it), and a
    TaskTimeout that another thread raises here after the end of the task; Pool makes the outcome of that.
    """
    execution = Execution(job, backend, inline, tell, later)
    refresh_connections(inline=inline)
    try:
        return execution.run()
    except Suspend as error:
        return execution.suspend(error)
    except BaseException as error:
        if inline and issubclass(type(error), KeyboardInterrupt):  # its own __class__ may fail
            raise
        return execution.outcome_of(execution.misfit or error)
    finally:
        close_leftovers(inline=inline)


@dataclass(slots=True)
class Execution:
    """An attempt at a job: the call, and what either end of it means for the job; see ``execute``."""

    job: HeldJob
    backend: VTQueueBackend
    inline: bool = False
    tell: Notify = ignore
    later: int = 0
    policy: Policy = field(init=False)  # of the queue, and with the task's own options once it is found
    options: Mapping[str, Any] = field(default_factory=dict)  # those of the task, once it is found
    returned: Any = None
    final: bool = False  # no further attempt, however many are left: the call has returned
    _call: tuple[Task, list[Any], dict[str, Any]] | None = None  # of a task that was found, as it is stored
    _result: TaskResult | None = None
    _secrets: list[str] | None = None
    _ledger: Ledger | None = None  # of a task that takes the context
    _began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.policy = self.backend.settings.policy(self.job.queue_name)

    @property
    def result(self) -> TaskResult | None:
        """What signals are sent of a task, made when it is first needed; None if none was found to call."""
        if self._call and self._result is None:
            (task, args, kwargs), job, alias = self._call, self.job, self.backend.alias
            if (task.queue_name, task.priority, task.backend) != (job.queue_name, job.priority, alias):
                task = with_changes(task, queue_name=job.queue_name, priority=job.priority, backend=alias)
            self._result = result_of_call(job, task, args, kwargs)
        return self._result

    def run(self) -> Outcome:
        """Call what the row names, and return the outcome of a call that succeeds."""
        call = self.prepared()
        if writes_to := self.options.get("transactional"):
            return execute_transactional(
                self.job, self.backend, writes_to, lambda: self.settlement_of(call()), self._conclude, tell=self.tell
            )
        value = call()
        if self._ledger and (ending := self._ledger.ending):
            raise ending
        return self._conclude(self.settlement_of(value))

    @property
    def misfit(self) -> DurableMismatch | None:
        """What ends the job, although the task has caught it and raised another exception."""
        return self._ledger.misfit if self._ledger else None

    def prepared(self) -> Callable[[], Any]:
        """Return what the row names, ready to be called."""
        job, backend = self.job, self.backend
        if not job.task_path:
            handler = handler_of(job, self.policy)
            claimed = ClaimedJob(job, backend.database, backend.settings, kept_up=self.policy.renews(job.copies))
            return lambda: awaited_value(called(handler, claimed))
        task = find_task(job.task_path, backend.settings.task_modules)
        self.options, self.policy = options_of(task.func), policy_of(backend.settings, job.queue_name, task.func)
        if "hard_timeout" in self.options:
            self.tell(TaskFound(job.key))
        args, kwargs = call_of(job)
        self._call = task, args, kwargs
        if received(task_started):
            task_started.send_robust(type(backend), task_result=self.result)
        if task.takes_context:
            # A transactional task holds the write lock, so its context works on a copy of the job: it cannot be
            # cancelled meanwhile, and its progress cannot be written.
            seen_by_task = replace(job) if self.options.get("transactional") else job
            limit = self.policy.max_steps_bytes
            self._ledger = Ledger(
                job, Children(backend), backend.database, limit, self.later, bool(self.options.get("transactional"))
            )
            result, secrets = cast(TaskResult, self.result), self.secrets
            args = [JobContext(task_result=result, _job=seen_by_task, _ledger=self._ledger, _secrets=secrets), *args]
        return lambda: self.call_task(task, args, kwargs)

    def call_task(self, task: Task, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a task; what it activates (a language …) ends with it, and so does its time."""
        context, function, seconds = copy_context(), task.func, self.policy.timeout
        if is_async(function):
            return context.run(called, awaited(function, seconds), *args, **kwargs)
        if seconds is None:
            return context.run(called, function, *args, **kwargs)
        with timekeeper.limit(seconds):
            return context.run(called, function, *args, **kwargs)

    def settlement_of(self, value: Any) -> Settlement:
        """Return the acknowledgement of a call that returned ``value``.

        Raise TypeError if it is not JSON, PayloadTooLarge if it is too large.
        """
        try:
            text = encode_result(value, self.backend.largest_result)
            self.returned = decode(text)  # what cannot be read again is no result
        except (TypeError, ValueError) as error:
            self.final = True
            kind = PayloadTooLarge if isinstance(error, PayloadTooLarge) else TypeError
            raise kind(f"{error} The call has returned, so it is not tried again.") from None
        ttl = clock.microseconds_or_none(self.policy.result_ttl)
        if self.job.parent_id and ttl is not None:
            ttl = max(ttl, KEPT_FOR_PARENT)  # until its parent has read the result
        return succeeded(self.job, text, self.backend.now(), ttl)

    def suspend(self, error: Suspend) -> Outcome:
        """Return the outcome of a call that waits."""
        return self._conclude(suspended(self.job, error.waiting))

    def snooze(self, error: Snooze) -> Outcome:
        """Return the outcome of a call that has put the job off."""
        return self._conclude(snoozed(self.job, error.until, self.backend.now() + self.later))

    def outcome_of(self, error: BaseException) -> Outcome:
        """Return the outcome of a call that raised ``error``, however broken that is: another attempt, or the end."""
        try:
            return self._outcome_after(error)
        except TaskTimeout:  # raised by another thread meanwhile, and only once: Pool makes its outcome
            raise
        except BaseException:
            return self._outcome_after(Indescribable("The exception of this attempt could not be handled."))

    def _outcome_after(self, error: BaseException) -> Outcome:
        """See outcome_of; raise what the exception's own methods raise."""
        if issubclass(type(error), Snooze):
            return self.snooze(cast(Snooze, error))
        if self._ledger and self._ledger.suspended and issubclass(type(error), BaseExceptionGroup):
            _, others = BaseExceptionGroup.split(cast(BaseExceptionGroup[BaseException], error), Suspend)
            if others is None:  # asyncio.TaskGroup has wrapped it
                return self.suspend(self._ledger.suspended)
        if type(error) is Cancelled and not error.args:
            error.args = (cancellation(self.job.cancelled_by),)
        try:
            delay = self.delay_after(error)
        except BaseException:  # the exception has a broken class, or broken notes
            delay = self.policy.delay(self.job.attempts, DEFAULT_BACKOFF)
        if isinstance(error, Retry) and error.whole_queue:
            self.hold_up_queue(error, delay)
        failure = describe(error, self.secrets())  # with what these two have added to it
        word = next((word for kind, word in HISTORY_WORDS.items() if issubclass(type(error), kind)), history.FAILED)
        wait = None if delay is None else clock.microseconds(delay)
        settlement = failed(self.job, word, failure, self.backend.now(), wait)
        if self.result:
            self.result.errors.append(
                TaskError(exception_class_path=failure.exception_class, traceback=failure.traceback)
            )
        return self._conclude(settlement, error)

    def secrets(self) -> list[str]:
        """Return what the texts of this attempt must not repeat; made when the first of them is written.

        Where nothing was called (the task is gone, its payload damaged) there is nothing that could.
        """
        if self._secrets is None:
            job, found = self.job, self._call or not self.job.task_path
            mask = mask_of(job.task_path, job.queue_name, self.backend.database) if found else None
            self._secrets = mask.texts(job.payload) if mask else []
        return self._secrets

    def hold_up_queue(self, error: Retry, delay: float | None) -> None:
        """Pause the queue until the next attempt; if there is none, for as long as it would have been put off."""
        try:
            if delay is None and error.delay is not None:
                delay = _seconds(error.delay)
            if delay is None:
                delay = self.policy.delay(self.job.attempts, DEFAULT_BACKOFF)
            reason = storable(replaced(str(error), self.secrets()))
            hold_up(self.job.queue_name, delay, reason, self.backend.database)
        except Exception as fault:  # it must not cost the job
            error.add_note(f"Its queue could not be paused: {summary(fault)}")

    def delay_after(self, error: BaseException) -> float | None:
        """Return the seconds until the next attempt; None if there shall be none."""
        last_ones = (*FINAL_ERRORS, *self.options.get("no_retry_for", ()))
        if self.final or exhausted(self.job) or isinstance(error, last_ones):
            return None
        backoff = self.policy.backoff
        try:
            if isinstance(error, Retry) and error.delay is not None:
                return _seconds(error.delay)
            if callable(backoff):
                return self.chosen_delay(backoff(error, self.result), error)
        except BaseException as fault:  # the task's own mistake must not cost the job
            job, told = self.job, f"Its delay could not be found out, so a default was used: {summary(fault)}"
            name, told_here = one_line(job.task_path or job.queue_name), one_line(replaced(told, self.secrets()))
            logger.warning("%s …%s: %s", name, job.id[-8:], told_here)
            error.add_note(told)
        delay = self.policy.delay(self.job.attempts)
        return max(delay, UNKNOWN_TASK_DELAY) if isinstance(error, UnknownTask) else delay

    def chosen_delay(self, chosen: Any, error: BaseException) -> float | None:
        """Return what a function as ``backoff`` has returned, checked."""
        if chosen is None:
            error.add_note("Its backoff has returned None, so there is no further attempt.")
            return None
        try:
            return duration(chosen)
        except Invalid as allowed:
            text = f"backoff returned {shown(chosen)}, but must return {allowed}, or None for no further attempt."
            raise ValueError(text) from None

    def _conclude(self, settlement: Settlement, error: BaseException | None = None) -> Outcome:
        """Return the outcome with this settlement; the result is completed if a receiver or the caller gets it."""
        needed = self.inline or error is not None or received(task_finished)
        if result := self.result if needed else None:
            change(
                result,
                status=TaskResultStatus(settlement.state),
                finished_at=None if settlement.finished_at is None else clock.from_instant(settlement.finished_at),
                _return_value=self.returned if settlement.state == states.SUCCESSFUL else None,
            )
        return Outcome(self.job, settlement, result, error, time.perf_counter() - self._began)


def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return what the code of a job returns; a process that it forks ends here."""
    with ForksEnd():
        return function(*args, **kwargs)


def handler_of(job: HeldJob, policy: Policy) -> Any:
    """Return the function that the settings name for the raw jobs of a queue; raise UnknownTask if there is none."""
    if not policy.handler:
        raise UnknownTask(f"queue_options name no handler for the raw jobs of queue {job.queue_name!r} any more.")
    return import_string(policy.handler)


def _seconds(duration: Any) -> float:
    return max(clock.microseconds(duration), 0) / clock.SECOND
