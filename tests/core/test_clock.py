"""Moments, instants and durations."""

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from django_vtqueue.core import clock
from django_vtqueue.fields import InstantField

zones = st.sampled_from([UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-9.5))])
moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones)


@given(moments)
def test_aware_moments_round_trip(moment: datetime) -> None:
    """To the microsecond, whatever the zone."""
    again = clock.from_instant(clock.to_instant(moment))
    assert again == moment.astimezone(UTC)
    assert again.tzinfo is UTC


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_integer_can_be_shown(instant: int) -> None:
    """What no datetime can hold (a row edited by hand) is the nearest one that exists."""
    moment = clock.from_instant(instant)
    if clock.to_instant(clock.FIRST) <= instant <= clock.to_instant(clock.LAST):
        assert clock.to_instant(moment) == instant
    else:
        assert moment == (clock.LAST if instant > 0 else clock.FIRST)


@pytest.fixture
def berlin(settings: Settings) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"


def test_naive_moments_are_local_time(berlin: None) -> None:
    """With USE_TZ off moments are naive, in TIME_ZONE, both ways."""
    noon = datetime(2030, 7, 1, 12)
    assert clock.to_instant(noon) == clock.to_instant(datetime(2030, 7, 1, 10, tzinfo=UTC))
    assert clock.from_instant(clock.to_instant(noon)) == noon
    assert clock.from_instant(clock.to_instant(datetime(2030, 1, 1, tzinfo=UTC))) == datetime(2030, 1, 1, 1)


def test_the_hour_that_comes_twice(berlin: None) -> None:
    """When daylight saving ends, ``fold`` tells the two apart, and the instants between them are an hour long."""
    first, second = datetime(2030, 10, 27, 2, 30), datetime(2030, 10, 27, 2, 30, fold=1)
    assert clock.to_instant(second) - clock.to_instant(first) == 3600 * clock.SECOND
    for moment in (first, second):
        again = clock.from_instant(clock.to_instant(moment))
        assert (again, again.fold) == (moment, moment.fold)
        assert clock.to_instant(again) == clock.to_instant(moment)


def test_the_hour_that_does_not_exist(berlin: None) -> None:
    """When daylight saving begins, a time in the gap is one of the two that it may mean, and no error."""
    gap = datetime(2030, 3, 31, 2, 30)
    before, after = datetime(2030, 3, 31, 1, 59), datetime(2030, 3, 31, 3, 31)
    assert clock.to_instant(before) < clock.to_instant(gap) < clock.to_instant(after)


def test_extreme_moments_without_time_zones(berlin: None) -> None:
    """The first and the last moment can be shown in any zone."""
    assert clock.from_instant(2**62).year == 9999
    assert clock.from_instant(-(2**62)).year == 1


@given(st.floats(-1e10, 1e10))
def test_microseconds(seconds: float) -> None:
    """Seconds and timedeltas of the same length are the same duration."""
    assert clock.microseconds(seconds) == round(seconds * 1_000_000)
    assert clock.microseconds(timedelta(microseconds=clock.microseconds(seconds))) == clock.microseconds(seconds)


@pytest.mark.parametrize("value", [None, "5", True, 1j, math.nan, math.inf, -math.inf, 1e11, -1e300, timedelta.max])
def test_what_is_no_duration(value: Any) -> None:
    """ValueError that names it: nothing that a database could not add to an instant gets through."""
    with pytest.raises(ValueError, match="number of seconds"):
        clock.microseconds(value)


def test_now_is_the_wall_clock() -> None:
    """In microseconds since 1970, UTC."""
    assert abs(clock.now() / 1e6 - datetime.now(UTC).timestamp()) < 60
    assert clock.since_boot() <= clock.since_boot()


@given(moments)
def test_instant_field(moment: datetime) -> None:
    """A field of a moment takes datetimes, integers and ISO text, and gives what it was given."""
    field = InstantField()
    instant = clock.to_instant(moment)
    assert field.get_prep_value(moment) == field.get_prep_value(instant) == instant
    assert field.get_prep_value(moment.isoformat()) == instant
    assert field.from_db_value(instant, None, None) == moment.astimezone(UTC)
    assert field.get_prep_value(None) is None
    assert field.from_db_value(None, None, None) is None
