"""Tags for the templates of the admin: the overview, the tabs of the app, and tables that are cards on a phone.

Django imports the tags of every app, also where the admin is not installed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

register = template.Library()


@register.inclusion_tag("vtqueue/overview.html", takes_context=True)
def vtqueue_overview(context: template.Context) -> dict[str, Any]:
    """Show the queues and the workers, as far as the user may see them."""
    from ..admin.overview import overview

    return overview(context["request"], context["app_list"])


@register.inclusion_tag("vtqueue/tabs.html", takes_context=True)
def vtqueue_tabs(context: template.Context) -> dict[str, Any]:
    """Show where one can go in the app, where one is, and the zone of the times."""
    from ..admin.links import tabs, zone

    return {"tabs": tabs(context["request"], context.get("available_apps") or ()), "zone": zone()}


@register.filter
def vtqueue_labelled(
    rows: Iterable[Iterable[SafeString]], headers: Iterable[Mapping[str, Any]]
) -> Iterator[Iterator[SafeString]]:
    """Yield the cells of each row of a list, each with the head of its column, which a card has beside it."""
    labels = [
        ""
        if "action-checkbox" in header.get("class_attrib", "")
        else format_html(' data-label="{}"', capfirst(header["text"]))
        for header in headers
    ]
    for row in rows:
        yield (labelled(*cell) for cell in zip(row, labels, strict=False))


def labelled(cell: SafeString, label: str) -> SafeString:
    """Return a cell, as Django has made it, with its role in the table and its label."""
    tag = cell[:3]
    return mark_safe(f'{tag} role="{"rowheader" if tag == "<th" else "cell"}"{label}{cell[3:]}')
