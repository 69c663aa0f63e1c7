"""The dead letters that a page is about: from the query of its address, as a form's hidden field, and in words."""

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core import clock
from ..core.humanize import local, whole
from ..engines import database_for, engine_for
from ..queue.dead_letters import TEXTS, Criteria
from .base import ReadOnlyAdmin
from .changelists import AFTER, TRAIL

TIMES = {
    "1h": (3600, gettext_lazy("the last hour")),
    "1d": (86_400, gettext_lazy("the last 24 hours")),
    "7d": (604_800, gettext_lazy("the last 7 days")),
}
ANSWERS = {"yes": True, "no": False}
EXACT = ("died_from", "died_to")
BESIDE = {"p", "o", "e", "order", "page", AFTER, TRAIL}  # parameters of an address that choose no letters


def criteria_of(query: Mapping[str, str], now: int) -> Criteria | None:
    """Return what the query of an address asks for; None if it asks for something else as well (a search, say).

    An empty task is that of raw payloads.
    """
    given = {name: value for name, value in query.items() if name not in BESIDE}
    values: dict[str, object] = {name: given.pop(name) for name in TEXTS if name in given}
    try:
        values |= {name: int(given.pop(name)) for name in EXACT if name in given}
        if "reviewed" in given:
            values["reviewed"] = ANSWERS[given.pop("reviewed")]
        if "died" in given:
            values["died_from"] = now - TIMES[given.pop("died")][0] * clock.SECOND
        return None if given else Criteria(**values)  # type: ignore[arg-type]
    except (KeyError, ValueError):
        return None


def selected(request: HttpRequest) -> Criteria | None:
    """Return which letters a request is about: those that were confirmed, or those of its address; None: unclear.

    What dies from now on is left out: what was counted is what will be changed.
    """
    now = engine_for(database_for()).now()
    try:
        posted = request.method == "POST"
        found = Criteria.from_json(request.POST.get("criteria", "")) if posted else criteria_of(request.GET.dict(), now)
    except ValueError:
        return None
    return replace(found, died_to=now) if found and found.died_to is None else found


def refused(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Say that it is not clear which letters were selected."""
    text = _("Nothing was done: choose by queue, task, exception, group and time only; a search is no choice.")
    model_admin.message_user(request, text, messages.ERROR)
    return model_admin.go_to("deadletter_changelist")


def query_of(criteria: Criteria) -> str:
    """Return the query of an address that asks for these letters."""
    given = criteria.given()
    if (seen := given.get("reviewed")) is not None:
        given["reviewed"] = "yes" if seen else "no"
    return urlencode(given)


def in_words(criteria: Criteria, *, plain: bool = False) -> list[tuple[str, str]]:
    """Return each criterion by its name and value, as people read it; ``plain``: without a fingerprint."""
    names = {
        "queue_name": _("queue"),
        "task_path": _("task"),
        "exception_class": _("exception"),
        "fingerprint": _("fingerprint"),
        "reviewed": _("reviewed"),
        "died_from": _("died from"),
        "died_to": _("died until"),
    }
    words = []
    for name, value in criteria.given().items():
        if plain and name == "fingerprint":
            continue
        if name in EXACT:
            value = whole(local(clock.from_instant(value)))
        elif name == "reviewed":
            value = _("yes") if value else _("no")
        elif name == "task_path" and not value:
            value = _("(raw payload)")
        words.append((names[name], value))
    return words
