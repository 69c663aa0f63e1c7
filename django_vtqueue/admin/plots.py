"""Plots as SVG, drawn by the server; their colours are classes, so that light, dark and a site's theme all fit."""

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

HEIGHT = 32
LINE = 1.5  # room above the highest point, so that its line is not cut; the least that is seen
BAR, BAR_HEIGHT = 4, 24  # units of the drawing


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


def histogram(values: Sequence[int], label: str) -> SafeString:
    """Return a row of bars, one for each value; ``label`` says what they are to who cannot see them."""
    highest = max(values, default=0) or 1
    sizes = [max(round(BAR_HEIGHT * value / highest), 1 if value else 0) for value in values]
    bars = format_html_join(
        "",
        '<rect x="{}" y="{}" width="{}" height="{}"></rect>',
        ((place * BAR, BAR_HEIGHT - size, BAR - 1, size) for place, size in enumerate(sizes) if size),
    )
    return format_html(
        '<svg class="vtq-histogram" role="img" viewBox="0 0 {} {}" width="{}" height="{}"><title>{}</title>{}</svg>',
        len(values) * BAR,
        BAR_HEIGHT,
        len(values) * BAR,
        BAR_HEIGHT,
        label,
        bars,
    )
