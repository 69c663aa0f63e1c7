"""The arguments of a publish and of what people do with queues: moments, names, priorities."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from ..core import clock
from ..core.failures import shown, storable
from ..core.humanize import time_of
from ..core.names import is_name, is_reserved, name_rule, refusal
from ..engines import named_queues, options_of_database

MIN_PRIORITY, MAX_PRIORITY = -100, 100
LONGEST_BY = 150  # characters of the name of a user


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


def checked_queue_name(name: str) -> str:
    """Return ``name``; raise ValueError if no queue of a user can be called so."""
    if not is_name(name):
        raise ValueError(f"A queue's name is a text of {name_rule()}, not {name!r}.")
    if is_reserved(name):
        raise ValueError(refusal(name))
    return name


def served_queue_name(name: str, database: str | None = None) -> str:
    """Return ``name``; raise ValueError if no backend (of a database) has such a queue, so that no worker serves it."""
    checked_queue_name(name)
    entries = options_of_database(database)
    if entries and not any(entry.serves(name) for entry in entries):
        raise ValueError(
            f"TASKS has no queue {name!r}; its queues are {', '.join(sorted(named_queues(database)))}. Add it to "
            "QUEUES, where [] allows any."
        )
    return name


def checked_payloads(payloads: Iterable[Any]) -> list[Any]:
    """Return payloads as a list; raise TypeError for what is one payload: its letters, or its keys, are none."""
    if isinstance(payloads, str | bytes | bytearray | Mapping) or not isinstance(payloads, Iterable):
        raise TypeError(f"publish_many takes a list of payloads, not {shown(payloads)}: publish takes one payload.")
    return list(payloads)


def checked_by(by: str) -> str:
    """Return who does something, as it is stored; raise TypeError for what is no text."""
    if not isinstance(by, str):
        raise TypeError(f"by is {shown(by)}, but must be a text: the name of who does it.")
    return storable(by)[:LONGEST_BY]


def checked_priority(priority: int) -> int:
    """Return ``priority``; raise ValueError if it is not a whole number from -100 to 100."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        raise ValueError(f"priority is {priority!r}, but must be a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}.")
    return priority
