"""Tasks that misbehave; an app of the workers of test_hostile.py."""

import locale
import os
import signal
import sys
import threading
import time
from typing import Any

from django.db import connection

from django_vtqueue import task

LARGE = 100 * 2**20


class Unprintable(Exception):
    """Neither its words nor its notes can be had."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__

    def add_note(self, note: str) -> None:
        raise SystemExit


def chain(length: int) -> Exception:
    error = Exception("first")
    for number in range(length):
        following = Exception(str(number))
        following.__cause__ = error
        error = following
    return error


def circle() -> Exception:
    one, two = Exception("one"), Exception("two")
    one.__cause__, two.__cause__ = two, one
    return one


def group(depth: int, width: int) -> Exception:
    error: Exception = Exception("innermost")
    for _ in range(depth):
        error = ExceptionGroup("g", [error] * width)
    return error


def odd_class() -> Exception:
    kind = type("Ünpr\0int\ud800able" * 1000, (Exception,), {"__module__": None})
    return kind("\ud800 \0")  # type: ignore[no-any-return]


def noted() -> Exception:
    error = Exception("noted")
    error.__notes__ = 7  # type: ignore[assignment]
    return error


ERRORS: dict[str, Any] = {
    "unprintable": Unprintable,
    "large": lambda: Exception("x" * LARGE),
    "lines": lambda: Exception("x\n" * 1_000_000),
    "chain": lambda: chain(10_000),
    "circle": circle,
    "deep group": lambda: group(3000, 1),
    "wide group": lambda: group(2, 60),
    "odd class": odd_class,
    "noted": noted,
    "surrogates": lambda: Exception("\ud800\0"),
}


def backoff_that_raises(error: BaseException, result: Any) -> float:
    raise Unprintable


@task(max_attempts=1)
def raise_error(kind: str) -> None:
    raise ERRORS[kind]()


@task(max_attempts=2, backoff=backoff_that_raises)
def raise_twice(kind: str) -> None:
    raise ERRORS[kind]()


def nested(depth: int) -> Any:
    sys.setrecursionlimit(100_000)
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


RESULTS: dict[str, Any] = {
    "100 MB": lambda: "x" * LARGE,
    "deep": lambda: nested(6000),
    "nan": lambda: float("nan"),
    "huge": lambda: 10**5000,
    "surrogate": lambda: "\ud800",
    "keys": lambda: {"--drain": 1, "__class__": 2, "self": 3, "": 4},
    "int keys": lambda: {1: 2},
    "bytes": lambda: b"\xff",
    "object": object,
}


@task(max_attempts=1)
def return_it(kind: str) -> Any:
    return RESULTS[kind]()


def leave_threads() -> None:
    for _ in range(20):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def set_handler() -> None:
    """A task runs in a thread, where Python sets no handler."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def change_zone() -> None:
    os.environ["TZ"] = "Asia/Kathmandu"
    time.tzset()


def close_stdout() -> None:
    sys.stdout.close()
    sys.stdout = None  # type: ignore[assignment]


def close_connection() -> None:
    connection.connection.close()


MISDEEDS: dict[str, Any] = {
    "exit": sys.exit,
    "threads": leave_threads,
    "handler": set_handler,
    "zone": change_zone,
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C"),
    "stdout": close_stdout,
    "cwd": lambda: os.chdir("/"),
    "recursion": lambda: sys.setrecursionlimit(60),
    "close connection": close_connection,
    "umask": lambda: os.umask(0o777) and None,
    "digits": lambda: sys.set_int_max_str_digits(640),
}


@task(max_attempts=1)
def misbehave(kind: str) -> None:
    connection.ensure_connection()
    MISDEEDS[kind]()


@task(max_attempts=1)
def leave_process() -> None:
    os._exit(0)


@task(max_attempts=1)
def close_files() -> None:
    """Close every descriptor of the process: the pipe to its worker, its database, its log."""
    os.closerange(3, 256)
    os._exit(0)


@task
def take_anything(*args: Any, **kwargs: Any) -> list[Any]:
    return [len(args), sorted(kwargs)]
