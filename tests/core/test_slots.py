"""The arithmetic of time slots: whose turn is when, and how much all turns have time for."""

import re
from fractions import Fraction
from itertools import pairwise
from math import inf, nan
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from django_vtqueue.slots import capacity, next_turn

from ..projects import ROOT

NOW = 1_800_000_000.0  # a moment in January 2027; a multiple of every period that is used with it
PAGE = ROOT / "docs/guides/time-slots.md"
seconds = st.floats(0.01, 1e6)
moments = st.floats(-1e10, 1e10)


@st.composite
def cycles(draw: st.DrawFn) -> tuple[int, float, float]:
    """A number of slots, a period and a guard that make a cycle."""
    slots, period = draw(st.integers(1, 200)), draw(seconds)
    guard = draw(st.one_of(st.just(0.0), st.floats(0, period / slots / 2)))
    assume(period / slots - 2 * guard >= 0.001)
    return slots, period, guard


def test_the_turns_of_a_cycle() -> None:
    """Five slots of a 10 s cycle have 2 s each, one after the other; the guard is left free at both ends."""
    assert [next_turn(NOW, number, 5, 10) for number in range(5)] == [
        (NOW + 2 * number, NOW + 2 * number + 2) for number in range(5)
    ]
    assert next_turn(NOW, 1, 5, 10, guard=0.25) == (NOW + 2.25, NOW + 3.75)


def test_a_turn_under_way() -> None:
    """A turn that has begun is not the next one, one that begins now is."""
    assert next_turn(NOW + 0.001, 0, 5, 10) == (NOW + 10, NOW + 12)
    assert next_turn(NOW + 2, 1, 5, 10) == (NOW + 2, NOW + 4)


@given(cycles(), moments, st.data())
def test_turns_never_overlap(cycle: tuple[int, float, float], now: float, data: st.DataObject) -> None:
    """Whatever the rounding, turns that any two slots are given, at any two moments, have no instant in common."""
    slots, period, _ = cycle
    asked = [(now, data.draw(st.integers(0, slots - 1))) for _ in range(2)]
    asked[1] = (now + data.draw(st.floats(-3, 3)) * period, asked[1][1])
    turns = sorted({next_turn(moment, number, *cycle) for moment, number in asked})
    assert all(begin < end for begin, end in turns)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(turns))


@given(cycles(), moments, st.data())
def test_one_turn_a_cycle(cycle: tuple[int, float, float], now: float, data: st.DataObject) -> None:
    """The next turn begins within one cycle; the one after it a cycle later; each lasts its slice less both guards."""
    slots, period, guard = cycle
    number, rounding = data.draw(st.integers(0, slots - 1)), 1e-5
    begin, end = next_turn(now, number, *cycle)
    assert now <= begin <= now + period + rounding
    assert end - begin == pytest.approx(period / slots - 2 * guard, abs=rounding)
    assert next_turn(begin, number, *cycle) == (begin, end)
    assert next_turn(end, number, *cycle)[0] == pytest.approx(begin + period, abs=rounding)


@pytest.mark.parametrize(
    ("slots", "period", "items"),
    [(5, 10, 1000), (25, 50, 5000), (25, 25, 2500), (1, 10, 1000), (1000, 10, 1000)],
)
def test_the_known_rule(slots: int, period: float, items: int) -> None:
    """With 10 ms an item: 1,000 items in 10 s, 5,000 in 50 s, 2,500 in 25 s, however many instances share the cycle."""
    assert capacity(slots, period, 0.01) == items


def test_the_table_of_the_docs() -> None:
    """What docs/guides/time-slots.md says of each cycle is what the functions say."""
    table = re.findall(r"^\| (\d+) \| (\d+) s \| 10 ms \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(table) == 4
    for slots, period, said in table:
        items, turn = capacity(int(slots), int(period), 0.01), int(period) / int(slots)
        each = f"{items // int(slots):,} | {items:,} | {int(period) / 2:g} s | {int(period) + turn:g} s"
        assert said == each


def test_whole_items() -> None:
    """An item is handled in one turn: what is left of a turn is lost, and so are the guards. Decimals are exact."""
    assert capacity(3, 0.9, 0.1) == 9
    assert capacity(4, 10, 2) == 4
    assert capacity(6, 10, 2) == 0
    assert capacity(5, 10, 0.01, guard=0.05) == 950


@given(cycles(), st.floats(0.001, 1e3), st.floats(1, 3))
def test_capacity_is_monotone(cycle: tuple[int, float, float], item: float, more: float) -> None:
    """A longer cycle, a smaller guard, quicker items never lower it; it is the cycle divided by an item at the most."""
    slots, period, guard = cycle
    items = capacity(slots, period, item, guard)
    assert capacity(slots, period * more, item, guard) >= items
    assert capacity(slots, period, item, guard / more) >= items
    assert capacity(slots, period, item * more, guard) <= items
    assert items <= Fraction(repr(period)) / Fraction(repr(item))


GOOD = {"now": NOW, "number": 0, "slots": 5, "period": 10, "guard": 0.0}
BAD = [
    ("slots", 0, "slots is 0, but must be a whole number, 1 or more, below 1e11."),
    ("slots", 2.5, "slots is 2.5"),
    ("slots", True, "slots is True"),
    ("period", 0, "period is 0, but must be a number of seconds above 0."),
    ("period", nan, "period is nan"),
    ("period", "10", "period is '10'"),
    ("period", 10**400, "period is 1000"),
    ("period", 0.004, "must last 0.001 s or more. Have a longer period, fewer slots, or a smaller guard."),
    ("guard", -1, "guard is -1, but must be a number of seconds, 0 or more."),
    ("guard", inf, "guard is inf"),
    ("guard", 1, "A turn would last 0 s: period / slots = 2 s, less the guard of 1 s at both ends."),
    ("number", 5, "number is 5, but the slots of this cycle are 0 to 4."),
    ("number", -1, "number is -1"),
    ("number", 1.0, "number is 1.0"),
    ("now", nan, "now is nan"),
    ("now", 1e12, "now is 1000000000000.0, but must be seconds since 1970, below 1e11."),
]


@pytest.mark.parametrize(("name", "value", "says"), BAD)
def test_what_makes_no_cycle(name: str, value: Any, says: str) -> None:
    """The error says what was given and what is allowed."""
    with pytest.raises(ValueError, match=re.escape(says)):
        next_turn(**{**GOOD, name: value})


@pytest.mark.parametrize("item", [0, -0.01, nan, None])
def test_no_time_for_an_item(item: Any) -> None:
    """An item takes some time."""
    with pytest.raises(ValueError, match=r"seconds_per_item is .*, but must be a number of seconds above 0"):
        capacity(5, 10, item)
