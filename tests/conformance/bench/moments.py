"""Moments of tests: seconds from the start of the test's clock."""

from datetime import UTC, datetime, timedelta

from tests.fake_clock import START, at

SECOND = 1_000_000  # microseconds, in which rows have their moments
DAY = 86_400  # seconds
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WITHOUT_END = datetime.max.replace(tzinfo=UTC)  # when a job is due that waits for something else than a time


def moment(now: float) -> datetime:
    """Return the moment so many seconds after the start, as the models have it."""
    return EPOCH + timedelta(microseconds=at(now))


def seconds_at(found: datetime | int) -> float:
    """Return how many seconds after the start a moment is; an integer is in microseconds since 1970."""
    instant = found if isinstance(found, int) else (found - EPOCH) // timedelta(microseconds=1)
    return (instant - START) / SECOND
