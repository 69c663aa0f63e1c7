"""The moments that are given with a job or a pause, as instants: when it is due, by when it must start, until when."""

from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from ..core import clock
from ..core.humanize import time_of


def due_from(now: int, publish_at: datetime | timedelta | None, delay: float | timedelta | None = None) -> int:
    """Return the instant from which a job may be claimed; raise ValueError for a naive datetime where USE_TZ is on."""
    if publish_at is None:
        return now if delay is None else max(now + clock.microseconds(delay), now)
    checked_moment(publish_at, "publish_at")
    if delay is not None:
        raise ValueError("Give publish_at or delay, not both.")
    return max(instant_of(publish_at, now, "publish_at"), now)


def start_by_of(now: int, due_at: int, expires: datetime | timedelta | float | None) -> int | None:
    """Return the instant by which a job must have started; raise ValueError if that is over, or before it is due."""
    if expires is None:
        return None
    if not isinstance(expires, datetime | timedelta | int | float):
        raise TypeError(f"expires is {expires!r}, but must be a datetime, or a duration (seconds or a timedelta).")
    instant = instant_of(expires, now, "expires")
    if instant <= now:
        raise ValueError(f"expires is {expires!r}, which is over: give a later moment, or a duration above 0.")
    if instant <= due_at:
        raise ValueError(
            f"expires is {expires!r}, which is not after the moment at which the job is due "
            f"({time_of(clock.from_instant(due_at))}), so it could never start. Give a later moment, or a longer "
            "duration: that begins now."
        )
    return instant


def checked_moment(given: datetime | timedelta | None, name: str) -> None:
    """Raise TypeError for what is neither a moment nor a duration from now; ``name``: that of the argument."""
    if given is not None and not isinstance(given, datetime | timedelta):
        raise TypeError(f"{name} is {given!r}, but must be a datetime or a timedelta: timedelta(seconds=60) from now.")


def instant_of(given: datetime | timedelta | float, now: int, name: str) -> int:
    """Return the instant of a moment, or of a duration from ``now``; ``name``: that of the argument, for errors.

    Raise ValueError for a naive datetime where USE_TZ is on.
    """
    if not isinstance(given, datetime):
        return now + clock.microseconds(given)
    if settings.USE_TZ and timezone.is_naive(given):
        raise ValueError(f"{name} is a naive datetime while USE_TZ is on; use timezone.make_aware() on it.")
    return clock.to_instant(given)
