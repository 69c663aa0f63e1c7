"""The ticks of recurring jobs: arithmetic, across both changes of daylight saving."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_vtqueue.core.clock import EPOCH, SECOND
from django_vtqueue.core.ticks import ALL, LATE, MOST_MISSED, ONE, SKIP, Ticks, checked, every, to_run, zone

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
PARIS, NEW_YORK, LORD_HOWE = "Europe/Paris", "America/New_York", "Australia/Lord_Howe"  # the last: half an hour
ZONES = st.sampled_from([PARIS, NEW_YORK, LORD_HOWE])
# Both changes of 2026 in each zone.
CHANGES = {
    PARIS: (datetime(2026, 3, 29), datetime(2026, 10, 25)),
    NEW_YORK: (datetime(2026, 3, 8), datetime(2026, 11, 1)),
    LORD_HOWE: (datetime(2026, 10, 4), datetime(2026, 4, 5)),
}
FIXED = st.builds("{} {} * * *".format, st.integers(0, 59), st.integers(0, 23))
EXPRESSIONS = st.one_of(
    FIXED,
    st.sampled_from(
        ["* * * * *", "*/15 * * * *", "*/7 */3 * * *", "30 * * * *", "0 3 1 * *", "15 2 * * SUN", "every 7"]
    ),
)
INSTANTS = st.integers(1_700_000_000 * SECOND, 1_900_000_000 * SECOND)


def instant(moment: datetime) -> int:
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)


def local(tick: int, name: str) -> datetime:
    return (EPOCH + timedelta(microseconds=tick)).astimezone(zone(name))


def around(name: str, days: int = 3) -> list[tuple[int, int]]:
    """Return the instants some days before and behind each change."""
    found = []
    for change in CHANGES[name]:
        begin = (change - timedelta(days=days)).replace(tzinfo=zone(name))
        found.append((instant(begin.astimezone(UTC)), instant((begin + timedelta(days=2 * days)).astimezone(UTC))))
    return found


@given(FIXED, ZONES)
@example("30 2 * * *", PARIS)
@example("59 1 * * *", NEW_YORK)
@example("45 1 * * *", LORD_HOWE)
@example("0 2 * * *", LORD_HOWE)
def test_a_fixed_time_comes_once_a_day(expression: str, name: str) -> None:
    """Also on the day that has no such time, and on the day that has it twice."""
    for first, last in around(name):
        days = Counter(local(tick, name).date() for tick in Ticks(expression, name).within(first, last - 1))
        begin = local(first, name).date()
        assert days == dict.fromkeys((begin + timedelta(days=number) for number in range(6)), 1)


@pytest.mark.parametrize(
    ("expression", "name", "day", "expected"),
    [
        ("30 2 * * *", PARIS, date(2026, 3, 29), "2026-03-29T03:00:00+02:00"),  # as soon as the clock was set
        ("30 2 * * *", PARIS, date(2026, 10, 25), "2026-10-25T02:30:00+02:00"),  # the first of the two
        ("15 2 * * *", LORD_HOWE, date(2026, 10, 4), "2026-10-04T02:30:00+11:00"),
        ("45 1 * * *", LORD_HOWE, date(2026, 4, 5), "2026-04-05T01:45:00+11:00"),
    ],
)
def test_when_a_fixed_time_comes_on_these_days(expression: str, name: str, day: date, expected: str) -> None:
    """As in Debian's cron: right after the jump, if the clock jumps over it; of two such times, at the first one."""
    begin = instant(datetime(day.year, day.month, day.day, tzinfo=zone(name)).astimezone(UTC))
    tick = Ticks(expression, name).after(begin)
    assert tick is not None
    assert local(tick, name).isoformat() == expected


def test_asked_in_the_hour_that_comes_twice() -> None:
    """A fixed time that has come in the first of the two hours is over in the second."""
    second = instant(datetime(2026, 10, 25, 2, 40, tzinfo=zone(PARIS), fold=1).astimezone(UTC))
    tick = Ticks("50 2 * * *", PARIS).after(second)
    assert tick is not None
    assert local(tick, PARIS).isoformat() == "2026-10-26T02:50:00+01:00"


@pytest.mark.parametrize("name", [PARIS, NEW_YORK])
@pytest.mark.parametrize(("expression", "apart"), [("* * * * *", 1), ("*/15 * * * *", 15), ("7 * * * *", 60)])
def test_stars_go_by_elapsed_time(expression: str, apart: int, name: str) -> None:
    """Each quarter of an hour is each quarter of an hour, whatever the clocks on the walls do."""
    for first, last in around(name, 1):
        assert {after - before for before, after in pairwise(Ticks(expression, name).within(first, last))} == {
            apart * MINUTE
        }


@given(EXPRESSIONS, ZONES, INSTANTS, st.floats(0, 1))
def test_the_ticks_do_not_depend_on_when_one_asks(expression: str, name: str, start: int, part: float) -> None:
    """From any instant on the next tick is the same one that the ticks before lead to."""
    ticks = Ticks(expression, "" if expression.startswith("every") else name)
    first = ticks.after(start)
    assert first is not None
    second = ticks.after(first)
    assert second is not None
    assert start < first < second
    between = first + int((second - 1 - first) * part)
    assert ticks.after(between) == second
    assert ticks.after(start + int((first - 1 - start) * part)) == first


@given(st.integers(1, 100_000), INSTANTS)
def test_a_period_is_counted_from_1970(seconds: int, now: int) -> None:
    """Its ticks are multiples of the period, whenever a worker was started."""
    tick = Ticks(every(seconds)).after(now)
    assert tick is not None
    assert tick % (seconds * SECOND) == 0
    assert now < tick <= now + seconds * SECOND


