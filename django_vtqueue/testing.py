"""For your tests: run what has been enqueued, inside the test, and say what has been enqueued.

``run_pending`` is here; what is due then, and its run in this thread, is in worker/inline.py.

For example:

    class SignUp(TestCase):
        def test_welcome_mail_is_sent(self):
            self.client.post("/sign-up/", {"name": "Ada"})
            assert_enqueued(welcome, "Ada")
            run_pending()
            self.assertEqual(len(mail.outbox), 1)
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import ANY

from django.core.exceptions import SynchronousOnlyOperation

from .backend import VTQueueBackend
from .core.clock import SECOND
from .core.encoding import normalize
from .core.failures import from_task
from .core.job import Scope
from .core.steps import SNOOZE
from .engines import engine_for, options_for
from .exceptions import Cancelled, Retry
from .execution.outcomes import Outcome
from .models import DeadLetter, Job
from .queue.arguments import served_queue_name
from .queue.moments import checked_moment, due_from
from .runtime.event_loops import in_event_loop, in_thread
from .tasks.calls import checked_task
from .tasks.compat import Task, TaskResult, task_backends
from .tasks.lookup import loaded_task
from .tasks.signatures import arguments_of, call_signature, check_call
from .worker.inline import Line, run_due

__all__ = [
    "QueueAssertions",
    "arun_pending",
    "assert_enqueued",
    "run_pending",
]

NO_ERRORS = (Retry, Cancelled)  # what a task raises, and what people do to it, on purpose
MOST_SNOOZES = 1000  # of one job, each by less than a second, in one call of run_pending
SHOWN = 10  # jobs that a failed assertion shows


def run_pending(
    queue_name: str | None = None, until: datetime | timedelta | None = None, *, raise_errors: bool = True
) -> list[TaskResult]:
    """Run the tasks that are due, and what they enqueue, in this thread and transaction (inside ``TestCase``, too).

    ``queue_name``: only those of one queue. ``until`` (a moment, or a duration from now): scheduled tasks and retries
    up to then run too, in the order of their times; what they enqueue has the time that it is then, as far as the queue
    knows: ``timezone.now()`` does not move. Returns the result of each execution, in order. In what it differs from a
    worker: docs/guides/testing.md, "Time in a test".

    Raises the first error that a task raises, from the task's own frame on, when its outcome is stored: the job waits
    for its next attempt, or is a dead letter. With ``raise_errors=False`` tasks do not raise here: an execution that
    failed and will be retried is READY and has its error in ``errors``. Retry and Cancelled are never raised here.
    Raises RuntimeError for a task that puts itself off for ever: no time passes meanwhile. Raises ValueError for a
    queue that no backend has.
    """
    if in_event_loop():
        raise SynchronousOnlyOperation("run_pending() may not be called in an async test. Write: await arun_pending()")
    if queue_name is not None:
        served_queue_name(queue_name)
    checked_moment(until, "until")
    lines = []
    for backend in _backends():
        queues = tuple(sorted(backend.settings.queues)) or None
        if queue_name is not None:
            if options_for(queue_name, backend.database) != backend.settings:
                continue  # another one serves it, by another policy
            queues = (queue_name,)
        last = 0 if until is None else due_from(engine_for(backend.database).now(), until)
        lines.append(Line(backend, [Scope(queues, raw=False)], last))
    results, snoozes = [], Counter[str]()
    for outcome in run_due(lines):
        error = outcome.exception
        if raise_errors and error is not None and not issubclass(type(error), NO_ERRORS):
            raise BaseException.with_traceback(error, from_task(error))
        if outcome.result is not None:
            results.append(outcome.result)
        check_progress(outcome, snoozes, least=SECOND if until is None else 1)
    return results


def check_progress(outcome: Outcome, snoozes: Counter[str], least: int) -> None:
    """Raise RuntimeError for a job that is put off again and again, each time by less than ``least`` microseconds."""
    job, waiting = outcome.job, outcome.settlement.waiting
    if waiting is None or waiting.kind != SNOOZE or waiting.until - waiting.since >= least:
        return
    snoozes[job.id] += 1
    if snoozes[job.id] > MOST_SNOOZES:
        raise RuntimeError(
            f"{job.task_path} (job {job.id}) has put itself off {MOST_SNOOZES:,} times by less than a second, and is "
            "due again: run_pending() would not end. Make its condition true before, or have it raise "
            "Snooze with the seconds for which it can wait: it runs again when run_pending(until=...) lets them pass."
        )


async def arun_pending(
    queue_name: str | None = None, until: datetime | timedelta | None = None, *, raise_errors: bool = True
) -> list[TaskResult]:
    """See run_pending; for async tests."""
    found: list[TaskResult] = await in_thread(run_pending, queue_name, until, raise_errors=raise_errors)
    return found


def assert_enqueued(
    task: Task,
    /,
    *args: Any,
    queue_name: str | None = None,
    run_after: datetime | timedelta | None = None,
    **kwargs: Any,
) -> TaskResult:
    """Return the latest result of a task that was enqueued with these arguments, by position or by name; none: any.

    ``unittest.mock.ANY`` is any value. ``queue_name``: in this queue. ``run_after``: due at this moment, or so long
    after it was enqueued. A job that has run, or is a dead letter, was enqueued too, as long as it is kept; but a
    retry has a time of its own.

    Raises AssertionError that says what was enqueued instead; TypeError for arguments that do not fit the task, and
    for what ``using`` returns.
    """
    __tracebackhide__ = True
    wanted = None
    checked_task(task, "assert_enqueued")
    if (declared := loaded_task(task.module_path)) and declared.func is task.func and declared != task:
        raise TypeError(
            "assert_enqueued takes the task itself, not a task of using(): give queue_name= and run_after= to "
            "assert_enqueued. The result that it returns says the priority: assert_enqueued(...).task.priority."
        )
    if args or kwargs:
        check_call(task, args, kwargs)
        wanted = _pattern(call_signature(task.func, task.takes_context).bind(*args, **kwargs).arguments)
    backend = task.get_backend()
    if not isinstance(backend, VTQueueBackend):
        raise TypeError(f"assert_enqueued looks for tasks of this queue; backend {task.backend!r} is another one.")
    rows = [row for model in (Job, DeadLetter) for row in model.objects.using(backend.database).exclude(task_path="")]
    rows.sort(key=lambda row: row.pk, reverse=True)
    of_task = [row for row in rows if row.task_path == task.module_path]
    for row in of_task:
        if (
            (wanted is None or _fits(wanted, _stored_arguments(task, row)))
            and queue_name in (None, row.queue_name)
            and (run_after is None or _is_due(row, run_after))
        ):
            return backend.get_result(str(row.pk))
    call = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    call += [f"{name}={value!r}" for name, value in (("queue_name", queue_name), ("run_after", run_after)) if value]
    enqueued = "\n".join(f"    {_shown(row)}" for row in (of_task or rows)[:SHOWN]) or "    nothing"
    raise AssertionError(
        f"{task.module_path}({', '.join(call) or '...'}) was not enqueued. This was, the latest first:\n{enqueued}"
    )


class QueueAssertions:
    """For a TestCase: ``assertEnqueued``; see assert_enqueued."""

    def assertEnqueued(self, task: Task, /, *args: Any, **kwargs: Any) -> TaskResult:
        __tracebackhide__ = True
        return assert_enqueued(task, *args, **kwargs)


def _pattern(value: Any) -> Any:
    """Return a value as it is stored, with ANY left where it is."""
    if value is ANY:
        return value
    try:
        return normalize(value)
    except TypeError:
        if isinstance(value, dict):
            return {key: _pattern(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [_pattern(item) for item in value]
        raise


def _fits(wanted: Any, stored: Any) -> bool:
    """Return whether a pattern and what is stored are the same JSON: True is not 1."""
    if wanted is ANY:
        return True
    if isinstance(wanted, dict) and isinstance(stored, dict):
        return wanted.keys() == stored.keys() and all(_fits(item, stored[key]) for key, item in wanted.items())
    if isinstance(wanted, list) and isinstance(stored, list):
        return len(wanted) == len(stored) and all(map(_fits, wanted, stored))
    return not isinstance(wanted, dict | list) and json.dumps(wanted) == json.dumps(stored)


def _stored_arguments(task: Task, row: Job | DeadLetter) -> dict[str, Any] | None:
    """Return the arguments of a stored call by name; None if they do not fit the task any more."""
    try:
        return arguments_of(task, row.args, row.kwargs)
    except TypeError:
        return None


def _is_due(row: Job | DeadLetter, run_after: datetime | timedelta) -> bool:
    if not isinstance(row, Job):
        return False
    return bool(row.due_at == (row.enqueued_at + run_after if isinstance(run_after, timedelta) else run_after))


def _shown(row: Job | DeadLetter) -> str:
    call = [*map(repr, row.args), *(f"{name}={value!r}" for name, value in row.kwargs.items())]
    due = f", due {row.due_at}" if isinstance(row, Job) and row.due_at > row.enqueued_at else ""
    return f"{row.task_path}({', '.join(call)}), queue {row.queue_name!r}{due}"


def _backends() -> Iterator[VTQueueBackend]:
    """Yield our backends; where one names the queue, or they share a database, each job still runs once.

    Another one that cannot be built (a library that tests do not have) is none of ours.
    """
    for alias in task_backends:
        try:
            backend = task_backends[alias]
        except Exception:
            continue
        if isinstance(backend, VTQueueBackend):
            yield backend
