"""What public functions say of values of another kind: an error that was meant for people, never one of Python's."""

import linecache
import sys
import uuid
from collections.abc import Callable
from datetime import timedelta
from math import nan
from pathlib import Path
from typing import Any

import pytest

from django_vtqueue import (
    Lease,
    Queue,
    SlotCycle,
    Snooze,
    call,
    chain,
    control,
    enqueue_many,
    group,
    recurring,
    requeue,
    requeueing,
    send_event,
    task,
    wait_for_result,
)
from django_vtqueue.queue import pauses
from django_vtqueue.queue.dead_letters import Criteria
from django_vtqueue.tasks.compat import Task
from django_vtqueue.tasks.task import OPTIONS
from django_vtqueue.testing import assert_enqueued, run_pending

FRAMEWORK = Task.__module__.partition(".")[0]  # django or django_tasks
PACKAGES = tuple(str(Path(sys.modules[name].__path__[0])) for name in ("django_vtqueue", "django", FRAMEWORK))
SOME_ID = str(uuid.uuid4())


@task
def noop() -> None:
    pass


def function() -> None:
    pass


def queue() -> Queue:
    return Queue("raw")


FUNCTIONS: dict[str, Callable[[Any], object]] = {
    "Queue(name)": lambda value: Queue(value),
    "Queue(using)": lambda value: Queue("raw", using=value),
    "Queue(visibility_timeout)": lambda value: Queue("raw", visibility_timeout=value),
    "Queue(max_attempts)": lambda value: Queue("raw", max_attempts=value),
    "publish(payload)": lambda value: queue().publish(value),
    "publish(publish_at)": lambda value: queue().publish(1, publish_at=value),
    "publish(delay)": lambda value: queue().publish(1, delay=value),
    "publish(priority)": lambda value: queue().publish(1, priority=value),
    "publish(max_attempts)": lambda value: queue().publish(1, max_attempts=value),
    "publish(timeout)": lambda value: queue().publish(1, timeout=value),
    "publish(unique_key)": lambda value: queue().publish(1, unique_key=value),
    "publish(unique_until)": lambda value: queue().publish(1, unique_key="a", unique_until=value),
    "publish(on_duplicate)": lambda value: queue().publish(1, unique_key="a", on_duplicate=value),
    "publish(expires)": lambda value: queue().publish(1, expires=value),
    "publish(concurrency_key)": lambda value: queue().publish(1, concurrency_key=value),
    "publish(immediate)": lambda value: queue().publish(1, immediate=value),
    "publish_many(payloads)": lambda value: queue().publish_many(value),
    "publish_many(unique_key)": lambda value: queue().publish_many([1], unique_key=value),
    "claim_many": lambda value: queue().claim_many(value),
    "ack": lambda value: queue().ack(value),
    "run(handler)": lambda value: callable(value) or queue().run(value),
    "run(stop)": lambda value: value is None or queue().run(print, stop=value),
    "pause(reason)": lambda value: queue().pause(reason=value),
    "pause(until)": lambda value: queue().pause(until=value),
    "pause(by)": lambda value: queue().pause(by=value),
    "pauses.pause(queue_name)": lambda value: pauses.pause(value),
    "pauses.pause(using)": lambda value: pauses.pause("raw", using=value),
    "pauses.resume(using)": lambda value: pauses.resume("raw", using=value),
    "enqueue_many(task)": lambda value: enqueue_many(value, []),
    "enqueue_many(calls)": lambda value: enqueue_many(noop, value),
    "using(queue_name)": lambda value: noop.using(queue_name=value).enqueue(),
    "using(priority)": lambda value: noop.using(priority=value).enqueue(),
    "using(run_after)": lambda value: noop.using(run_after=value).enqueue(),
    "call": lambda value: call(value),
    "chain": lambda value: chain(value),
    "group(calls)": lambda value: group(value),
    "group(then)": lambda value: group([call(noop)], then=value),
    "requeue": lambda value: requeue(value),
    "requeue(priority)": lambda value: requeue(SOME_ID, priority=value),
    "send_event(job_id)": lambda value: send_event(value, "paid"),
    "send_event(name)": lambda value: send_event(SOME_ID, value),
    "send_event(value)": lambda value: send_event(SOME_ID, "paid", value),
    "send_event(unique_key)": lambda value: send_event(None, "paid", unique_key=value),
    "send_event(queue_name)": lambda value: send_event(None, "paid", unique_key="a", queue_name=value),
    "wait_for_result(result)": lambda value: wait_for_result(value, 0.01),
    "wait_for_result(timeout)": lambda value: value in (None, 1.5) or wait_for_result(noop.enqueue(), value),
    "control.run_now": lambda value: control.run_now(value),
    "control.run_now(using)": lambda value: control.run_now(SOME_ID, using=value),
    "control.change_priority": lambda value: control.change_priority(SOME_ID, value),
    "control.move": lambda value: control.move(SOME_ID, value),
    "control.discard": lambda value: control.discard(value),
    "control.cancel": lambda value: control.cancel(value),
    "control.cancel(by)": lambda value: control.cancel(SOME_ID, by=value),
    "control.quiet_workers": lambda value: control.quiet_workers(value),
    "control.stop_workers": lambda value: control.stop_workers([value]),
    "control.skip_step(job_id)": lambda value: control.skip_step(value, "paid"),
    "control.skip_step(name)": lambda value: control.skip_step(noop.enqueue().id, value),
    "control.repeat_steps": lambda value: control.repeat_steps(noop.enqueue().id, value),
    "Criteria(queue_name)": lambda value: Criteria(queue_name=value),
    "Criteria(exception_class)": lambda value: Criteria(exception_class=value),
    "Criteria(reviewed)": lambda value: Criteria(reviewed=value),
    "Criteria(died_to)": lambda value: Criteria(died_to=value),
    "requeueing.start(criteria)": lambda value: requeueing.start(value),
    "requeueing.start(rate)": lambda value: requeueing.start(Criteria(), rate=value),
    "requeueing.start(queue_name)": lambda value: requeueing.start(Criteria(), queue_name=value),
    "Lease(name)": lambda value: Lease(value, ttl=10),
    "Lease(ttl)": lambda value: Lease("one", ttl=value),
    "Lease(using)": lambda value: Lease("one", ttl=10, using=value),
    "SlotCycle(name)": lambda value: SlotCycle(value, slots=2, period=10),
    "SlotCycle(slots)": lambda value: SlotCycle("one", slots=value, period=10),
    "SlotCycle(period)": lambda value: SlotCycle("one", slots=2, period=value),
    "Snooze": lambda value: Snooze(value),
    "recurring(cron)": lambda value: callable(value) or recurring(value),
    "recurring(every)": lambda value: recurring(every=value),
    **{
        f"recurring({name})": lambda value, name=name: recurring("0 3 * * *", **{name: value})  # type: ignore[misc]
        for name in ("tz", "args", "kwargs", "name", "missed", "overlap", "jitter")
    },
    **{
        f"task({name})": lambda value, name=name: task(**{name: value})(function)  # type: ignore[misc]
        for name in OPTIONS
    },
    "run_pending(until)": lambda value: run_pending(until=value),
    "assert_enqueued": lambda value: assert_enqueued(value),
}
VALUES = [
    *(None, "", b"x", "\0", "\ud800", "x" * 300, 0, -1, 1.5, nan, True, 10**30, object(), noop),
    *([], {}, [None], {"a"}, {"a": 1}, timedelta(days=-1), lambda given: 1),
]


@pytest.mark.django_db
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_of_another_kind(name: str) -> None:
    """A value is taken, or refused by an error that is meant: no list is hashed, and no number iterated."""
    for value in VALUES:
        error = error_of(FUNCTIONS[name], value)
        assert error is None or (str(error) and is_meant(error)), f"{value!r:.50}: {type(error).__name__}: {error}"


def error_of(function: Callable[[Any], object], value: Any) -> Exception | None:
    try:
        function(value)
    except Exception as error:
        return error
    return None


def is_meant(error: Exception) -> bool:
    """Return whether an error comes from a ``raise`` of this package, or of Django."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    assert last
    file = last.tb_frame.f_code.co_filename
    return file.startswith(PACKAGES) and linecache.getline(file, last.tb_lineno).lstrip().startswith("raise ")
