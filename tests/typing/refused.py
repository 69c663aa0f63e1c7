"""Calls that both type checkers refuse: the marked lines, no other; tests/test_typing.py runs them over this file."""

from django_vtqueue import TaskContext, call, task


@task
def bare(a: int, b: int = 2) -> int:
    return a + b


@task(queue_name="emails", max_attempts=5)
async def options_async(a: int, *, name: str) -> str:
    return name * a


@task(takes_context=True)
def with_context(context: TaskContext, a: int) -> int:
    return a + context.attempt


def plain(a: int) -> int:
    return a


# Arguments of the call.
bare.enqueue()  # refused
bare.enqueue("1")  # refused
bare.enqueue(1, 2, 3)  # refused
bare.enqueue(1, c=3)  # refused
bare.using(priority=3).enqueue(None)  # refused
options_async.enqueue(1)  # refused
options_async.enqueue(1, name=2)  # refused
with_context.enqueue("1")  # refused
with_context.enqueue(None, 1)  # refused
call(bare, c=3)  # refused
call(with_context, "1")  # refused


async def from_a_view() -> None:
    await bare.aenqueue("1")  # refused


# The value it returns.
text: str = bare.enqueue(1).return_value  # refused
number: int = options_async.enqueue(1, name="x").return_value  # refused

# Options of the decorator.
task(queue_name=3)(plain)  # refused
task(priority="high")(plain)  # refused
task(max_attempts="3")(plain)  # refused
task(max_attempt=3)(plain)  # refused
task(backoff="soon")(plain)  # refused
task(backoff=lambda exception: 1)(plain)  # refused
task(no_retry_for=("ValueError",))(plain)  # refused
task(visibility_timeout="1 min")(plain)  # refused
task(unique_key=7)(plain)  # refused
task(unique_until="end")(plain)  # refused
task(on_duplicate="ignore")(plain)  # refused
task(expires="1 h")(plain)  # refused
task(takes_context=True)(plain)  # refused
bare.using(max_attempts=3)  # refused
