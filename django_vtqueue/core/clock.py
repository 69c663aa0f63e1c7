"""Instants: integer microseconds since 1970, UTC. The wall clock is read here, and in ids.py for new ids."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial

from django.conf import settings
from django.utils import timezone

MICROSECOND = timedelta(microseconds=1)
NEVER = float("inf")  # a moment of the monotonic clock that does not come
SECOND = 1_000_000
LONGEST = 1e11  # seconds: 3000 years, so that every sum of instants is one that a database holds
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
LAST_INSTANT = (LAST - EPOCH) // MICROSECOND  # the place in the line of what waits without an end, or is parked

# Seconds that only go on, for waits in any process, tests too: asked of the system itself, for what stops the time of a
# test (freezegun) also stops ``time.monotonic``, and a wait by that would never end.
monotonic = partial(time.clock_gettime, time.CLOCK_MONOTONIC)


_offset: ContextVar[int] = ContextVar("vtqueue_clock_offset", default=0)


def offset() -> int:
    """Return by how many microseconds it is later here than clocks say, where a test lets time pass."""
    return _offset.get()


@contextmanager
def with_offset(microseconds: int) -> Iterator[None]:
    """Have all engines say in the block that it is later by so many microseconds, in the tasks that it calls, too."""
    before = _offset.set(microseconds)
    try:
        yield
    finally:
        _offset.reset(before)


def now() -> int:
    """Return the present instant of this machine's wall clock."""
    return time.time_ns() // 1000


def since_boot() -> float:
    """Return seconds that no step of the wall clock changes, and that go on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def wait(seconds: float) -> None:
    """Let so much time pass."""
    time.sleep(seconds)


def microseconds(duration: float | timedelta) -> int:
    """Return a duration, given in seconds or as a timedelta, in microseconds; raise ValueError if it is none."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) < LONGEST:
        raise ValueError(f"A duration is a number of seconds (below 1e11) or a timedelta, not {duration!r}.")
    return duration // MICROSECOND if isinstance(duration, timedelta) else round(duration * SECOND)


def microseconds_or_none(seconds: float | None) -> int | None:
    """Return a duration in microseconds, None for ever."""
    return None if seconds is None else microseconds(seconds)


def to_instant(moment: datetime) -> int:
    """Return a datetime as an instant; a naive one is local time in ``TIME_ZONE`` (its ``fold`` counts)."""
    if timezone.is_naive(moment):
        moment = moment.replace(tzinfo=timezone.get_default_timezone())
    return (moment - EPOCH) // MICROSECOND


def from_instant(instant: int) -> datetime:
    """Return an instant as Django shows moments: aware in UTC, or naive in ``TIME_ZONE`` where USE_TZ is off.

    What no datetime can hold (a row edited by hand) is shown as the nearest one that exists.
    """
    try:
        moment = EPOCH + timedelta(0, 0, instant)
    except OverflowError:
        moment = LAST if instant > 0 else FIRST
    if settings.USE_TZ:
        return moment
    try:
        return moment.astimezone(timezone.get_default_timezone()).replace(tzinfo=None)
    except OverflowError:
        return moment.replace(tzinfo=None)
