"""The timeline of a job: enqueued, each attempt with the wait before it, what people did, what is next."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.contrib.admin.utils import quote
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core import clock, copies, history, states, steps
from ..core.humanize import duration
from ..core.ids import shown_worker
from ..core.text import storable
from ..engines import database_for
from ..inspection.state import state_word
from ..inspection.why import wait
from ..models import Job, WorkerProcess
from ..models.jobs import JobOrLetter
from . import display
from .filters import LABELS
from .links import link
from .tracebacks import folded

OUTCOMES = {
    "lease expired": gettext_lazy("lease expired"),
    "worker died": gettext_lazy("worker died"),
    "failed": gettext_lazy("failed"),
    "retry": gettext_lazy("retry"),
    "gave up": gettext_lazy("gave up"),
    "released": gettext_lazy("released"),
    "timed out": gettext_lazy("timed out"),
    "cancelled": gettext_lazy("cancelled"),
    "expired": gettext_lazy("expired"),
    "requeued": gettext_lazy("requeued"),
    "step skipped": gettext_lazy("step skipped"),
    "steps repeated": gettext_lazy("steps repeated"),
    "unreadable": gettext_lazy("unreadable"),
}


SAY_MORE = (history.REQUEUED, history.SKIPPED, history.REPEATED)


def timeline(entry: JobOrLetter, site: str) -> SafeString:
    """Return the steps of a job as a table; ``site``: the name of the admin site to link to."""
    items = [*history.read(entry.history), *last_attempt(entry)]
    alive = present(item.get("worker") for item in items)
    return render_to_string("vtqueue/timeline.html", {"steps": list(attempts(entry, items, alive, site))})


def attempts(entry: JobOrLetter, items: list[history.Entry], alive: set[str], site: str) -> Iterator[dict[str, Any]]:
    """Yield the steps for the template; nothing in an item is sure to have the right type."""
    reserved = isinstance(entry, Job) and entry.reserved  # a lease or a time slot: its attempts are terms
    if not reserved:
        yield mark(_("enqueued"), entry.enqueued_at)
    since: int | None = clock.to_instant(entry.enqueued_at)
    steps_began = begins_of_steps(entry)
    for item in items:
        started, ended = instant(item.get("started")), instant(item.get("ended"))
        if history.OMITTED in item:
            yield {"omitted": history.count(item)}
        elif not item.get("number") and item.get("started") is None and ended is not None:  # what people did
            note = display.cut(item.get("message") or "") if item.get("outcome") in SAY_MORE else ""
            yield mark(outcome(item), clock.from_instant(ended), item.get("worker")) | {"note": note}
        else:
            resumed = any((since or 0) <= began < (started or 0) for began in steps_began)  # after a wait of its task
            yield attempt(item, None if resumed else since, alive, site)
        since = ended
    if isinstance(entry, Job) and not reserved:
        yield from what_is_next(entry)


def begins_of_steps(entry: JobOrLetter) -> list[int]:
    """Return when the steps of a durable task have begun; nothing in them is sure to have the right type."""
    done = steps.readable(entry.steps, entry.earlier_steps).done
    return [began for record in done if (began := instant(record.get("began"))) is not None]


def attempt(item: history.Entry, since: int | None, alive: set[str], site: str) -> dict[str, Any]:
    """Return the step of an attempt; ``since``: the instant from which it was waited for."""
    started, ended = instant(item.get("started")), instant(item.get("ended"))
    return {
        "number": display.cut(item.get("number") or ""),
        "worker": worker_link(str(item.get("worker", "")), alive, site),
        "waited": took(since, started),
        "started": "-" if started is None else display.moment(clock.from_instant(started)),
        "ended": "-" if ended is None else display.moment(clock.from_instant(ended)),
        "duration": took(started, ended),
        "outcome": outcome(item),
        "exception_class": display.cut(item.get("exception_class", "")),
        "message": display.cut(item.get("message", "")),
        "traceback": folded(str(trace)) if (trace := item.get("traceback")) else "",
    }


def outcome(item: history.Entry) -> str:
    """Return how an attempt ended, in the language of the reader."""
    stored = display.cut(item.get("outcome", ""))
    return str(OUTCOMES.get(stored, stored))


def last_attempt(entry: JobOrLetter) -> Iterator[history.Entry]:
    """Yield the attempt that the history does not have: the one that goes on (each copy of it), or that succeeded."""
    if not isinstance(entry, Job) or entry.queued:
        return
    succeeded, now = entry.state == states.SUCCESSFUL, display.now_of(entry)
    current = history.Entry(
        number=history.number(entry.history),
        worker=entry.worker_id,
        started=None if entry.started_at is None else clock.to_instant(entry.started_at),
        outcome=_("succeeded") if succeeded else str(LABELS[state_word(entry, now)]),
    )
    if entry.finished_at is not None:
        current["ended"] = clock.to_instant(entry.finished_at)
    running = [] if succeeded else copies.running(entry.copies, now)
    if entry.reserved and (left := wait(entry, now)) is not None:  # its term has ended, and no other has begun
        current["outcome"] = history.LEASE_EXPIRED if left else history.WORKER_DIED
        if (until := clock.to_instant(entry.visible_at)) <= now:
            current["ended"] = until
    for copy in running:
        outcome = str(LABELS["running"])
        yield history.Entry(**{**current, "worker": copy.worker, "started": copy.since, "outcome": outcome})
    if not running:
        yield current


def what_is_next(job: Job) -> Iterator[dict[str, Any]]:
    """Yield what is known of the future of a job."""
    if job.cancelled_at is not None:
        yield mark(_("asked to stop"), job.cancelled_at, job.cancelled_by)
    now = display.now_of(job)
    if job.queued:
        yield {"mark": LABELS[state_word(job, now)], "by": "", "moment": display.timing(job, now)}


def mark(word: str, moment: datetime, by: object = "") -> dict[str, Any]:
    return {"mark": word, "by": display.cut(by or ""), "moment": display.moment(moment)}


def took(begin: int | None, end: int | None) -> str:
    return "-" if begin is None or end is None else duration(max(end - begin, 0))


def instant(value: object) -> int | None:
    return value if isinstance(value, int) else None


def present(workers: Any) -> set[str]:
    """Return which of these workers have a page."""
    names = {storable(str(name)) for name in workers if name}
    database = database_for()
    return set(WorkerProcess.objects.using(database).filter(pk__in=names).values_list("pk", flat=True))


def worker_link(worker_id: str, alive: set[str], site: str) -> SafeString | str:
    """Return a worker's name, with a link to its page if it has one."""
    name = display.cut(shown_worker(worker_id))
    if worker_id not in alive:
        return name
    return link(site, "workerprocess_change", name, quote(worker_id))
