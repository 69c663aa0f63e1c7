"""One job to its outcome: its code is called, what that raises is caught, what it returns is encoded."""

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any, cast

from django.utils.module_loading import import_string

from ..backend import VTQueueBackend
from ..conf import Policy
from ..core import clock
from ..core.encoding import decode, encode_result
from ..core.job import HeldJob
from ..core.settlement import Settlement, succeeded
from ..core.steps import Suspend
from ..exceptions import PayloadTooLarge, UnknownTask
from ..queue.back_pressure import publishes_as_a_job
from ..queue.claimed_job import ClaimedJob
from ..runtime.async_code import awaited, awaited_value
from ..runtime.forks import ForksEnd
from ..runtime.timeouts import timekeeper
from ..tasks.children import Children
from ..tasks.compat import Task, TaskResult, task_started
from ..tasks.context import JobContext
from ..tasks.ledger import Ledger
from ..tasks.lookup import find_task
from ..tasks.results import call_of
from ..tasks.signals import received, send
from ..tasks.task import options_of, policy_of
from .after_failure import outcome_after, suspending
from .attempt import Attempt
from .connections import close_leftovers, refresh_connections
from .outcomes import Outcome, not_executed
from .time_limits import Notify, TaskFound, ignore
from .transactional import execute_transactional

is_async = lru_cache(maxsize=1000)(iscoroutinefunction)  # cached: it is slow


@publishes_as_a_job
def execute(job: HeldJob, backend: VTQueueBackend, *, inline: bool = False, tell: Notify = ignore) -> Outcome:
    """Run one job to its end in this thread.

    ``tell`` is given, in this thread, what changes the time that the job may take: its task is found, its transaction
    begins.

    Whatever the task raises is its outcome, SystemExit and KeyboardInterrupt too. Two exceptions go through:
    KeyboardInterrupt with ``inline`` (the caller's own thread and transaction, where Ctrl-C raises it), and a
    TaskTimeout that another thread raises here after the end of the task; Pool makes the outcome of that.
    """
    execution = Execution(job, backend, inline, tell=tell)
    refresh_connections(inline=inline)
    try:
        return execution.run()
    except Suspend as error:
        return suspending(execution, error)
    except BaseException as error:
        if inline and issubclass(type(error), KeyboardInterrupt):  # its own __class__ may fail
            raise
        mismatch = execution.ledger.mismatch if execution.ledger else None  # it counts, although the task has caught it
        return outcome_after(execution, mismatch or error)
    finally:
        close_leftovers(inline=inline)


@dataclass(slots=True)
class Execution(Attempt):
    """An attempt at a job whose code is called."""

    tell: Notify = ignore

    def run(self) -> Outcome:
        """Call what the row names, and return the outcome of a call that succeeds."""
        if self.job.to_load:
            find_task(self.job.task_path, self.backend.settings.task_modules)
            return not_executed(self.job)
        call = self.prepare()
        if writes_to := self.options.get("transactional"):
            return execute_transactional(
                self.job, self.backend, writes_to, lambda: self.settlement_of(call()), self.conclude, tell=self.tell
            )
        value = call()
        if self.ledger and (ending := self.ledger.ending):
            raise ending
        return self.conclude(self.settlement_of(value))

    def prepare(self) -> Callable[[], Any]:
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
        self.call = task, args, kwargs
        if received(task_started):
            send(task_started, type(backend), cast(TaskResult, self.result))
        if task.takes_context:
            # A transactional task holds the write lock, so its context works on a copy of the job: it cannot be
            # cancelled meanwhile, and its progress cannot be written.
            transactional = bool(self.options.get("transactional"))
            seen_by_task = replace(job) if transactional else job
            limit = self.policy.max_steps_bytes
            self.ledger = Ledger(job, Children(backend), backend.database, limit, transactional=transactional)
            result, secrets = cast(TaskResult, self.result), self.secrets
            args = [JobContext(task_result=result, _job=seen_by_task, _ledger=self.ledger, _secrets=secrets), *args]
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
        return succeeded(self.job, text, self.backend.now(), clock.microseconds_or_none(self.policy.result_ttl))


def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return what the code of a job returns; a process that it forks ends here."""
    with ForksEnd():
        return function(*args, **kwargs)


def handler_of(job: HeldJob, policy: Policy) -> Any:
    """Return the function that the settings name for the raw jobs of a queue; raise UnknownTask if there is none."""
    if not policy.handler:
        raise UnknownTask(f"queue_options name no handler for the raw jobs of queue {job.queue_name!r} any more.")
    return import_string(policy.handler)
