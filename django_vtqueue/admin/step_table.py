"""What a durable task has done, step by step; the children it waits for, and the events that it has not asked for."""

from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core import clock, steps
from ..core.masks import Mask
from ..engines import engine_for
from ..fields import text_of
from ..inspection.trees import ChildJob, children_of
from ..models.jobs import JobOrLetter
from . import display
from .filters import LABELS
from .links import link
from .timelines import instant, took

CHILDREN = 100  # of a step that are shown
KINDS = {
    steps.STEP: gettext_lazy("step"),
    steps.SLEEP: gettext_lazy("sleep"),
    steps.EVENT: gettext_lazy("event"),
    steps.GATHER: gettext_lazy("children"),
    steps.ITERATE: gettext_lazy("loop"),
}


def made(entry: JobOrLetter, site: str) -> SafeString | str:
    """Return what a durable task has done, as a table; what is damaged is shown as it is stored.

    ``site``: the name of the admin site to link to.
    """
    own = Mask(display.mask(entry).words)
    try:
        found = steps.read(entry.steps, entry.earlier_steps)
    except (ValueError, RecursionError):
        return display.unreadable(text_of(entry.steps), own)
    rows = [step(number, record, own) for number, record in enumerate(found.done, 1)]
    with engine_for(str(entry._state.db)).snapshot() as now:
        children = list(children_of(entry, found.done, own, now, CHILDREN))
    for row, record, some in zip(rows, found.done, children, strict=True):
        if isinstance(ids := record.get("children"), list):
            row["children"] = [child(each, site) for each in some]
            row["more"] = len(ids[CHILDREN:])
    events = [event(each, own) for each in found.events]
    return render_to_string("vtqueue/steps.html", {"steps": rows, "events": events}) if rows or events else "-"


def step(number: int, record: steps.Record, own: Mask) -> dict[str, Any]:
    """Return a step for the template; nothing in a record is sure to have the right type."""
    began, at = instant(record.get("began")), instant(record.get("at"))
    return {
        "number": number,
        "kind": KINDS.get(str(record.get("kind")), display.cut(record.get("kind", ""))),
        "name": display.cut(record.get("name", "")),
        "ended": "-" if at is None else display.moment(clock.from_instant(at)),
        "duration": took(began, at),
        "result": result(record, own),
    }


def result(record: steps.Record, own: Mask) -> str:
    """Return what a step has returned, in one line; of a loop under way, behind which item it goes on."""
    if (count := steps.items_done(record)) is not None:
        return ngettext("goes on after %d item", "goes on after %d items", count) % count
    if record.get("kind") == steps.ITERATE and "next" in record:
        return _("goes on behind %(item)s") % {"item": value(record["next"])}
    if record.get("late"):
        return _("nothing came in time")
    return "" if record.get("children") else value(own.hide(record.get("value")))


def value(found: Any) -> str:
    """Return a value in one line; nothing for None."""
    return "" if found is None else display.short(display.dumps_shown(found), display.SUMMARY)


def event(stored: dict[str, Any], own: Mask) -> dict[str, Any]:
    """Return an event that no step has taken, for the template."""
    at = instant(stored.get("at"))
    return {
        "name": display.cut(stored.get("name", "")),
        "at": "-" if at is None else display.moment(clock.from_instant(at)),
        "value": value(own.hide(stored.get("value"))),
    }


def child(found: ChildJob, site: str) -> dict[str, Any]:
    """Return a child of a step for the template."""
    text, word = f"…{display.cut(found.stored)[-8:]}", found.word
    return {
        "id": link(site, "job_change", text, found.job_id) if found.job_id else text,
        "state": display.badge(word, LABELS[word]) if word else "-",
        "result": display.short(found.failure, display.SUMMARY) or value(found.result),
    }
