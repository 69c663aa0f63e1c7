"""The page of the charts: what was done, what failed, how long it waited and ran, and how much was due, over time."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core import clock
from ..core.clock import SECOND
from ..core.counts import HOUR, MINUTE
from ..core.histograms import Percentiles
from ..core.humanize import duration, local
from ..engines import Engine
from ..inspection import throughput
from ..inspection.charts import Bin, Timing, charted
from . import display, plots

SPANS = {
    "hour": (gettext_lazy("Hour"), gettext_lazy("a minute")),
    "day": (gettext_lazy("Day"), gettext_lazy("15 minutes")),
    "week": (gettext_lazy("Week"), gettext_lazy("an hour")),
}
REFRESH = {"hour": 10, "day": 60, "week": 60}  # seconds
MOST_NAMES = 200  # that the form suggests
MS = SECOND // 1000
# Ends of an axis of time.
STEPS = [
    *(factor * unit for unit in (1, 10, 100) for factor in (1 * MS, 2 * MS, 4 * MS, 6 * MS)),
    *(seconds * SECOND for seconds in (1, 2, 4, 6, 10, 20, 30, 60, 120, 240, 360, 600, 1200, 1800)),
    *(hours * HOUR for hours in (1, 2, 4, 8, 12, 24, 48, 96, 192)),
]


class Series(NamedTuple):
    """A series: its class, its name, and its values."""

    css: str
    name: str
    values: Sequence[Any]


class Axis(NamedTuple):
    """The time of a chart: the names of its parts, and what stands below it."""

    names: Sequence[str]
    ticks: Sequence[str]


class Figure(NamedTuple):
    """A chart. ``top``, ``middle``: of its values; ``ticks``: of the time; ``sentence``: what it shows."""

    title: str
    unit: str
    series: Sequence[Series]
    top: str
    middle: str
    ticks: Sequence[str]
    svg: SafeString
    sentence: str


def context(request: HttpRequest, engine: Engine, now: int) -> dict[str, Any]:
    """Return what the template shows of the queue, the task and the span that the address asks for."""
    span = request.GET.get("span", "hour") if request.GET.get("span") in SPANS else "hour"
    chosen = {name: request.GET[name] for name in ("queue_name", "task_path") if request.GET.get(name)}
    queue, task = chosen.get("queue_name"), chosen.get("task_path")
    parts, timings = charted(engine.alias, now, str(span), queue, task)
    names, each = [at(part.at, span) for part in parts], str(SPANS[span][1])
    return {
        "title": _("Charts"),
        "figures": [
            *counts(parts, Axis(names, ticks(parts, span)), each),
            *times(timings, Axis([at(timing.at, span) for timing in timings], ticks(timings, span))),
            *([depth(parts, Axis(names, ticks(parts, span)))] if task is None else []),
        ],
        "numbers": [row for row in zip(names, parts, strict=True) if row[1].succeeded + row[1].failed + row[1].dead],
        "each": each,
        "chosen": chosen,
        "span": span,
        "seconds": REFRESH[str(span)],
        "spans": [(name, words[0], urlencode({**chosen, "span": name})) for name, words in SPANS.items()],
        "queues": sorted({*engine.queue_names(MOST_NAMES), *throughput.read(engine.alias, now, 1)}),
        "since": display.moment(clock.from_instant(parts[0].at)),
    }


# -- charts ------------------------------------------------------------------------------------------------------------


def counts(parts: Sequence[Bin], axis: Axis, each: str) -> Iterator[Figure]:
    """Yield the charts of bars: of all attempts, and of those that failed; ``each``: what a bar is of."""
    done = [
        Series("done", _("succeeded"), [part.succeeded for part in parts]),
        Series("failed", _("failed"), [part.failed + part.dead for part in parts]),
    ]
    bad = [
        Series("dead", _("died"), [part.dead for part in parts]),
        Series("retried", _("to be retried"), [part.failed for part in parts]),
    ]
    yield bars(_("Attempts"), _("ended, each bar %s") % each, done, axis)
    yield bars(_("Failures"), _("attempts that failed, each bar %s") % each, bad, axis)


def bars(title: str, unit: str, series: Sequence[Series], axis: Axis) -> Figure:
    sums = [sum(values) for values in zip(*(each.values for each in series), strict=True)]
    said = [f"{display.number(sum(each.values))} {each.name}" for each in series]
    sentence = f"{title}: {', '.join(said)}."
    if most := max(sums, default=0):
        values = {"number": display.number(most), "time": axis.names[sums.index(most)]}
        sentence += " " + _("At most %(number)s, at %(time)s.") % values
    return drawn(plots.stacked, title, unit, series, axis, plots.nice(most), amount, sentence)


def times(timings: Sequence[Timing], axis: Axis) -> Iterator[Figure]:
    """Yield the charts of percentiles: of how long jobs had waited, and of how long they ran."""
    yield lasted(_("Wait"), _("from due to begun"), [timing.wait for timing in timings], axis)
    yield lasted(_("Run"), _("from begun to ended"), [timing.run for timing in timings], axis)


def lasted(title: str, unit: str, percentiles: Sequence[Percentiles], axis: Axis) -> Figure:
    series = [Series(name, name, [getattr(part, name) for part in percentiles]) for name in Percentiles._fields]
    found = [value for value in series[-1].values if value is not None]
    highest = plots.nice(max(found, default=1000), STEPS)
    sentence = f"{title}: " + _("nothing was measured.")
    if found:
        values = {"longest": duration(max(found)), "time": axis.names[series[-1].values.index(max(found))]}
        values["half"] = duration(sorted(each.p50 for each in percentiles if each.p50 is not None)[len(found) // 2])
        text = _("half took no longer than %(half)s most of the time; 99 %% no longer than %(longest)s, at %(time)s.")
        sentence = f"{title}: " + text % values
    return drawn(plots.lines, title, unit, series, axis, highest, lambda value: duration(round(value)), sentence)


def depth(parts: Sequence[Bin], axis: Axis) -> Figure:
    """Return the chart of what was due."""
    depth = Series("depth", _("due"), [part.depth for part in parts])
    most = max((value for value in depth.values if value is not None), default=None)
    sentence = _("Depth: nothing was measured.")
    if most is not None:
        values = {"most": display.number(most), "time": axis.names[depth.values.index(most)]}
        sentence = _("Depth: at most %(most)s due, at %(time)s.") % values
    unit = _("jobs that were due; measured by the workers once a minute")
    return drawn(plots.lines, _("Depth"), unit, [depth], axis, plots.nice(most or 0), amount, sentence)


def drawn(
    draw: Callable[..., SafeString],
    title: str,
    unit: str,
    series: Sequence[Series],
    axis: Axis,
    highest: float,
    words: Callable[[float], str],
    sentence: str,
) -> Figure:
    """Return a chart; ``draw``: of plots; ``highest``: the top of the values, ``words`` for one of them."""
    rows = zip(*(each.values for each in series), strict=True)
    titles = [
        f"{name}: " + ", ".join(f"{each.name} {'-' if value is None else words(value)}" for each, value in pairs)
        for name, pairs in zip(axis.names, (list(zip(series, row, strict=True)) for row in rows), strict=True)
    ]
    svg = draw([(each.css, each.values) for each in series], highest, titles, sentence)
    return Figure(title, unit, series, words(highest), words(highest / 2), axis.ticks, svg, sentence)


# -- words -------------------------------------------------------------------------------------------------------------


def amount(value: float) -> str:
    return display.number(int(value)) if value == int(value) else ""


def at(instant: int, span: str) -> str:
    """Return the time of a part."""
    here = local(clock.from_instant(instant))
    return f"{here:%H:%M}" if span == "hour" else f"{here:%Y-%m-%d %H:%M}"


def ticks(parts: Sequence[Bin] | Sequence[Timing], span: str) -> list[str]:
    """Return what stands below the axis of these parts of a time: at its begin, its end, and three times between."""
    first, width = parts[0].at, parts[1].at - parts[0].at
    return [tick(first + len(parts) * width * quarter // 4, span) for quarter in range(5)]


def tick(instant: int, span: str) -> str:
    """Return what stands below the axis of time."""
    here = local(clock.from_instant(instant - instant % MINUTE))
    return f"{here:%m-%d}" if span == "week" else f"{here:%H:%M}"
