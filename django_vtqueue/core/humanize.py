"""Moments and durations as people read them."""

from datetime import datetime

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from . import clock


def local(value: datetime) -> datetime:
    """Return a moment in the time zone of the user; one at the end of time, which has none there, as it is."""
    try:
        return timezone.localtime(value) if timezone.is_aware(value) else value
    except OverflowError:
        return value


def time_of(value: datetime) -> str:
    """Return a moment to the second; of today, its time."""
    here = local(value)
    return f"{here:%H:%M:%S}" if here.date() == local(clock.from_instant(clock.now())).date() else whole(here)


def whole(value: datetime) -> str:
    """Return a moment to the second, with its date."""
    return f"{value:%Y-%m-%d %H:%M:%S}"


def duration(microseconds: int) -> str:
    """Return a duration for people: 41 ms, 3.2 s, 42 s, 2.5 min, 20 h, 3 d."""
    seconds = microseconds / clock.SECOND
    for unit, text in ((86400, _("%s d")), (3600, _("%s h")), (60, _("%s min")), (1, _("%s s"))):
        if seconds >= unit:
            value = seconds / unit
            digits = f"{value:.1f}".removesuffix(".0") if value < 10 else str(int(value))
            return text % number_format(digits)
    return _("%s ms") % int(seconds * 1000)
