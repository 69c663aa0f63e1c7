"""The soft time limit of a task: TaskTimeout, raised inside it. Which limit a task has: ``policy_of``."""

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from ..core import clock
from ..exceptions import TaskTimeout
from .aside import logging_aside

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
        """Make the locks, in a forked child again: they may have been held by a thread that it does not have."""
        # Not the RLock of a Condition: entering that passes through Python code, where TaskTimeout could strike.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def limit(self, seconds: float) -> AbstractContextManager[None]:
        """Raise TaskTimeout in this thread if the block takes longer than ``seconds``.

        An exception reaches a thread between two steps of Python code: not inside a long call of the system or of C
        (a sleep, a query). What hangs there is ended by ``hard_timeout``, in a child process.
        """
        thread = threading.get_ident()
        return self.alarm(seconds, partial(raise_in, thread, TaskTimeout), take_back)

    @contextmanager
    def alarm(self, seconds: float, action: Action, take_back: Action) -> Iterator[None]:
        """Have ``action`` called, in another thread, if the block takes longer than ``seconds``.

        It is called before the block ends or not at all; if it was, the block ends with ``take_back``. It must not
        wait: the limits of other threads would.
        """
        limit = Limit(clock.monotonic() + seconds, action)
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

    @logging_aside()
    def _run(self) -> None:
        while True:
            self._next().act()

    def _next(self) -> Limit:
        """Return the limit that is up next, when it is."""
        with self._changed:
            while True:
                first = min(tuple(self._limits), key=lambda limit: limit.at, default=None)
                wait = first.at - clock.monotonic() if first else None
                if first and wait is not None and wait <= 0:
                    self._limits.discard(first)
                    return first
                self._changed.wait(wait)


class TakenBack(BaseException):
    """Raised, and caught at once, in the place of an exception that is taken back."""


def raise_in(thread: int, exception: type[BaseException]) -> None:
    """Raise an exception in another thread of this process."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


def take_back() -> None:
    """Take back what another thread was about to raise in this one, if it was not raised yet.

    Another exception comes in its place. With none there, as the C API allows, the interpreter never ends to look for
    one: Python 3.12 makes calls a fifth slower then, and 3.11 stands still as soon as a tracer or a profiler is set.
    """
    try:
        raise_in(threading.get_ident(), TakenBack)
        for _ in range(1):  # the interpreter looks here, if it has not before
            pass
    except TakenBack:
        pass


timekeeper = Timekeeper()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=timekeeper.make_locks)
