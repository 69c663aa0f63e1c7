"""Histograms of durations: little room, and percentiles that are nearly right."""

import json
from collections import Counter
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_vtqueue.core.histograms import (
    ERROR,
    LAST,
    Percentiles,
    added,
    bucket_of,
    middle_of,
    parse,
    percentile,
    percentiles,
)

durations = st.integers(1, 10**7) | st.integers(1, 2**63 - 1)


@given(st.lists(durations, min_size=1), st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_within_the_error(found: list[int], share: float) -> None:
    """A percentile differs from the exact one (nearest rank) by ERROR at the most, and by the rounding to 1 µs."""
    exact = sorted(found)[ceil(len(found) * share) - 1]
    shown = percentile(Counter(map(bucket_of, found)), share)
    assert shown is not None
    assert abs(shown - exact) <= exact * (ERROR + 1e-9) + 0.5


@given(durations)
def test_buckets_are_in_order_and_in_bounds(duration: int) -> None:
    """A longer duration is never in an earlier bucket, and every duration that a database holds has one."""
    assert 0 <= bucket_of(duration - 1) <= bucket_of(duration) <= LAST


def test_what_took_no_time_counts_as_the_shortest() -> None:
    """A clock that stood still or went back is no reason to fail."""
    assert [bucket_of(duration) for duration in (-5, 0, 0.3, 1)] == [0, 0, 0, 0]
    assert middle_of(0) == 1


@pytest.mark.parametrize("histogram", [{}, {7: 0}])
def test_nothing_has_no_percentiles(histogram: dict[int, int]) -> None:
    """Without any duration there is no percentile."""
    assert percentiles(histogram) == Percentiles(None, None, None)


def test_percentiles() -> None:
    """Of 100 durations 94 are short, 4 longer and 2 very long."""
    histogram = {bucket_of(1000): 94, bucket_of(50_000): 4, bucket_of(10**6): 2}
    assert percentiles(histogram) == tuple(middle_of(bucket_of(shown)) for shown in (1000, 50_000, 10**6))


@given(st.dictionaries(st.integers(0, LAST), st.integers(0, 10**9)))
def test_what_was_stored_is_read(histogram: dict[int, int]) -> None:
    """A histogram goes through JSON and back, and can be added to others."""
    stored = json.dumps(histogram)
    assert added([stored]) == histogram
    assert added([stored, "{oops", '{"7": 1}']) == histogram | {7: histogram.get(7, 0) + 1}


DAMAGED: list[Any] = [
    "", "{", "[1]", "7", "null", '{"x": 1}', '{"1": -1}', '{"1": 1.5}', '{"1": null}', '{"-1": 1}',
    f'{{"{LAST + 1}": 1}}', '{"1e3": 1}', "[" * 100_000, f'{{"{"9" * 5000}": 1}}', None, 7, b"\xff",
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: repr(text)[:20])
def test_what_somebody_damaged_is_none(text: Any) -> None:
    """What is no histogram is None, and never an exception."""
    assert parse(text) is None
