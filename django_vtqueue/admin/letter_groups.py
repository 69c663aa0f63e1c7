"""The page of the groups of dead letters: what fails, how often, since when, and a sample of each failure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.db.models import Count, Exists, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from ..core import clock, counts
from ..core.clock import from_instant
from ..core.humanize import duration, local, whole
from ..core.ids import parse_id
from ..engines import database_for, engine_for
from ..engines.distinct import RowCount, fetch, first_of_each
from ..inspection import throughput
from ..inspection.overview import names
from ..inspection.throughput import part_of
from ..models import DeadLetter
from . import display
from .job_base import EntryAdmin
from .letter_selection import TIMES
from .plots import histogram
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
    with engine.snapshot() as now:
        context = read(request, engine.alias, now)
    context |= {
        "may_requeue": model_admin.has_requeue_permission(request),
        "may_discard": model_admin.has_delete_permission(request),
    }
    return model_admin.page(request, "admin/vtqueue/deadletter/groups.html", **context)


def read(request: HttpRequest, database: str, now: int) -> dict[str, Any]:
    """Return what the template shows."""
    chosen = {name: request.GET[name] for name in FILTERS if request.GET.get(name)}
    died = request.GET.get("died", "") if request.GET.get("died") in TIMES else ""
    order = request.GET.get("order") if request.GET.get("order") in ORDERS else "last"
    since = now - TIMES[died][0] * clock.SECOND if died else 0
    letters = among(database, since, now, chosen.get("queue_name"))
    which = {name: value for name, value in chosen.items() if name != "queue_name"}
    found = sorted(groups(letters, which), key=ORDERS[str(order)], reverse=True)
    shown = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    query = chosen | ({"died": died} if died else {})
    return {
        "title": _("Dead letters by failure"),
        "rows": rows(letters, list(shown), query, since or min((group.first for group in shown), default=now), now),
        "page": shown,
        "more": len(found) >= MOST_GROUPS,
        "most": MOST_GROUPS,
        "chosen": query,
        "times": TIMES,
        "order": order,
        "orders": {"last": _("the latest first"), "count": _("the most frequent first")},
        "earlier_query": urlencode({**query, "order": order, "page": shown.number - 1}),
        "later_query": urlencode({**query, "order": order, "page": shown.number + 1}),
        "queues": names(database, "queue_name", MOST_QUEUES),
        "tasks": sorted({group.task_path for group in found}),
        "exceptions": sorted({group.exception_class for group in found}),
    }


# -- what is read ------------------------------------------------------------------------------------------------------
#
# By vtqueue_letter_group alone, but for one letter of each group: of 100,000 letters only index entries are met.


class LetterGroup(NamedTuple):
    """The dead letters of one fingerprint and task, in some time and queue; ``latest``: the id of the last one.

    ``first``, ``last``: instants of deaths.
    """

    fingerprint: str
    task_path: str
    exception_class: str
    number: int
    first: int
    last: int
    latest: str


def among(database: str, since: int, until: int, queue_name: str | None) -> QuerySet[DeadLetter]:
    """Return the letters that died in a time, of one queue or (None) of all."""
    letters = DeadLetter._base_manager.using(database).filter(died_at__gte=since, died_at__lte=until)
    return letters if queue_name is None else letters.filter(queue_name=queue_name)


def groups(letters: QuerySet[DeadLetter], which: Mapping[str, str]) -> list[LetterGroup]:
    """Return the groups of these letters, of the first MOST_GROUPS groups of all; ``which``: what theirs have."""
    same = letters.filter(fingerprint=OuterRef("fingerprint"), task_path=OuterRef("task_path"))
    last = same.order_by("-died_at", "-pk")
    each = first_of_each(DeadLetter.objects.using(letters.db), "fingerprint", "task_path", limit=MOST_GROUPS)
    rows = each.filter(Exists(same), **which).values_list(
        "fingerprint",
        "task_path",
        "exception_class",
        RowCount(same[:MOST_COUNTED]),
        Subquery(same.order_by("died_at", "pk").values("died_at")[:1]),
        Subquery(last.values("died_at")[:1]),
        Subquery(last.values("pk")[:1]),
    )
    return [LetterGroup(*row) for row in fetch(rows)]


def deaths(letters: QuerySet[DeadLetter], shown: Sequence[LetterGroup], since: int, now: int) -> list[list[int]]:
    """Return, for each group, how many of its letters died in each of SLOTS equal parts of a time."""
    width = max((now - since) // SLOTS + 1, 1)
    numbers = [[0] * SLOTS for _ in shown]
    places = {group[:2]: place for place, group in enumerate(shown)}
    of_groups = letters.filter(
        fingerprint__in={group.fingerprint for group in shown}, task_path__in={group.task_path for group in shown}
    )
    slots = of_groups.values_list("fingerprint", "task_path", part_of("died_at", since, width)).annotate(Count("pk"))
    for fingerprint, task_path, slot, number in fetch(slots.order_by()):
        if (place := places.get((fingerprint, task_path))) is not None:
            numbers[place][slot] = number
    return numbers


# -- what is shown -----------------------------------------------------------------------------------------------------


def rows(
    letters: QuerySet[DeadLetter], shown: list[LetterGroup], query: dict[str, str], since: int, now: int
) -> list[dict[str, Any]]:
    """Return groups for the template, each with its plot and a sample."""
    found = DeadLetter.objects.using(letters.db).only("message", "history")
    samples = found.in_bulk([group.latest for group in shown])
    succeeded = throughput.succeeded_since(str(letters.db), {(group.task_path, group.last) for group in shown}, now)
    return [
        row(group, samples.get(parse_id(group.latest)), succeeded[group.task_path, group.last], now)
        | {
            "plot": histogram(dead, plotted(dead, since)),
            "query": urlencode({**query, "fingerprint": group.fingerprint, "task_path": group.task_path}),
        }
        for group, dead in zip(shown, deaths(letters, shown, since, now), strict=True)
    ]


def row(group: LetterGroup, sample: DeadLetter | None, succeeded: int, now: int) -> dict[str, Any]:
    """Return what the template says of a group; ``succeeded``: attempts at its task since its last death."""
    age = now - group.last
    return {
        "task": display.task_name(group.task_path),
        "exception": group.exception_class,
        "short": group.exception_class.rpartition(".")[2],
        "message": display.cut(sample.message if sample else ""),
        "traceback": folded(sample.traceback) if sample and sample.traceback else "",
        "sample": group.latest,
        "count": display.number(group.number, more=group.number >= MOST_COUNTED),
        "first": display.moment(from_instant(group.first)),
        "last": display.moment(from_instant(group.last)),
        "failing": age < FAILING and not succeeded,
        "quiet": duration(max(age, 0)),
        "succeeded": display.number(succeeded),
        "works": succeeded > 0,
        "task_query": urlencode({"task_path": group.task_path}) if group.task_path else "",
    }


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
