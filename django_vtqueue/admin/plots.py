"""Plots as SVG, drawn by the server; their colours are classes, so that light, dark and a site's theme all fit."""

from collections.abc import Sequence
from math import floor, log10

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

HEIGHT = 32
LINE = 1.5  # room above the highest point, so that its line is not cut; the least that is seen
TALL = 140  # units of a large chart
BAR, BAR_HEIGHT = 4, 24  # units of the drawing
WIDE = 300  # units of a line of time


def sparkline(numbers: Sequence[int], label: str, bars: Sequence[int] = ()) -> SafeString:
    """Return a small area under a line through numbers at equal distances, oldest first; its scale begins at 0.

    ``bars``: what of each number is drawn over it in another colour, where it is not 0. ``label``: what a screen reader
    says instead, in complete sentences.
    """
    width, highest = max(len(numbers) - 1, 1), max([*numbers, *bars], default=0)
    return format_html(
        '<svg class="vtq-sparkline" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"><title>{}</title>'
        '<path class="vtq-baseline" d="M0 {}H{}"/><path class="vtq-area" d="{}"/><path class="vtq-bars" d="{}"/></svg>',
        width,
        HEIGHT,
        label,
        HEIGHT,
        width,
        area(numbers, highest),
        "".join(f"M{place} {HEIGHT}V{height(value, highest)}" for place, value in enumerate(bars) if value),
    )


def area(numbers: Sequence[int], highest: int) -> str:
    """Return the path around the area below some numbers, without the points that a straight line needs not."""
    if not highest:
        return ""
    points = "".join(
        f"L{place} {height(value, highest)}" for place, value in enumerate(numbers) if turns(numbers, place)
    )
    return f"M0 {HEIGHT}{points}V{HEIGHT}Z"


def turns(numbers: Sequence[int], place: int) -> bool:
    """Return whether a line through these numbers may change its direction here."""
    return not 0 < place < len(numbers) - 1 or not numbers[place - 1] == numbers[place] == numbers[place + 1]


def height(value: int, highest: int) -> str:
    """Return where a number lies; above 0 it never looks like 0."""
    if not value:
        return str(HEIGHT)
    return f"{min(HEIGHT - (HEIGHT - LINE) * value / highest, HEIGHT - LINE):.1f}"


def nice(value: float, steps: Sequence[float] = ()) -> float:
    """Return the end of an axis that holds a value: the next of ``steps``, or of 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, …"""
    for step in steps:
        if value <= step:
            return step
    whole: float = 10.0 ** floor(log10(max(value, 1)))
    return next(whole * factor for factor in (1, 2, 3, 4, 5, 6, 8, 10) if value <= whole * factor)


def stacked(
    series: Sequence[tuple[str, Sequence[int]]], highest: float, titles: Sequence[str], label: str
) -> SafeString:
    """Return bars, one for each slot, of several series on top of each other; ``titles``: of the slots."""
    width = len(titles)
    below = [0.0] * width
    paths = []
    for name, values in series:
        path = ""
        for place, value in enumerate(values):
            if value:
                bottom, below[place] = below[place], below[place] + max(value * TALL / highest, LINE)
                path += f"M{place + 0.1:.1f} {TALL - bottom:.1f}h.8V{max(TALL - below[place], 0):.1f}h-.8z"
        paths.append((name, path))
    return drawing(width, format_html_join("", '<path class="vtq-fill vtq-{}" d="{}"/>', paths), titles, label)


def lines(
    series: Sequence[tuple[str, Sequence[int | None]]], highest: float, titles: Sequence[str], label: str
) -> SafeString:
    """Return lines through the middles of the slots, with a gap where there is no value; ``titles``: of the slots.

    The first of the series is drawn over the others.
    """
    paths = []
    for name, values in reversed(series):
        path, drawn = "", False
        for place, value in enumerate(values):
            if value is not None:
                y = TALL - value * (TALL - LINE) / highest
                # A value alone is a short line.
                path += f"L{place + 0.5} {y:.1f}" if drawn else f"M{place + 0.2:.1f} {y:.1f}L{place + 0.5} {y:.1f}"
                if place + 1 == len(values) or values[place + 1] is None:
                    path += "h.3"
            drawn = value is not None
        paths.append((name, path))
    return drawing(len(titles), format_html_join("", '<path class="vtq-line vtq-{}" d="{}"/>', paths), titles, label)


def drawing(width: int, paths: SafeString, titles: Sequence[str], label: str) -> SafeString:
    """Return what is drawn over the three lines of an axis; ``titles``: of the slots, shown under the mouse."""
    return format_html(
        '<svg class="vtq-drawing" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"><title>{}</title>'
        '<path class="vtq-grid" d="M0 0H{}M0 {}H{}M0 {}H{}"/>{}{}</svg>',
        width,
        TALL,
        label,
        width,
        TALL // 2,
        width,
        TALL,
        width,
        paths,
        format_html_join(
            "",
            '<rect class="vtq-under" x="{}" y="0" width="1" height="{}"><title>{}</title></rect>',
            ((place, TALL, title) for place, title in enumerate(titles)),
        ),
    )


def span(enqueued: int, started: int | None, ended: int, scale: tuple[int, int], word: str, label: str) -> SafeString:
    """Return when a job waited and when it ran, as a line and a bar between two instants, the ends of the ``scale``.

    ``word``: of its state; ``label``: what a screen reader says instead.
    """
    begin, end = scale
    first, bar, last = (
        WIDE * (min(max(ended if instant is None else instant, begin), end) - begin) / (end - begin)
        for instant in (enqueued, started, ended)
    )
    bar = min(bar, WIDE - LINE)
    size = max(last - bar, LINE)
    ran = "" if started is None else f"M{bar:.1f} 2h{size:.1f}v8h-{size:.1f}z"
    return format_html(
        '<svg class="vtq-span" viewBox="0 0 {} 12" preserveAspectRatio="none" role="img"><title>{}</title>'
        '<path class="vtq-waited" d="M{} 6H{}"/><path class="vtq-ran-{}" d="{}"/></svg>',
        WIDE,
        label,
        f"{first:.1f}",
        f"{max(last, first + LINE):.1f}",
        word,
        ran,
    )


def histogram(values: Sequence[int], label: str) -> SafeString:
    """Return a row of bars, one for each value; ``label``: what a screen reader says instead."""
    highest = max(values, default=0) or 1
    sizes = [max(round(BAR_HEIGHT * value / highest), 1 if value else 0) for value in values]
    bars = (f"M{place * BAR} {BAR_HEIGHT}v-{size}h{BAR - 1}v{size}z" for place, size in enumerate(sizes) if size)
    return format_html(
        '<svg class="vtq-histogram" role="img" viewBox="0 0 {} {}" width="{}" height="{}"><title>{}</title>'
        '<path d="{}"/></svg>',
        len(values) * BAR,
        BAR_HEIGHT,
        len(values) * BAR,
        BAR_HEIGHT,
        label,
        "".join(bars),
    )
