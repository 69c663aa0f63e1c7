"""What an exception of a job means: another attempt after a delay, the end, or that the job waits or is put off."""

import logging
from typing import Any

from ..conf import DEFAULT_BACKOFF
from ..core import clock, history
from ..core.allowed import Invalid, duration
from ..core.failures import describe, summary
from ..core.masks import replaced
from ..core.settlement import cancellation, exhausted, failed, snoozed, suspended
from ..core.steps import Suspend
from ..core.text import one_line, shown, storable
from ..exceptions import (
    Cancelled,
    DamagedPayload,
    GiveUp,
    Indescribable,
    Retry,
    Snooze,
    StepError,
    TaskTimeout,
    UnknownTask,
)
from ..queue.pauses import hold_up
from ..tasks.compat import TaskError
from ..tasks.signatures import bind
from .attempt import Attempt
from .outcomes import Outcome

logger = logging.getLogger("django_vtqueue")

HISTORY_WORDS = {
    Retry: history.RETRY,
    GiveUp: history.GAVE_UP,
    TaskTimeout: history.TIMED_OUT,
    Cancelled: history.CANCELLED,
}
FINAL_ERRORS = (GiveUp, Cancelled, DamagedPayload, StepError)  # exceptions after which there is no further attempt
# During a rolling deploy the web process knows a new task, or a new argument, before each worker does.
UNKNOWN_TASK_DELAY = 30  # seconds
MISFITS = 5  # attempts of a call that does not fit its task: with 30, 60, 120 and 240 s between them a deploy is over
MISFIT = "The call does not fit the task as it is here: the job was enqueued by another version of the code."


def outcome_after(attempt: Attempt, error: BaseException) -> Outcome:
    """Return the outcome of a call that raised ``error``, however broken that is: another attempt, or the end."""
    try:
        return _outcome_after(attempt, error)
    except TaskTimeout:  # raised by another thread meanwhile, and only once: Pool makes its outcome
        raise
    except BaseException:
        return _outcome_after(attempt, Indescribable("The exception of this attempt could not be handled."))


def _outcome_after(attempt: Attempt, error: BaseException) -> Outcome:
    """See outcome_after; raise what the exception's own methods raise."""
    if isinstance(error, Snooze):
        return snoozing(attempt, error)
    if attempt.ledger and attempt.ledger.suspended and isinstance(error, BaseExceptionGroup):
        _, others = BaseExceptionGroup.split(error, Suspend)
        if others is None:  # asyncio.TaskGroup has wrapped it
            return suspending(attempt, attempt.ledger.suspended)
    if type(error) is Cancelled and not error.args:
        error.args = (cancellation(attempt.job.cancelled_by),)
    try:
        delay = delay_after(attempt, error)
    except BaseException:  # the exception has broken notes
        delay = attempt.policy.delay(attempt.job.attempts, DEFAULT_BACKOFF)
    if isinstance(error, Retry) and error.whole_queue:
        hold_up_queue(attempt, error, delay)
    failure = describe(error, attempt.secrets())  # with what these two have added to it
    word = next((word for kind, word in HISTORY_WORDS.items() if isinstance(error, kind)), history.FAILED)
    wait = None if delay is None else clock.microseconds(delay)
    settlement = failed(attempt.job, word, failure, attempt.backend.now(), wait)
    if attempt.result:
        attempt.result.errors.append(
            TaskError(exception_class_path=failure.exception_class, traceback=failure.traceback)
        )
    return attempt.conclude(settlement, error)


def hold_up_queue(attempt: Attempt, error: Retry, delay: float | None) -> None:
    """Pause the queue until the next attempt; if there is none, for as long as it would have been put off."""
    try:
        if delay is None and error.delay is not None:
            delay = _seconds(error.delay)
        if delay is None:
            delay = attempt.policy.delay(attempt.job.attempts, DEFAULT_BACKOFF)
        reason = storable(replaced(str(error), attempt.secrets()))
        hold_up(attempt.job.queue_name, delay, reason, attempt.backend.database)
    except Exception as fault:  # it must not cost the job
        error.add_note(f"Its queue could not be paused: {summary(fault)}")


def delay_after(attempt: Attempt, error: BaseException) -> float | None:
    """Return the seconds until the next attempt; None if there shall be none."""
    last_ones = (*FINAL_ERRORS, *attempt.options.get("no_retry_for", ()))
    if attempt.final or exhausted(attempt.job) or isinstance(error, last_ones):
        return None
    if does_not_fit(attempt, error):
        error.add_note(MISFIT)
        times = attempt.job.attempts
        return None if times >= MISFITS else UNKNOWN_TASK_DELAY * 2.0 ** (times - 1)
    backoff = attempt.policy.backoff
    try:
        if isinstance(error, Retry) and error.delay is not None:
            return _seconds(error.delay)
        if callable(backoff):
            return chosen_delay(backoff(error, attempt.result), error)
    except BaseException as fault:  # the task's own mistake must not cost the job
        job, told = attempt.job, f"Its delay could not be found out, so a default was used: {summary(fault)}"
        name, told_here = one_line(job.task_path or job.queue_name), one_line(replaced(told, attempt.secrets()))
        logger.warning("%s …%s: %s", name, job.id[-8:], told_here)
        error.add_note(told)
    delay = attempt.policy.delay(attempt.job.attempts)
    return max(delay, UNKNOWN_TASK_DELAY) if isinstance(error, UnknownTask) else delay


def does_not_fit(attempt: Attempt, error: BaseException) -> bool:
    """Return whether a task was called with arguments that it does not take; the enqueue has checked them elsewhere."""
    if attempt.call is None or not isinstance(error, TypeError):
        return False
    try:
        bind(*attempt.call)
    except TypeError:
        return True
    except ValueError:  # the function shows no signature
        return False
    return False


def chosen_delay(chosen: Any, error: BaseException) -> float | None:
    """Return what a function as ``backoff`` has returned, checked."""
    if chosen is None:
        error.add_note("Its backoff has returned None, so there is no further attempt.")
        return None
    try:
        return duration(chosen)
    except Invalid as allowed:
        text = f"backoff returned {shown(chosen)}, but must return {allowed}, or None for no further attempt."
        raise ValueError(text) from None


def suspending(attempt: Attempt, error: Suspend) -> Outcome:
    """Return the outcome of a call that waits."""
    return attempt.conclude(suspended(attempt.job, error.waiting))


def snoozing(attempt: Attempt, error: Snooze) -> Outcome:
    """Return the outcome of a call that has put the job off."""
    return attempt.conclude(snoozed(attempt.job, error.until, attempt.backend.now()))


def _seconds(delay: Any) -> float:
    return max(clock.microseconds(delay), 0) / clock.SECOND
