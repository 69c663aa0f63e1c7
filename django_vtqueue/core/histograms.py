"""Histograms of durations: how many fell into each bucket; the buckets grow with the duration.

Four buckets to the octave: each is a factor of 2 ** (1/4) wide, and what is in it is taken for its middle, which is at
most 9.1 % off. 10 µs to a day are 132 buckets, of which the empty ones are not kept. Histograms of many minutes and
workers are added up without losing more. The idea is that of DDSketch (Masson, Rim and Lee, VLDB 2019) and, with other
buckets, of HdrHistogram.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil, log2
from typing import Any, NamedTuple

TO_THE_OCTAVE = 4
LAST = 63 * TO_THE_OCTAVE  # the bucket of the longest duration that a database holds
BUCKETS = frozenset(map(str, range(LAST + 1)))  # as they are stored
ERROR = 2 ** (0.5 / TO_THE_OCTAVE) - 1  # at most, of a percentile: 0.091


class Percentiles(NamedTuple):
    """Half of all took no longer than ``p50``, and so on; microseconds, None without any."""

    p50: int | None = None
    p95: int | None = None
    p99: int | None = None


NOTHING = Percentiles()


def bucket_of(microseconds: float) -> int:
    """Return the bucket of a duration; what took less than a microsecond counts as one."""
    return int(log2(microseconds) * TO_THE_OCTAVE) if microseconds > 1 else 0


def middle_of(bucket: int) -> int:
    """Return the microseconds that stand for a bucket: the geometric mean of its ends."""
    return round(2 ** ((bucket + 0.5) / TO_THE_OCTAVE))


def percentiles(histogram: Mapping[int, int]) -> Percentiles:
    """Return the percentiles of what a histogram counts, each the bucket of the nearest rank."""
    return Percentiles(*(percentile(histogram, share) for share in (0.5, 0.95, 0.99)))


def percentile(histogram: Mapping[int, int], share: float) -> int | None:
    """Return the microseconds that this share of all did not exceed; None without any."""
    left = ceil(sum(histogram.values()) * share)
    for bucket in sorted(histogram):
        left -= histogram[bucket]
        if histogram[bucket] and left <= 0:
            return middle_of(bucket)
    return None


def encode(histogram: Mapping[int, int]) -> str:
    """Return a histogram as it is stored: ``{"bucket": count}``."""
    return json.dumps(histogram, separators=(",", ":"))


def parse(text: Any) -> dict[str, int] | None:
    """Return a histogram as it was stored, with its buckets as texts; None if it is damaged.

    A page reads thousands of them, so they are checked by what needs no loop of Python's.
    """
    try:
        found: dict[str, int] = json.loads(text)
        counts = found.values()
        sound = found.keys() <= BUCKETS and type(sum(counts)) is int and min(counts, default=0) >= 0
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return found if sound else None


def added(texts: Iterable[Any]) -> dict[int, int]:
    """Return the sum of histograms as they were stored, without the damaged ones."""
    total: dict[int, int] = defaultdict(int)
    for text in texts:
        for bucket, count in (parse(text) or {}).items():
            total[int(bucket)] += count
    return total
