"""GCRA: never more starts in any time than the burst and the rate allow, and as many as that."""

import random
import re
from bisect import bisect_right

import pytest

from django_vtqueue.core.rates import RateLimit, interval_of, rate_for

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("10/s", 100_000),
        ("100/m", 600_000),
        ("5/h", 720_000_000),
        ("1/d", 86_400_000_000),
        ("7/s", 142_858),
        ("3/m", 20 * SECOND),
    ],
)
def test_interval(text: str, interval: int) -> None:
    """It is rounded up, so that the rate is not exceeded."""
    assert interval_of(text) == interval


@pytest.mark.parametrize("text", ["5", "0/s", "-1/s", "1/w", "1.5/s", "1 / s", "5/s ", "\u0661/s"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        interval_of(text)


@pytest.mark.parametrize("rate", [RateLimit(SECOND), RateLimit(SECOND, 10), RateLimit(142_858, 3)], ids=str)
def test_any_window(rate: RateLimit) -> None:
    """Arrivals of any kind: within any ``w`` at most ``burst + w / interval`` start; none is refused in vain."""
    chance, next_at, now = random.Random(4), 0, 0
    starts: list[int] = []
    for _ in range(3000):
        now += chance.choice([0, 1, rate.interval // 7, rate.interval, 5 * rate.interval * chance.randrange(2)])
        if rate.allowed_at(next_at) <= now:
            assert rate.starts_left(next_at, now) > 0
            next_at = rate.started(next_at, now)
            assert next_at <= rate.latest(now)
            starts.append(now)
        else:
            assert rate.starts_left(next_at, now) == 0
    for index, begin in enumerate(starts):
        for width in (0, 1, rate.interval, 10 * rate.interval):
            inside = bisect_right(starts, begin + width) - index
            assert inside <= rate.burst + width // rate.interval
    assert len(starts) > 500


def test_room_is_what_may_start_at_once() -> None:
    """After a pause that is the burst; each start takes one, and one comes back after each interval."""
    rate = RateLimit(SECOND, 3)
    next_at, now = 0, 10 * SECOND
    for left in (3, 2, 1, 0):
        assert rate.starts_left(next_at, now) == left
        next_at = rate.started(next_at, now) if left else next_at
    assert rate.allowed_at(next_at) == now + SECOND
    assert rate.starts_left(next_at, now + 2 * SECOND) == 2


def test_rate_for() -> None:
    assert rate_for("10/s", 5) == RateLimit(100_000, 5)
    assert rate_for(None) is None
