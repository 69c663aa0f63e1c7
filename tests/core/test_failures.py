"""A failure as it is stored: described, cut, made storable, and told from others; and the family of the exceptions."""

import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from django_vtqueue.core import failures
from django_vtqueue.exceptions import LeaseExpired, LeaseLost, PayloadTooLarge, Retry, VTQueueError
from tests.project.broken import BROKEN

from .texts import texts


def caught(raising: Callable[[], Any]) -> BaseException:
    try:
        raising()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def divide() -> float:
    return 1 / 0


def test_describe() -> None:
    """The dotted path that Django's TaskError has, the words, and the traceback as Python prints it."""
    error = caught(divide)
    told = failures.describe(error)
    assert told.exception_class == "builtins.ZeroDivisionError"
    assert told.message == "division by zero"
    assert told.traceback == "".join(traceback.format_exception(error))
    assert "in divide" in told.traceback


def test_describe_shows_the_causes_and_the_notes() -> None:
    """What Python's own traceback shows of an exception is kept."""

    def chain() -> None:
        try:
            divide()
        except ZeroDivisionError as error:
            error.add_note("while measuring")
            raise LookupError("no sensor") from error

    told = failures.describe(caught(chain))
    assert "while measuring" in told.traceback
    assert "direct cause" in told.traceback
    assert told.message == "no sensor"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit


class NotEvenText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


@pytest.mark.parametrize("error", [Unprintable(), NotEvenText(), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_describe_never_raises(error: BaseException) -> None:
    """Also of an exception that cannot be printed there is a description."""
    told = failures.describe(error)
    assert type(error).__name__ in told.exception_class
    assert type(error).__name__ in told.traceback
    assert told.fingerprint


@pytest.mark.parametrize("kind", BROKEN.values(), ids=BROKEN)
def test_describe_of_what_fails_when_it_is_looked_at(kind: type[Exception]) -> None:
    """Of it there is at least our own text."""
    error = kind("text")
    told = failures.describe(error)
    assert told.exception_class
    assert told.message
    assert told.fingerprint


def test_describe_of_an_endless_recursion() -> None:
    """A stack of a thousand frames is cut down like any other text."""

    def deeper(depth: int) -> int:
        return deeper(depth + 1) + 1

    told = failures.describe(caught(lambda: deeper(0)))
    assert told.exception_class == "builtins.RecursionError"
    assert len(told.traceback) < failures.MAX_TRACEBACK + 100


@given(texts)
def test_the_longest_of_messages(text: str) -> None:
    """Messages and tracebacks are cut before they are stored."""
    told = failures.describe(ValueError(text * 2000))
    assert len(told.message) < 8 * failures.MAX_MESSAGE
    assert len(told.traceback) < 8 * failures.MAX_TRACEBACK
    assert "\0" not in told.message + told.traceback


def raise_one(kind: type[Exception], words: str) -> None:
    raise kind(words)


def test_fingerprint() -> None:
    """The same for failures of one class from one place, whatever their words; another for another class or place."""

    def elsewhere() -> None:
        raise ValueError("a")

    same = {
        failures.describe(caught(lambda words=words: raise_one(ValueError, words))).fingerprint  # type: ignore[misc]
        for words in ("a", "b", "c" * 5000)
    }
    other_class = failures.describe(caught(lambda: raise_one(KeyError, "a"))).fingerprint
    other_place = failures.describe(caught(elsewhere)).fingerprint
    assert len({*same, other_class, other_place}) == 3
    assert {len(text) for text in same} == {16}


def test_fingerprint_of_a_failure_in_a_library() -> None:
    """Two places of the project that call the same library are two; the way from there to the error is none."""

    def here(text: str) -> None:
        re.compile(text)

    def there(text: str) -> None:
        re.compile(text)

    same = {failures.describe(caught(lambda text="(" * deep: here(text))).fingerprint for deep in (1, 3, 9)}  # type: ignore[misc]
    assert len({*same, failures.describe(caught(lambda: there("("))).fingerprint}) == 2


def test_recorded() -> None:
    """A failure without an exception to show, such as the end of a lease, has the same form."""
    told = failures.recorded(LeaseExpired, "held by w1")
    assert (told.exception_class, told.message) == ("django_vtqueue.exceptions.LeaseExpired", "held by w1")
    assert told.fingerprint == failures.recorded(LeaseExpired, "held by w2").fingerprint


def test_errors() -> None:
    """What the queue raises is one family; what a task raises to speak of itself is not of it."""
    assert issubclass(LeaseLost, VTQueueError)
    assert issubclass(PayloadTooLarge, ValueError)
    assert not issubclass(Retry, VTQueueError)
    assert str(Retry("later", delay=5)) == "later"
