"""Calls between threads and event loops.

What they raise does not go through a future: that loses an exception that is false, and never ends for a StopIteration.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async


class End:
    """How a call has ended."""

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self._value, self._error = value, error

    def result(self) -> Any:
        """Return what the call has returned; raise what it has raised."""
        try:
            if self._error is not None:
                raise self._error
            return self._value
        finally:
            self._error = None  # whose traceback has this frame


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return what a function returns in the thread for synchronous code; a StopIteration becomes a RuntimeError."""

    def call() -> End:
        try:
            return End(function(*args, **kwargs))
        except BaseException as error:
            return End(error=error)

    return (await sync_to_async(call)()).result()


def in_loop(function: Callable[[], Awaitable[Any]]) -> Any:
    """Return what an async function returns in an event loop."""

    async def call() -> End:
        try:
            return End(await function())
        except BaseException as error:
            return End(error=error)

    return async_to_sync(call)().result()


async def to_its_end(coroutine: Coroutine[Any, Any, None]) -> None:
    """Await what must not be left half done; a cancellation meanwhile is raised behind it."""
    task, cancelled = asyncio.ensure_future(coroutine), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled from (None if task.cancelled() else task.exception())
    task.result()


def in_event_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
