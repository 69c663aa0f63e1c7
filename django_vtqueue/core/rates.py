"""Rates: when the next start is allowed, by GCRA (generic cell rate algorithm of ITU-T I.371: virtual scheduling).

One instant is the whole state of a rate: that of the next start if none was early. A start that comes later moves it to
one interval after itself, one that comes earlier by one interval; nothing starts earlier than the burst allows. So in
any time of ``w`` there are at most ``burst + w / interval`` starts.
"""

import re
from math import ceil
from typing import Any, NamedTuple

from .clock import SECOND

UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND}  # microseconds
WRITTEN = re.compile(r"([0-9]{1,9})/([smhd])")


def interval_of(rate: Any) -> int:
    """Return the microseconds between two starts at a rate such as "100/m"; raise ValueError or TypeError for others.

    They are rounded up, so that the rate is never exceeded.
    """
    if not (found := WRITTEN.fullmatch(rate)) or not (number := int(found[1])):
        raise ValueError(rate)
    return ceil(UNITS[found[2]] / number)


def written(interval: int) -> str:
    """Return an interval as a rate with a number of 1 or more: "100/m"."""
    unit = next((unit for unit in UNITS if UNITS[unit] >= interval), "d")
    return f"{max(UNITS[unit] // interval, 1)}/{unit}"


class Rate(NamedTuple):
    """Starts that are ``interval`` microseconds apart, after a pause up to ``burst`` of them at once."""

    interval: int
    burst: int = 1

    @property
    def tolerance(self) -> int:
        """By how many microseconds a start may be early."""
        return (self.burst - 1) * self.interval

    def next_at(self, stored: int, now: int) -> int:
        """Return the state of the rate, as it was stored, without what a clock that was ahead has made of it."""
        return min(stored, now + self.tolerance + self.interval)

    def allowed_at(self, next_at: int) -> int:
        """Return from when on a start is allowed."""
        return next_at - self.tolerance

    def started(self, next_at: int, now: int) -> int:
        """Return the state after a start."""
        return max(next_at, now) + self.interval

    def room(self, next_at: int, now: int) -> int:
        """Return how many starts are allowed at once."""
        return max((now + self.tolerance - max(next_at, now)) // self.interval + 1, 0)
