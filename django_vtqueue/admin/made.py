"""What a durable task has done, step by step; the children it waits for, and the events that it has not asked for."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core import clock, states, steps
from ..core.encoding import decode
from ..core.ids import parse_id
from ..core.masks import Mask
from ..fields import text_of
from ..inspection.trees import lean
from ..models import DeadLetter, Job
from . import display
from .display import Entry
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
ENDED = {states.SUCCESSFUL: "done", states.FAILED: "dead"}


def made(entry: Entry, site: str) -> SafeString | str:
    """Return what a durable task has done, as a table; what is damaged is shown as it is stored.

    ``site``: the name of the admin site to link to.
    """
    own = Mask(display.mask(entry).words)
    try:
        found = steps.read(entry.steps)
    except (ValueError, RecursionError):
        return display.unreadable(text_of(entry.steps), own)
    rows = [step(number, record, own) for number, record in enumerate(found.done, 1)]
    for row, record in zip(rows, found.done, strict=True):
        if isinstance(ids := record.get("children"), list):
            row["children"] = list(children(entry, ids[:CHILDREN], record.get("value"), own, site))
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
    if record.get("kind") == steps.ITERATE and "next" in record:
        return _("goes on behind %(item)s") % {"item": one_line(record["next"])}
    if record.get("late"):
        return _("nothing came in time")
    value = None if record.get("children") else own.hide(record.get("value"))
    return "" if value is None else one_line(value)


def one_line(value: Any) -> str:
    return display.short(display.dumps_shown(value), display.SUMMARY)


def event(stored: dict[str, Any], own: Mask) -> dict[str, Any]:
    """Return an event that no step has taken, for the template."""
    at, value = instant(stored.get("at")), own.hide(stored.get("value"))
    return {
        "name": display.cut(stored.get("name", "")),
        "at": "-" if at is None else display.moment(clock.from_instant(at)),
        "value": "" if value is None else one_line(value),
    }


def children(parent: Entry, ids: list[Any], kept: Any, own: Mask, site: str) -> Iterator[dict[str, Any]]:
    """Yield the children of a step; ``kept``: what became of each, when all of them have ended."""
    known = {job_id: row_id for job_id in ids if (row_id := parse_id(job_id))}
    rows = {} if isinstance(kept, list) else present(parent, list(known.values()))
    now = clock.now()
    for place, job_id in enumerate(ids):
        text = f"…{display.cut(job_id)[-8:]}"
        shown: dict[str, Any] = {"id": text, "state": "-", "result": ""}
        if row_id := known.get(job_id):
            shown["id"] = link(site, "job_change", text, row_id)
        if isinstance(kept, list) and place < len(kept) and isinstance(ended := kept[place], dict):
            word = ENDED.get(str(ended.get("state")), "")
            shown["state"] = display.badge(word, LABELS[word]) if word else "-"
            shown["result"] = returned(ended, own)
        elif row := rows.get(row_id):
            word = display.word_of(row, now)
            shown["state"] = display.badge(word, LABELS[word])
        yield shown


def present(parent: Entry, ids: list[UUID]) -> dict[UUID | None, Entry]:
    """Return those children that are there, jobs and dead letters, without their large columns."""
    database = parent._state.db
    return {row.pk: row for model in (Job, DeadLetter) for row in lean(model, database).filter(pk__in=ids)}


def returned(ended: dict[str, Any], own: Mask) -> str:
    """Return the result of a child, or why it has failed, as its parent has kept it."""
    history = ended.get("history")
    if ended.get("state") == states.FAILED and isinstance(history, list) and history and isinstance(history[-1], dict):
        name = str(history[-1].get("exception_class", "")).rpartition(".")[2]
        return display.short(f"{name}: {history[-1].get('message', '')}", display.SUMMARY)
    value = ended.get("result")
    try:
        value = own.hide(decode(value)) if isinstance(value, str) else own.hide(value)
    except (ValueError, RecursionError):
        return display.unreadable(str(value), own)
    return "" if value is None else one_line(value)
