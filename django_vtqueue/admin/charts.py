"""The page of the charts: what was done, what failed, how long it waited and ran, and how much was due, over time."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import throughput
from ..core import clock
from ..core.clock import SECOND
from ..core.counts import HOUR, MINUTE
from ..core.histograms import Percentiles
from ..core.humanize import duration, local
from ..engines import Engine
from ..inspection.overview import queue_names
from ..throughput import Slot, Timing
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


class Key(NamedTuple):
    """A series: its class, its name, and its values."""

    css: str
    name: str
    values: Sequence[Any]


class Figure(NamedTuple):
    """A chart. ``top``, ``middle``: of its axis; ``ticks``: of the time; ``sentence``: what it shows."""

    title: str
    unit: str
    keys: Sequence[Key]
    top: str
    middle: str
    ticks: Sequence[SafeString | str]
    svg: SafeString
    sentence: str


def context(request: HttpRequest, engine: Engine, now: int) -> dict[str, Any]:
    """Return what the template shows of the queue, the task and the span that the address asks for."""
    span = request.GET.get("span", "hour") if request.GET.get("span") in SPANS else "hour"
    chosen = {name: request.GET[name] for name in ("queue_name", "task_path") if request.GET.get(name)}
    queue, task = chosen.get("queue_name"), chosen.get("task_path")
    slots, timings = throughput.charted(engine.alias, now, str(span), queue, task)
    ticks, hours = ticks_of(slots, span), ticks_of(timings, span)
    each = str(SPANS[span][1])
    names = [at(slot.at, span) for slot in slots]
    figures = [
        counted(_("Attempts"), _("ended, each bar %s") % each, done(slots), names, ticks),
        counted(_("Failures"), _("attempts that failed, each bar %s") % each, bad(slots), names, ticks),
    ]
    timed = [at(timing.at, span) for timing in timings]
    figures.append(lasted(_("Wait"), _("from due to begun"), [timing.wait for timing in timings], timed, hours))
    figures.append(lasted(_("Run"), _("from begun to ended"), [timing.run for timing in timings], timed, hours))
    if task is None:
        figures.append(depth(slots, names, ticks))
    return {
        "title": _("Charts"),
        "figures": figures,
        "numbers": [row for row in zip(names, slots, strict=True) if row[1].succeeded + row[1].failed + row[1].dead],
        "each": each,
        "chosen": chosen,
        "span": span,
        "seconds": REFRESH[str(span)],
        "spans": [(name, words[0], urlencode({**chosen, "span": name})) for name, words in SPANS.items()],
        "queues": sorted({*queue_names(engine.alias, MOST_NAMES), *throughput.read(engine.alias, now, 1)}),
        "since": display.moment(clock.from_instant(slots[0].at)),
    }


def done(slots: Iterable[Slot]) -> list[Key]:
    slots = list(slots)
    return [
        Key("done", _("succeeded"), [slot.succeeded for slot in slots]),
        Key("failed", _("failed"), [slot.failed + slot.dead for slot in slots]),
    ]


def bad(slots: Iterable[Slot]) -> list[Key]:
    slots = list(slots)
    return [
        Key("dead", _("died"), [slot.dead for slot in slots]),
        Key("retried", _("to be retried"), [slot.failed for slot in slots]),
    ]


def counted(title: str, unit: str, keys: Sequence[Key], names: Sequence[str], ticks: Sequence[Any]) -> Figure:
    """Return a chart of bars."""
    sums = [sum(values) for values in zip(*(key.values for key in keys), strict=True)]
    highest = plots.nice(max(sums, default=0))
    said = [f"{display.number(sum(key.values))} {key.name}" for key in keys]
    sentence = f"{title}: {', '.join(said)}."
    if any(sums):
        most = max(sums)
        values = {"number": display.number(most), "time": names[sums.index(most)]}
        sentence += " " + _("At most %(number)s, at %(time)s.") % values
    titles = [
        f"{name}: " + ", ".join(f"{display.number(key.values[place])} {key.name}" for key in keys)
        for place, name in enumerate(names)
    ]
    svg = plots.stacked([(key.css, key.values) for key in keys], highest, titles, sentence)
    return Figure(title, unit, keys, *axis(highest, amount), ticks, svg, sentence)


def lasted(title: str, unit: str, times: Sequence[Percentiles], names: Sequence[str], ticks: Sequence[Any]) -> Figure:
    """Return a chart of percentiles."""
    keys = [
        Key("p50", "p50", [each.p50 for each in times]),
        Key("p95", "p95", [each.p95 for each in times]),
        Key("p99", "p99", [each.p99 for each in times]),
    ]
    found = [each.p99 for each in times if each.p99 is not None]
    highest = plots.nice(max(found, default=1000), STEPS)
    sentence = f"{title}: " + _("nothing was measured.")
    if found:
        worst = next(place for place, each in enumerate(times) if each.p99 == max(found))
        values = {"longest": duration(max(found)), "time": names[worst]}
        values["half"] = duration(sorted(each.p50 for each in times if each.p50 is not None)[len(found) // 2])
        text = _("half took no longer than %(half)s most of the time; 99 %% no longer than %(longest)s, at %(time)s.")
        sentence = f"{title}: " + text % values
    titles = [f"{name}: {spoken(each)}" for name, each in zip(names, times, strict=True)]
    svg = plots.lines([(key.css, key.values) for key in reversed(keys)], highest, titles, sentence)
    return Figure(title, unit, keys, *axis(highest, lambda value: duration(round(value))), ticks, svg, sentence)


def spoken(times: Percentiles) -> str:
    return ", ".join(
        f"{name} {'-' if value is None else duration(value)}" for name, value in zip(times._fields, times, strict=True)
    )


def depth(slots: Sequence[Slot], names: Sequence[str], ticks: Sequence[Any]) -> Figure:
    """Return the chart of what was due."""
    key = Key("depth", _("due"), [slot.depth for slot in slots])
    found = [value for value in key.values if value is not None]
    highest = plots.nice(max(found, default=0))
    sentence = _("Depth: nothing was measured.")
    if found:
        values = {"most": display.number(max(found)), "time": names[key.values.index(max(found))]}
        sentence = _("Depth: at most %(most)s jobs were due, at %(time)s.") % values
    titles = [
        f"{name}: " + ("-" if value is None else display.number(value))
        for name, value in zip(names, key.values, strict=True)
    ]
    svg = plots.lines([(key.css, key.values)], highest, titles, sentence)
    unit = _("jobs that were due; measured by the workers once a minute")
    return Figure(_("Depth"), unit, [key], *axis(highest, amount), ticks, svg, sentence)


def axis(highest: float, words: Callable[[float], str]) -> tuple[str, str]:
    """Return what stands at the top of an axis, and at its middle."""
    return words(highest), words(highest / 2)


def amount(value: float) -> str:
    return display.number(int(value)) if value == int(value) else ""


def at(instant: int, span: str) -> str:
    """Return the time of a slot."""
    here = local(clock.from_instant(instant))
    return f"{here:%H:%M}" if span == "hour" else f"{here:%Y-%m-%d %H:%M}"


def ticks_of(parts: Sequence[Slot] | Sequence[Timing], span: str) -> list[str]:
    """Return what stands below the axis of these parts of a time: at its begin, its end, and three times between."""
    first, width = parts[0].at, parts[1].at - parts[0].at
    return [tick(first + len(parts) * width * quarter // 4, span) for quarter in range(5)]


def tick(instant: int, span: str) -> str:
    """Return what stands below the axis of time."""
    here = local(clock.from_instant(instant - instant % MINUTE))
    return f"{here:%m-%d}" if span == "week" else f"{here:%H:%M}"