@pytest.mark.parametrize("given_", [0, 0.5, 1.5, -1, timedelta(0), timedelta(milliseconds=1500), "5", None, True, 1e12])
def test_periods_that_are_refused(given_: Any) -> None:
    """A period is whole seconds: the error says what was given, and what is allowed."""
    with pytest.raises(ValueError, match="whole seconds, 1 or more"):
        every(given_)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f"{','.join(map(str, range(60)))} * * * {','.join('012345' * 9)}", "has 283 characters; 255 are allowed"),
        ("0 0 3 * * *", "has 6 fields, but must have five: minute .*, hour.*leave it out"),
        ("0 3 * *", "has 4 fields"),
        ("@daily", r"has 1 field, but must have five: minute .*\. Instead of @daily write '0 0 \* \* \*'\."),
        ("@hourly", r"write '0 \* \* \* \*'"),
        ("@Weekly ", r"Instead of @weekly write '0 0 \* \* 0'"),
        ("@monthly", r"write '0 0 1 \* \*'"),
        ("@yearly", r"write '0 0 1 1 \*'"),
        ("@reboot", r"has 1 field, but must have five: minute .*\(0-7\)\.$"),
        ("", "has 0 fields"),
        ("61 * * * *", r"Bad minute\. Its fields are: minute \(0-59\)"),
        ("0 0 32 1 *", "Bad day-of-month"),
        ("0 0 30 13 *", "Bad month"),
        ("* * * * 1-", "Bad day-of-week"),
        (None, "is a text"),
        ("every x", "The period 'every x' is wrong: say 'every' and whole seconds, .* as in 'every 300'"),
        ("every 0", "whole seconds"),
        ("every 5.5", "whole seconds"),
    ],
)
def test_expressions_that_are_refused(expression: Any, problem: str) -> None:
    """The error says what is wrong, and names the five fields."""
    with pytest.raises(ValueError, match=problem):
        checked(expression)


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 2,4,6 *", "* * */20 * 1L"])
def test_an_expression_that_never_comes(expression: str) -> None:
    """It is well formed; only that there is no such day, which is known at once."""
    ticks = Ticks(checked(expression), PARIS)
    assert ticks.after(0) is None
    assert list(ticks.within(0, 10 * DAY)) == []
    assert ticks.in_words()


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "/etc/passwd", "Europe", "../..", "a\0b", "x" * 300])
def test_a_time_zone_that_is_not_there(name: str) -> None:
    """Whatever stands there, the error is one about time zones."""
    with pytest.raises(ValueError, match="There is no time zone"):
        zone(name)


@given(st.text(alphabet="0123456789*,-/#LW SUNJAN?@ex²٣\0", max_size=30))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    """Nothing that people write raises anything but ValueError, neither at once nor when the ticks are asked for."""
    try:
        expression = checked(text)
    except ValueError:
        return
    ticks = Ticks(expression, "" if expression.startswith("every") else PARIS)
    assert checked(expression) == expression
    assert (ticks.after(1_800_000_000 * SECOND) or 1e18) > 1_800_000_000 * SECOND
    assert ticks.in_words()


def test_the_end_of_time() -> None:
    """There is no tick beyond the last moment that a datetime can hold; none is looked for in more than 50 years."""
    assert Ticks(checked("every 1570000000")).after(DAY)
    assert [Ticks(checked(f"every {seconds}")).after(DAY) for seconds in (1_700_000_000, 60_000_000_000)] == [None] * 2
    assert Ticks("0 0 1 1 *", PARIS).after(instant(datetime(9999, 12, 31, 12))) is None
    assert Ticks("0 0 1 1 *", PARIS).after(1 << 62) is None


# -- missed ticks ------------------------------------------------------------------------------------------------------


def test_one_run_for_all_missed_ticks() -> None:
    """It takes the place in line of the first one."""
    assert to_run(Ticks("every 60"), 10 * MINUTE, 20 * MINUTE + 5, ONE) == ([10 * MINUTE], False)


@given(EXPRESSIONS, ZONES, INSTANTS, st.integers(0, 3 * DAY))
def test_all_missed_ticks_are_run_up_to_a_number(expression: str, name: str, start: int, down: int) -> None:
    """Each once, and of more than MOST_MISSED the last ones."""
    ticks = Ticks(expression, "" if expression.startswith("every") else name)
    next_at = ticks.after(start)
    assert next_at is not None
    now = next_at + down
    run, more = to_run(ticks, next_at, now, ALL)
    if more:
        assert len(run) == MOST_MISSED
        assert list(islice(ticks.within(run[0], now), MOST_MISSED + 1)) == run
        assert run[0] > next_at
    else:
        assert run == list(ticks.within(next_at, now))


@given(EXPRESSIONS, ZONES, INSTANTS, st.integers(0, 3 * DAY))
def test_skipped_ticks(expression: str, name: str, start: int, down: int) -> None:
    """What was missed is not run; the last one was not if it is late by no more than a minute."""
    ticks = Ticks(expression, "" if expression.startswith("every") else name)
    next_at = ticks.after(start)
    assert next_at is not None
    now = next_at + down
    run, _ = to_run(ticks, next_at, now, SKIP)
    last = list(ticks.within(max(next_at, now - 2 * DAY), now))[-1:]
    assert run == [tick for tick in last if tick >= now - LATE]


def test_catching_up_with_years_takes_no_time() -> None:
    """The ticks of ten years are not walked: a worker must not stand still for them."""
    year = 365 * DAY
    for expression in ("* * * * *", "every 1"):
        ticks = Ticks(expression, "" if expression.startswith("every") else PARIS)
        run, more = to_run(ticks, 46 * year, 56 * year, ALL)
        assert (len(run), more) == (MOST_MISSED, True)
        assert 56 * year - run[0] < 102 * MINUTE
