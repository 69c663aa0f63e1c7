"""Plots as SVG, drawn by the server; their colours are classes, so that light, dark and a site's theme all fit."""

from collections.abc import Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString

HEIGHT = 32
LINE = 1.5  # room above the highest point, so that its line is not cut; the least that is seen


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
