"""What threads of their own call in the place of others: log handlers and receivers of signals, the code of a project.

Such code may block for minutes, raise anything, or fork. No claim, renewal, settlement or stop waits for it.
"""

import atexit
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Thread, local
from weakref import WeakSet

from .forks import ForksEnd

logger = logging.getLogger("django_vtqueue")

Call = Callable[[], object]

MOST_LINES = 1000  # of the log that wait to be written; more are left out
LAST_LINES = 2.0  # seconds for them to be written, at the end


class Caller:
    """A thread that makes calls one after the other, in the place of threads that may not wait for them.

    ``name``: of the thread. The first call starts it, and no end of a process waits for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.begin()
        _callers.add(self)

    def begin(self) -> None:
        """Begin without a call and a thread; so does a forked child."""
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._starting = Lock()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread, if that is not done yet; raise RuntimeError if the system refuses it."""
        with self._starting:
            if self._thread is None:
                thread = Thread(target=self._run, args=(self._calls,), name=self.name, daemon=True)
                thread.start()
                self._thread = thread

    def put(self, call: Call) -> None:
        """Have a call made; never waits. What it raises is logged."""
        self._calls.put(call)
        if self._thread is None:
            with suppress(RuntimeError):  # the next one tries it again
                self.start()

    def waiting(self) -> int:
        """Return how many calls wait for their turn."""
        return self._calls.qsize()

    def finish(self, seconds: float) -> bool:
        """Wait up to so many seconds until all calls are made; return whether they are."""
        if self._thread is None and self._calls.empty():
            return True
        until = time.monotonic() + seconds
        while True:
            done = Event()
            self.put(done.set)
            if not done.wait(max(until - time.monotonic(), 0.0)):
                return False
            if self._calls.empty():  # what was called has had nothing more called
                return True

    def end(self) -> None:
        """End the thread behind the calls that wait."""
        self._calls.put(None)

    def _run(self, calls: "SimpleQueue[Call | None]") -> None:
        _thread.patience = 0.0
        while call := calls.get():
            try:
                with ForksEnd():
                    call()
            except BaseException:
                logger.exception("code of the project failed in thread %s, which goes on", self.name)
            del call  # it may be large, and the next one may be long in coming


class LogWriter(Caller):
    """Writes the log of threads that may not wait for handlers; lines that are too many are left out, and counted."""

    def begin(self) -> None:
        """See Caller."""
        self._left_out = 0  # lines since the last one that was taken
        self._counting = Lock()
        super().begin()

    @contextmanager
    def writing_for(self, logger: logging.Logger) -> Iterator[None]:
        """During the block, write what such threads give to a logger."""
        before = vars(logger).get("handle")
        vars(logger)["handle"] = partial(self.handle, logger)
        try:
            yield
        finally:
            del vars(logger)["handle"]
            if before:
                vars(logger)["handle"] = before

    def handle(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        """Write a record as ``logger.handle`` does, or have it written."""
        write = partial(type(logger).handle, logger, record)
        patience = getattr(_thread, "patience", None)
        if patience is None:
            write()
        elif self.await_room(1, patience):
            self.put(partial(self._write, write, copy_context()))
        else:
            with self._counting:
                self._left_out += 1

    def await_room(self, lines: int, seconds: float) -> bool:
        """Wait up to so many seconds until so many lines can be taken; return whether they can.

        If lines are left out already, the log is slower than any wait, until none waits any more.
        """
        until = 0.0
        while not self._left_out and self.waiting() + lines > MOST_LINES:
            until = until or time.monotonic() + seconds
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
        return not (self._left_out and self.waiting())

    def _write(self, write: Call, context: Context) -> None:
        with suppress(BaseException):  # of a handler: its server is down, or a task has closed the stream
            _close_old_connections()
            context.run(write)
        if not self._left_out or self.waiting() >= MOST_LINES / 2:
            return
        with self._counting:
            self.put(partial(self._say_left_out, self._left_out))  # behind what waits, where they would stand
            self._left_out = 0

    def _say_left_out(self, lines: int) -> None:
        text = "%d lines of this log are missing here: they came faster than it is written"
        record = logger.makeRecord(logger.name, logging.WARNING, __file__, 0, text, (lines,), None)
        if logger.isEnabledFor(logging.WARNING):
            with suppress(BaseException):
                type(logger).handle(logger, record)  # not by ours, which may leave it out


@contextmanager
def logging_aside(patience: float = 0.0) -> Iterator[None]:
    """During the block, have what this thread logs written by another one: for threads that may not wait for it.

    ``patience``: the seconds for which it may wait for room.
    """
    before, _thread.patience = getattr(_thread, "patience", None), patience
    try:
        yield
    finally:
        _thread.patience = before


def _close_old_connections() -> None:
    """Do so as around requests, for handlers that write to a database."""
    if database := sys.modules.get("django.db"):
        database.close_old_connections()


def _forget() -> None:
    """Have a forked child write its log itself: it has one thread, which keeps no lease."""
    global _thread
    _thread = local()
    for caller in _callers:
        caller.begin()


_thread = local()
_callers: "WeakSet[Caller]" = WeakSet()
log_writer = LogWriter("vtqueue-log")
vars(logger)["handle"] = partial(log_writer.handle, logger)
atexit.register(log_writer.finish, LAST_LINES)  # before that of ``logging``, which was imported before this
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
