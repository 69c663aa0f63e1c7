"""Small plots, drawn by the server as SVG in the colours of the page."""

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

BAR, HEIGHT = 4, 24  # units of the drawing


def sparkline(values: Sequence[int], label: str) -> SafeString:
    """Return a row of bars, one for each value; ``label`` says what they are to who cannot see them."""
    highest = max(values, default=0) or 1
    sizes = [max(round(HEIGHT * value / highest), 1 if value else 0) for value in values]
    bars = format_html_join(
        "",
        '<rect x="{}" y="{}" width="{}" height="{}"></rect>',
        ((place * BAR, HEIGHT - size, BAR - 1, size) for place, size in enumerate(sizes) if size),
    )
    return format_html(
        '<svg class="vtq-sparkline" role="img" viewBox="0 0 {} {}" width="{}" height="{}"><title>{}</title>{}</svg>',
        len(values) * BAR,
        HEIGHT,
        len(values) * BAR,
        HEIGHT,
        label,
        bars,
    )
