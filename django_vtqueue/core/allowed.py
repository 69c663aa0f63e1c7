"""What a value that people give may be: a duration, a rate, a text. Each check says what is allowed, if it is not."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from .clock import LONGEST
from .rates import interval_of
from .text import shown

Backoff = float | Sequence[float] | Callable[..., float | None]
Check = Callable[[Any], Any]  # returns the value of an option in its final form, or raises Invalid


class Invalid(Exception):
    """A value is not allowed; its text says what is."""


def or_none(check: Check) -> Check:
    """Return a check that allows None too."""
    return lambda value: None if value is None else check(value)


def duration(value: Any, least: float = 0) -> float:
    value = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < LONGEST:
        raise Invalid(f"a number of seconds {'above 0, or' if least else '(0 or more) or'} a timedelta")
    return float(value)


def seconds(value: Any, name: str, least: float = 0.0) -> float:
    """Return a duration in seconds; raise ValueError, with the name of the argument, if it is none."""
    try:
        if (found := duration(value)) < least:
            raise Invalid(f"{least:g} seconds or more, or such a timedelta")
    except Invalid as allowed:
        raise ValueError(f"{name} is {shown(value)}, but must be {allowed}.") from None
    return found


def positive_duration(value: Any) -> float:
    return duration(value, least=0.001)


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Invalid("True or False")
    return value


def attempts(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise Invalid("a whole number, 0 for unlimited")
    return value


def count(value: Any, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value > (most or value):
        raise Invalid(f"a whole number, 1 {f'to {most}' if most else 'or more'}")
    return value


def rate_of(value: Any) -> str:
    try:
        interval_of(value)
    except (TypeError, ValueError):
        raise Invalid("a number a second, minute, hour or day, such as '10/s', '100/m', '5/h', '1/d'") from None
    return str(value)


def backoff_of(value: Any) -> Backoff:
    if callable(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, str) or (isinstance(value, Sequence) and not value):
        raise Invalid("seconds, a sequence of seconds, or f(exception, task_result) -> seconds or None")
    if isinstance(value, Sequence):
        return tuple(duration(item) for item in value)
    return duration(value)


def text_or_none(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise Invalid("a text or None")
    return value


def path_or_none(value: Any) -> str | None:
    try:
        return text_or_none(str(value) if isinstance(value, PurePath) else value)
    except Invalid:
        raise Invalid("a path (a text or a pathlib.Path) or None") from None


def texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise Invalid("a list of texts")
    return tuple(value)


def one_of(*allowed: str) -> Check:
    """Return a check that allows these words only."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise Invalid(" or ".join(map(repr, allowed)))
        return value

    return check
