"""What the charts show: the numbers and times of an hour, a day or a week, in parts of equal width."""

from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import Max, Sum

from ..core.counts import HOUR, MINUTE, hour_of, minute_of
from ..core.histograms import NOTHING, Percentiles
from ..models import HourlyThroughput, Throughput
from ..models.statistics import Tallied
from .throughput import MOST_TIMES, NUMBERS, WEEK, counted, part_of, times

QUARTER = 15 * MINUTE


@dataclass
class Bin:
    """What happened in a part of the time of a chart; ``at``: its begin; ``depth``: None if it was not measured."""

    at: int
    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    depth: int | None = None


@dataclass
class Timing:
    """How long attempts ran in one part of the time of a chart, and how long they had waited."""

    at: int
    run: Percentiles = NOTHING
    wait: Percentiles = NOTHING


class TimeRange(NamedTuple):
    """The time of a chart: from ``first`` on, in parts of ``width``, and the table that is read."""

    table: type[Tallied]
    first: int
    width: int


def time_ranges(now: int, span: str) -> tuple[TimeRange, TimeRange]:
    """Return the time of the numbers of an ``hour``, a ``day`` or a ``week`` up to now, and that of its lengths."""
    if span == "hour":
        minutes = TimeRange(Throughput, minute_of(now) - HOUR + MINUTE, MINUTE)
        return minutes, minutes
    if span == "day":
        begin = hour_of(now) - 23 * HOUR
        return TimeRange(Throughput, begin, QUARTER), TimeRange(HourlyThroughput, begin, HOUR)
    hours = TimeRange(HourlyThroughput, hour_of(now) - WEEK + HOUR, HOUR)
    return hours, hours


def charted(
    database: str, now: int, span: str, queue: str | None = None, task: str | None = None
) -> tuple[list[Bin], list[Timing]]:
    """Return the parts of a span (see time_ranges), and how long attempts took in each; of one queue or task, or all.

    The times are of the latest MOST_TIMES rows at the most.
    """
    given = {"queue_name": queue, "task_path": task}
    which = {name: value for name, value in given.items() if value is not None}
    (table, first, width), timed = time_ranges(now, span)
    parts = [Bin(at) for at in range(first, now + 1, width)]
    rows = counted(table, database, first, now).filter(**which)
    number_of = part_of("starts_at", first, width)
    for place, *numbers in rows.values_list(number_of).annotate(*map(Sum, NUMBERS)):
        parts[place].succeeded, parts[place].failed, parts[place].dead = map(int, numbers)
    # Each worker measures all queues: of what they found the most counts, and the sum over the queues.
    deepest = rows.filter(depth__isnull=False).values_list(number_of, "queue_name").annotate(Max("depth"))
    for place, _, depth in deepest if task is None else ():
        parts[place].depth = (parts[place].depth or 0) + depth
    table, first, width = timed
    timings = [Timing(at) for at in range(first, now + 1, width)]
    rows = counted(table, database, first, now).filter(**which)
    for place, (run, wait) in times(rows, part_of("starts_at", first, width), MOST_TIMES).items():
        timings[place].run, timings[place].wait = run, wait
    return parts, timings
