"""Rates: when the next start is allowed, by GCRA (generic cell rate algorithm of ITU-T I.371: virtual scheduling).

One instant is the whole state of a rate: that of the next start if none was early. A start that comes later moves it to
one interval after itself, one that comes earlier by one interval; nothing starts earlier than the burst allows. So in
any time of ``w`` there are at most ``burst + w / interval`` starts.
"""

import re
from functools import lru_cache
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


class RateLimit(NamedTuple):
    """Starts that are ``interval`` microseconds apart, after a pause up to ``burst`` of them at once."""

    interval: int
    burst: int = 1

    @property
    def tolerance(self) -> int:
        """By how many microseconds a start may be early."""
        return (self.burst - 1) * self.interval

    def latest(self, now: int) -> int:
        """Return the latest state that starts up to now can have made; a later one is of a clock that was ahead."""
        return now + self.burst * self.interval

    def allowed_at(self, next_at: int) -> int:
        """Return from when on a start is allowed."""
        return next_at - (self.burst - 1) * self.interval

    def allowed_behind(self, due_at: int, burst: int) -> int:
        """Return from when on a start is allowed behind one that is booked for ``due_at``, by a rate of that burst."""
        return due_at + max(burst - self.burst + 1, 1) * self.interval

    def started(self, next_at: int, now: int, count: int = 1) -> int:
        """Return the state after so many starts."""
        return max(next_at, now) + count * self.interval

    def starts_left(self, next_at: int, now: int) -> int:
        """Return how many starts are allowed at once."""
        return max((self.latest(now) - max(next_at, now)) // self.interval, 0)


@lru_cache(maxsize=1000)
def rate_for(rate: str | None, burst: int = 1) -> RateLimit | None:
    """Return what settings say of a rate; None for none."""
    return None if rate is None else RateLimit(interval_of(rate), burst)
