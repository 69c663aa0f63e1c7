"""Calls that both type checkers accept; tests/test_typing.py runs them over this file."""

from datetime import UTC, datetime, timedelta
from typing import assert_type
from uuid import UUID

from django_vtqueue import JobContext, Queue, SlotCycle, TaskContext, TaskResult, call, chain, group, task
from django_vtqueue.slots import capacity, next_turn


@task
def bare(a: int, b: int = 2) -> int:
    return a + b


@task()
def called(*, name: str) -> str:
    return name


@task
async def bare_async(a: int) -> list[int]:
    return [a]


@task(
    queue_name="emails",
    priority=10,
    backend="default",
    max_attempts=5,
    backoff=2.5,
    no_retry_for=(ValueError, KeyError),
    visibility_timeout=300,
)
def every_option(report_id: int, *, force: bool = False) -> dict[str, int]:
    return {"report": report_id}


@task(visibility_timeout=timedelta(minutes=5), max_attempts=0, backoff=[1, 10, 60.5])
async def options_async(report_id: int) -> str:
    return str(report_id)


@task(unique_key="report:{report_id}", unique_until="start", on_duplicate="replace", expires=timedelta(hours=1))
def unique(report_id: int) -> str:
    return str(report_id)


@task(unique_key=lambda report_id: None if report_id < 0 else f"{report_id}", expires=60)
def unique_by_callable(report_id: int) -> None: ...


assert_type(unique.enqueue(7).duplicate, bool)
assert_type(unique.enqueue(7).return_value, str)
queue = Queue("sensors")
assert_type(queue.publish(1, unique_key="k", unique_until="start", on_duplicate="error", expires=60), UUID)
queue.publish_many([{"id": 7}], unique_key=lambda payload: payload["id"], expires=timedelta(hours=1))
queue.publish_many(["a", "b"], unique_key=["a", None], expires=datetime.now(UTC))


def patience(exception: Exception, result: TaskResult) -> float | None:
    return None if isinstance(exception, KeyError) else 2.0 * result.attempts


@task(backoff=patience)
def backoff_function(a: int) -> None: ...


@task(backoff=lambda exception, result: 1 if result.attempts < 3 else None)
def backoff_lambda(a: int) -> None: ...


@task(takes_context=True, max_attempts=3)
def with_context(context: TaskContext, a: int) -> int:
    return a + context.attempt


@task(takes_context=True)
def with_our_context(context: JobContext, a: int) -> bool:
    context.progress(0.5, "half of it")
    return context.cancelled or context.attempt > a


@task(takes_context=True)
async def with_our_context_async(context: JobContext, a: int) -> TaskResult:
    async for item in context.aiterate("numbers", [a]):
        assert_type(item, int)
    return context.task_result


@task(takes_context=True)
def with_loops(context: JobContext) -> None:
    for number in context.iterate("numbers", range(3)):
        assert_type(number, int)


@task(takes_context=True)
async def with_context_async(context: TaskContext, a: int, *, b: str) -> tuple[int, str]:
    return a + context.attempt, b


assert_type(bare.enqueue(1).return_value, int)
assert_type(bare.enqueue(a=1, b=3).return_value, int)
assert_type(called.enqueue(name="x").return_value, str)
assert_type(bare_async.enqueue(1).return_value, list[int])
assert_type(every_option.enqueue(7, force=True).return_value, dict[str, int])
assert_type(options_async.enqueue(report_id=7).return_value, str)
assert_type(with_context.enqueue(1).return_value, int)
assert_type(with_our_context.enqueue(1).return_value, bool)
assert_type(with_our_context_async.enqueue(1).return_value, TaskResult)
assert_type(with_context_async.enqueue(1, b="x").return_value, tuple[int, str])
backoff_function.enqueue(1)
backoff_lambda.enqueue(1)

later = every_option.using(priority=-5, queue_name="reports", run_after=datetime(2030, 1, 1, tzinfo=UTC))
assert_type(later.enqueue(7).return_value, dict[str, int])
assert_type(every_option.get_result("").return_value, dict[str, int])

chain(call(bare, 1), call(bare, b=3), call(with_context_async, b="x")).using(priority=3).enqueue()
group([call(bare, 1), chain(call(bare, 1))], then=call(bare), on_failure=call(bare)).enqueue()


async def from_a_view() -> None:
    result = await every_option.aenqueue(7)
    assert_type(result.return_value, dict[str, int])


with SlotCycle("x", slots=5, period=timedelta(seconds=10), guard=0.05).join(timeout=0) as slot:
    assert_type(slot.number, int | None)
    for turn in slot.turns():
        assert_type((turn.starts_at, turn.ends_at, turn.remaining()), tuple[float, float, float])
        assert_type((turn.number, turn.missed), tuple[int, int])
assert_type(next_turn(0.0, 1, 5, 10), tuple[float, float])
assert_type(capacity(5, 10, 0.01, guard=0.05), int)
