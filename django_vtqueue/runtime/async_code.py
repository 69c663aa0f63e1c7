"""Async tasks and handlers: they run in an event loop of their own, and are ended at their next ``await``."""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import Any, cast

from ..exceptions import TaskTimeout
from .event_loops import in_loop
from .forks import ForksEnd
from .timeouts import Action, raise_in

_awaiting: dict[int, Action] = {}  # by thread: what ends the async code for which it waits


def end_code(thread: int) -> None:
    """Raise TaskTimeout in the code that a thread runs, at the next ``await`` where that is async."""
    if end := _awaiting.get(thread):
        end()
    else:
        raise_in(thread, TaskTimeout)


def awaited(function: Callable[..., Awaitable[Any]], seconds: float | None = None) -> Callable[..., Any]:
    """Return a function that calls an async one and waits for it; after ``seconds`` it raises TaskTimeout.

    ``end_code`` and Ctrl-C end it at its next await. It runs in a thread of its own, where only its event loop can end
    it; a process that it forks ends instead of going on in a copy of that loop.
    """
    return lambda *args, **kwargs: AsyncCall(function, seconds).wait(args, kwargs)


class AsyncCall:
    """One call of an async function, for which a thread waits; see awaited."""

    def __init__(self, function: Callable[..., Awaitable[Any]], seconds: float | None) -> None:
        self.function, self.seconds = function, seconds
        self._ended = threading.Event()
        self._cancel: Callable[[], object] | None = None  # while it runs

    def wait(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what it returns; raise what it raises, TaskTimeout if it was ended or its time is up."""
        thread = threading.get_ident()
        outer, _awaiting[thread] = _awaiting.get(thread), self.end
        try:
            with interrupting(self.end):
                return in_loop(lambda: self._run(args, kwargs))
        finally:
            if outer:
                _awaiting[thread] = outer
            else:
                del _awaiting[thread]

    def end(self) -> None:
        """End it at its next await; from any thread."""
        self._ended.set()
        if cancel := self._cancel:
            with suppress(RuntimeError):  # the loop is closed
                cancel()

    async def _run(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        loop, task = asyncio.get_running_loop(), cast(asyncio.Task[Any], asyncio.current_task())
        self._cancel = partial(loop.call_soon_threadsafe, task.cancel)
        limit = asyncio.timeout(self.seconds)
        try:
            if self._ended.is_set():  # before there was something to cancel
                raise asyncio.CancelledError
            async with limit:
                with ForksEnd():
                    return await self.function(*args, **kwargs)
        except (asyncio.CancelledError, TimeoutError) as error:
            if self._ended.is_set() or limit.expired():
                raise TaskTimeout from error
            raise
        finally:
            self._cancel = None


@contextmanager
def interrupting(end: Action) -> Iterator[None]:
    """Have Ctrl-C call ``end``, and not break off the block: its code runs in another thread, or ends soon.

    KeyboardInterrupt is raised when the block has ended, or by a second Ctrl-C. asyncio.Runner does the same.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        end()

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if interrupted:
            raise KeyboardInterrupt


def awaited_value(value: Any) -> Any:
    """Return the result of a handler of raw jobs; that of an async handler is awaited."""

    async def finish() -> Any:
        return await value

    return awaited(finish)() if isawaitable(value) else value
