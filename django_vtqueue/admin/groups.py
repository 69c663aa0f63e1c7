"""The page of the groups of dead letters: what fails, how often, since when, and a sample of each failure."""

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from .. import throughput
from ..core import clock, counts
from ..core.humanize import duration, local, whole
from ..core.job import LetterGroup
from ..engines import Engine, database_for, engine_for
from ..models import DeadLetter
from . import display
from .job_base import EntryAdmin
from .plots import histogram
from .selection import TIMES
from .tracebacks import folded

MOST_GROUPS = 1000
MOST_COUNTED = 10_000  # letters of one group
MOST_QUEUES = 200  # names that the form suggests
FAILING = 5 * counts.MINUTE  # since the last death: it still fails, unless something has succeeded since
PER_PAGE = 20
SLOTS = 48  # bars of a plot
FILTERS = ("queue_name", "task_path", "exception_class")
ORDERS = {"last": lambda group: (group.last, group.number), "count": lambda group: (group.number, group.last)}


def page(model_admin: EntryAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page of the groups that the query of the address asks for."""
    engine = engine_for(database_for())
    now = engine.now()
    chosen = {name: request.GET[name] for name in FILTERS if request.GET.get(name)}
    died = request.GET.get("died", "") if request.GET.get("died") in TIMES else ""
    order = request.GET.get("order") if request.GET.get("order") in ORDERS else "last"
    since = now - TIMES[died][0] * clock.SECOND if died else 0
    found = engine.inspection.letter_groups(**chosen, since=since, until=now, limit=MOST_GROUPS, count=MOST_COUNTED)
    found.sort(key=ORDERS[str(order)], reverse=True)
    shown = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    query = chosen | ({"died": died} if died else {})
    context = {
        "title": _("Dead letters by failure"),
        "rows": rows(engine, list(shown), query, since or min((group.first for group in shown), default=now), now),
        "page": shown,
        "more": len(found) >= MOST_GROUPS,
        "most": MOST_GROUPS,
        "chosen": query,
        "times": TIMES,
        "order": order,
        "orders": {"last": _("the latest first"), "count": _("the most frequent first")},
        "earlier_query": urlencode({**query, "order": order, "page": shown.number - 1}),
        "later_query": urlencode({**query, "order": order, "page": shown.number + 1}),
        "queues": engine.inspection.names("deadletter", "queue_name", MOST_QUEUES),
        "tasks": sorted({group.task_path for group in found}),
        "exceptions": sorted({group.exception_class for group in found}),
        "may_requeue": model_admin.has_requeue_permission(request),
        "may_discard": model_admin.has_delete_permission(request),
    }
    return model_admin.page(request, "admin/vtqueue/deadletter/groups.html", **context)


def rows(
    engine: Engine, groups: list[LetterGroup], query: dict[str, str], since: int, now: int
) -> list[dict[str, Any]]:
    """Return groups for the template, each with its plot and a sample."""
    latest = [group.latest for group in groups]
    short = DeadLetter.objects.using(engine.alias).only("message").filter(pk__in=[UUID(letter) for letter in latest])
    messages = {letter.pk.hex: letter.message for letter in short}
    traces = engine.inspection.letter_tracebacks(latest)
    moments = {(group.task_path, group.last) for group in groups}
    succeeded = throughput.succeeded_since(engine.alias, moments, now)
    deaths = engine.inspection.letter_deaths(groups, SLOTS, queue_name=query.get("queue_name"), since=since, until=now)
    return [
        {
            "task": display.task_name(group.task_path),
            "exception": group.exception_class,
            "short": group.exception_class.rpartition(".")[2],
            "message": display.cut(messages.get(group.latest, "")),
            "traceback": folded(traces[group.latest]) if traces.get(group.latest) else "",
            "sample": UUID(group.latest),
            "count": display.number(group.number, more=group.number >= MOST_COUNTED),
            "first": display.moment(clock.from_instant(group.first)),
            "last": display.moment(clock.from_instant(group.last)),
            "failing": now - group.last < FAILING and not succeeded[group.task_path, group.last],
            "quiet": duration(max(now - group.last, 0)),
            "succeeded": display.number(succeeded[group.task_path, group.last]),
            "works": succeeded[group.task_path, group.last] > 0,
            "task_query": urlencode({"task_path": group.task_path}) if group.task_path else "",
            "plot": histogram(dead, plotted(dead, since)),
            "query": urlencode({**query, "fingerprint": group.fingerprint, "task_path": group.task_path}),
        }
        for group, dead in zip(groups, deaths, strict=True)
    ]


def plotted(deaths: list[int], since: int) -> str:
    """Return what a plot shows, in words."""
    values = {
        "start": whole(local(clock.from_instant(since))),
        "total": sum(deaths),
        "most": max(deaths),
        "parts": len(deaths),
    }
    return (
        _("%(total)d deaths since %(start)s; at most %(most)d in one of %(parts)d equal parts of that time.") % values
    )
