"""Processes that a task forks: copies of the worker that must not act as one.

A forked process inherits the signal handlers of its parent, and the stack of the thread that forked. Here its
handlers are set back, so that it can be terminated, and it is ended where it leaves the code that forked it.
"""

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, cast

_before: dict[int, Any] = {}  # signals that this process handles, and what was done with them before
_mask = threading.local()  # the signals that a thread blocked before it forked
_dumping: list[int] = []  # signals at which faulthandler writes what each thread does
_forked = 0  # how often this process and those that it comes from were forked; asking for the pid takes twice as long


def handle_signal(number: int, handler: Callable[[int, Any], object]) -> None:
    """Handle a signal in this process, in the main thread; a process that it forks gets the handler of before back."""
    before = signal.signal(number, handler)
    _before.setdefault(number, signal.SIG_DFL if before is None else before)


def restore_signal(number: int) -> None:
    """Give a signal the handler back that it had before handle_signal."""
    signal.signal(number, _before.pop(number))


@contextmanager
def handling_signals(given: Iterable[int], handler: Callable[[int, Any], object]) -> Iterator[None]:
    """Handle signals during the block; in another thread than the main one nothing can."""
    handled: list[int] = []
    try:
        for number in given if threading.current_thread() is threading.main_thread() else ():
            handle_signal(number, handler)
            handled.append(number)
        yield
    finally:
        for number in handled:
            restore_signal(number)


def dump_threads_at(number: int) -> None:
    """Write what each thread is doing to standard error when a signal comes; not in what this process forks."""
    for stream in (sys.stderr, sys.__stderr__):  # the first may be closed, or an object that a project logs by
        with suppress(AttributeError, OSError, ValueError, RuntimeError):  # of None
            faulthandler.register(number, file=cast(Any, stream), all_threads=True)
            _dumping.append(number)
            return


class ForksEnd:
    """A block of foreign code: a process that is forked in it ends where it would leave it, as one of multiprocessing.

    Its exit code is 0, that of SystemExit, or 1 after another exception, whose traceback is written to standard error.
    """

    __slots__ = ("_forked",)

    def __enter__(self) -> None:
        self._forked = _forked

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if _forked != self._forked:
            _end(error)


def _end(error: BaseException | None) -> None:
    """End this process without running what its parent has registered for the end."""
    code = int(error is not None)
    try:
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code & 0xFF)


def _block() -> None:
    """Before a fork: block signals until the child has given up our handlers; one that came earlier would be lost."""
    if numbers := {*_before, *_dumping}:
        _mask.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def _unblock() -> None:
    if (blocked := _mask.__dict__.pop("blocked", None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _let_go() -> None:
    """In a forked child: give signals the handlers back that they had before this package."""
    global _forked
    _forked += 1
    try:
        for number in list(_before):
            restore_signal(number)
        while _dumping:
            faulthandler.unregister(_dumping.pop())
    finally:
        _unblock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_let_go)
