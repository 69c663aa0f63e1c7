"""The soft time limit of a task: TaskTimeout, raised inside it. Which limit a task has: ``policy_of``."""

import asyncio
import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import Any

from ..exceptions import TaskTimeout
from .event_loops import in_loop
from .forks import ForksEnd

logger = logging.getLogger("django_vtqueue")

Action = Callable[[], None]


class Limit:
    """One limit, ``at`` a moment (monotonic); ``over``: its block has ended, or its action was taken."""

    __slots__ = ("action", "at", "lock", "over")

    def __init__(self, at: float, action: Action) -> None:
        self.at, self.action, self.over = at, action, False
        self.lock = threading.Lock()

    def act(self) -> None:
        """Act, unless the block has ended."""
        with self.lock:
            if not self.over:
                self.over = True
                try:
                    self.action()
                except Exception:
                    logger.exception("a task whose time is up could not be ended")


class Timekeeper:
    """A thread that acts when the time of a task is up; it starts with the first limit."""

    def __init__(self) -> None:
        self.make_locks()
        self._limits: set[Limit] = set()  # of the blocks that are open: as many as there are threads, or twice that
        self._thread: threading.Thread | None = None

    def make_locks(self) -> None:
        """Make the locks, anew in a forked child: they may have been held by a thread that it does not have."""
        # Not the RLock of a Condition: entering that passes through Python code, where TaskTimeout could strike.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def limit(self, seconds: float) -> AbstractContextManager[None]:
        """Raise TaskTimeout in this thread if the block takes longer than ``seconds``.

        An exception reaches a thread between two steps of Python code: not inside a long call of the system or of C
        (a sleep, a query). What hangs there is ended by ``hard_timeout``, in a child process.
        """
        thread = threading.get_ident()
        return self.alarm(seconds, partial(raise_in, thread, TaskTimeout), partial(raise_in, thread, None))

    @contextmanager
    def alarm(self, seconds: float, action: Action, take_back: Action) -> Iterator[None]:
        """Have ``action`` called, in another thread, if the block takes longer than ``seconds``.

        It is called before the block ends or not at all; if it was, the block ends with ``take_back``. It must not
        wait: the limits of other threads would.
        """
        limit = Limit(time.monotonic() + seconds, action)
        try:
            with self._lock:
                self._start()
                self._limits.add(limit)
                self._changed.notify()
            yield
        finally:
            with limit.lock:
                if limit.over:
                    take_back()
                limit.over = True
            self._limits.discard(limit)  # without the lock: TaskTimeout may be raised in this thread wherever it is

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="timekeeper", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._next().act()

    def _next(self) -> Limit:
        """Return the limit that is up next, when it is."""
        with self._changed:
            while True:
                first = min(tuple(self._limits), key=lambda limit: limit.at, default=None)
                wait = first.at - time.monotonic() if first else None
                if first and wait is not None and wait <= 0:
                    self._limits.discard(first)
                    return first
                self._changed.wait(wait)


def raise_in(thread: int, exception: type[BaseException] | None) -> None:
    """Raise an exception in another thread of this process, or (None) take back one that has not been raised yet."""
    argument = ctypes.py_object(exception) if exception else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)


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

    def wait(*args: Any, **kwargs: Any) -> Any:
        thread, ended = threading.get_ident(), threading.Event()
        running: list[Callable[[], object]] = []  # what cancels it

        def end() -> None:
            ended.set()
            for cancel in running:
                with suppress(RuntimeError):  # the loop is closed
                    cancel()

        async def call() -> Any:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            running.append(lambda: loop.call_soon_threadsafe(task.cancel))  # type: ignore[union-attr]
            limit = asyncio.timeout(seconds)
            try:
                if ended.is_set():  # before there was something to cancel
                    raise asyncio.CancelledError
                async with limit:
                    with ForksEnd():
                        return await function(*args, **kwargs)
            except (asyncio.CancelledError, TimeoutError) as error:
                if ended.is_set() or limit.expired():
                    raise TaskTimeout from error
                raise
            finally:
                running.clear()

        outer, _awaiting[thread] = _awaiting.get(thread), end
        try:
            with interrupting(end):
                return in_loop(call)
        finally:
            if outer:
                _awaiting[thread] = outer
            else:
                del _awaiting[thread]

    return wait


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


timekeeper = Timekeeper()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=timekeeper.make_locks)
