"""The workers that announced themselves: what each does, and asking one to be quiet or to stop."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import BadRequest
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from .. import control
from ..core import clock, copies
from ..core.humanize import duration
from ..core.ids import shown_worker
from ..engines import engine_for
from ..inspection.overview import Held, begun, held
from ..models import Job, WorkerProcess
from ..queue.workers import SILENCE, serves
from . import display
from .base import ReadOnlyAdmin, Views, permitted
from .links import address, link

DETAILS = ("host", "pid", "copied_id", "served", "slots", "occupied", "started", "heartbeat", "doorbell")
LISTED = 100  # running jobs on the page of a worker
MOST_LEFT = 100  # jobs on the page of a dead worker
LOOKED_AT = 10_000  # held jobs
SAMPLE = 5  # jobs of a dead worker that are shown in a sentence

# The words for what a worker does, each with the state of jobs whose colour it has.
WORDS = {
    "alive": (_("alive"), "running"),
    "quiet": (_("quiet"), "retrying"),
    "stopping": (_("stopping"), "retrying"),
    "gone": (_("gone"), "expired"),
    "died": (_("died"), "expired"),
}
WHEN_ASKED = {"quiet": "quiet", "stop": "stopping"}

# What a worker can be asked to do: the message for the user, and the line in the admin's log.
ASKED = {
    "": (_("The worker %s is asked to work again."), _("Asked to work again.")),
    "quiet": (_("The worker %s is asked to claim nothing more."), _("Asked to claim nothing more.")),
    "stop": (_("The worker %s is asked to stop."), _("Asked to stop.")),
}


@admin.register(WorkerProcess)
class WorkerProcessAdmin(ReadOnlyAdmin):
    """Live workers, and those that died or fell silent within the last hour."""

    list_display = ("worker", "status", "served", "slots", "occupied", "started", "heartbeat")
    ordering = ("-started_at",)
    actions = None
    fieldsets = (
        (None, {"fields": ("status", "doing")}),
        (_("Details"), {"fields": DETAILS}),
    )

    class Media:
        css = {"all": ["django_vtqueue/overview.css"]}

    started = display.moment_of("started_at", _("started"))

    @admin.display(description=_("worker"))
    def worker(self, worker: WorkerProcess) -> str:
        return f"{worker.host}:{worker.pid}"

    @admin.display(description=_("id"))
    def copied_id(self, worker: WorkerProcess) -> SafeString:
        return display.copyable(format_html("<code>{}</code>", worker.pk))

    @admin.display(description=_("state"))
    def status(self, worker: WorkerProcess) -> SafeString:
        return badge(word_of(worker, display.now_of(worker)))

    @admin.display(description=_("queues"))
    def served(self, worker: WorkerProcess) -> str:
        return worker.queues.replace(",", ", ") or gettext("(all)")

    @admin.display(description=_("memory"))
    def occupied(self, worker: WorkerProcess) -> str:
        return memory(worker)

    @admin.display(description=_("last heartbeat"))
    def heartbeat(self, worker: WorkerProcess) -> SafeString | str:
        return heartbeat(worker, display.now_of(worker))

    @admin.display(description=_("runs"))
    def doing(self, worker: WorkerProcess) -> SafeString | str:
        if worker.died_at:
            return ending(worker, self.admin_site.name, MOST_LEFT)
        engine = engine_for(str(worker._state.db))
        with engine.snapshot() as now:
            jobs = begun(engine.alias, [worker.pk], LISTED, LOOKED_AT, now)
            [row] = busy([worker], held(engine.alias, LOOKED_AT, now), jobs, now, self.admin_site.name)
        return render_to_string("vtqueue/running.html", {"row": row})

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """A user who may not see jobs sees the worker without them."""
        if request.user.has_perm("vtqueue.view_job"):
            return self.fieldsets
        return ((None, {"fields": ("status", *DETAILS)}),)

    has_stop_permission = permitted("stop_worker")

    def own_views(self) -> Views:
        return {"ask": (WorkerProcessAdmin.ask, "stop")}

    @method_decorator(require_POST)
    def ask(self, request: HttpRequest) -> HttpResponse:
        """Ask a worker to be quiet, to work again, or to stop; it obeys with one of its next heartbeats."""
        worker_id, to = request.POST.get("worker_id", ""), request.POST.get("to")
        if to not in ASKED:
            raise BadRequest(f"A worker can be asked to {', '.join(map(repr, ASKED))}, not {to!r}.")
        said, note = ASKED[to]
        queryset = self.get_queryset(request)
        with engine_for(str(queryset.db)).atomic():
            asked = control.ASKED_TO[to]([worker_id], using=queryset.db)
            if asked:
                self.log_change(request, WorkerProcess(pk=worker_id), str(note))
        if asked:
            self.message_user(request, said % shown_worker(worker_id), messages.SUCCESS)
        else:
            text = gettext("The worker %s is not here any more.") % shown_worker(worker_id)
            self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self.next(request))

    def next(self, request: HttpRequest) -> str:
        """Return the page of the admin that the button was on."""
        page = request.POST.get("next", "")
        if url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure()):
            return page
        return self.overview(request)

    def own_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The page has the buttons, if the worker is there and the user may press them."""
        word = word_of(row, display.now_of(row))
        offered = word not in ("gone", "died") and self.has_stop_permission(request)
        return {"word": word, "ask_url": address(self.admin_site.name, "workerprocess_ask") if offered else None}


# -- a worker and what it runs, as the overview and its page show them -------------------------------------------------


@dataclass
class Busy:
    """A worker as the pages show it. ``used``: slots; ``jobs``: some of what it runs, for the template."""

    worker: WorkerProcess
    word: str
    heartbeat: SafeString | str
    memory: str
    url: str | None
    used: int = 0
    jobs: list[dict[str, Any]] = field(default_factory=list)
    ending: SafeString | str = ""

    @property
    def name(self) -> str:
        return f"{self.worker.host}:{self.worker.pid}"

    @property
    def queues(self) -> list[str]:
        return [name for name in self.worker.queues.split(",") if name]

    def serves(self, queue_name: str) -> bool:
        """Return whether it would take jobs of a queue, were it not quiet or gone."""
        return serves(self.worker, queue_name)

    @property
    def badge(self) -> SafeString:
        return badge(self.word)

    @property
    def over(self) -> bool:
        """Whether it has ended, or is taken for ended."""
        return self.word in ("gone", "died")

    @property
    def more(self) -> int:
        """How many of its jobs are not listed."""
        return max(self.used - len(self.jobs), 0)


def word_of(worker: WorkerProcess, now: int) -> str:
    """Return the word for what a worker does: alive, quiet, stopping, gone, died."""
    if worker.died_at is not None:
        return "died"
    silent = abs(now - clock.to_instant(worker.heartbeat_at))  # ahead: by a clock that was wrong
    return WHEN_ASKED.get(worker.asked_to, "alive") if silent < clock.microseconds(SILENCE) else "gone"


def badge(word: str) -> SafeString:
    """Return the word for what a worker does."""
    text, colour = WORDS[word]
    return display.badge(colour, text)


def heartbeat(worker: WorkerProcess, now: int) -> SafeString | str:
    """Return when the last heartbeat of a worker was."""
    silent = now - clock.to_instant(worker.heartbeat_at)
    return display.moment(worker.heartbeat_at, gettext("%s ago") % duration(max(silent, 0)))


def busy(workers: Iterable[WorkerProcess], held: Held, jobs: Iterable[Job], now: int, site: str) -> list[Busy]:
    """Return workers with what they do; ``site``: the name of the admin site to link to."""
    rows = {
        each.pk: Busy(
            worker=each,
            word=word_of(each, now),
            heartbeat=heartbeat(each, now),
            memory=memory(each),
            url=address(site, "workerprocess_change", quote(each.pk)),
            ending=ending(each, site) if each.died_at else "",
        )
        for each in workers
    }
    for (worker_id, word), number in held.workers.items():
        if word == "begun" and worker_id in rows:
            rows[worker_id].used += number
    for job in jobs:
        rows[job.worker_id].jobs.append(running_job(job, now, site))
    return list(rows.values())


def ending(worker: WorkerProcess, site: str, most: int = SAMPLE) -> SafeString | str:
    """Return when a worker died and what became of its jobs, with links to ``most`` of them."""
    died = display.moment(worker.died_at)
    if not worker.went_on + worker.buried:
        return format_html(gettext("died at {}; it held no job"), died)
    parts = []
    if worker.went_on:
        parts.append(ngettext("%d job went on", "%d jobs went on", worker.went_on) % worker.went_on)
    if worker.buried:
        parts.append(ngettext("%d job died", "%d jobs died", worker.buried) % worker.buried)
    ids = worker.left.split()[:most]
    shown = ((link(site, "job_change", f"…{job_id[-8:]}", job_id),) for job_id in ids)
    links = format_html_join(" ", '<span class="vtq-id">{}</span>', shown)
    more = " …" if worker.went_on + worker.buried > len(ids) else ""
    return format_html(gettext("died at {}; {}: {}"), died, ", ".join(parts), format_html("{}{}", links, more))


def running_job(job: Job, now: int, site: str) -> dict[str, Any]:
    started = clock.from_instant(now) if job.started_at is None else job.started_at
    running = copies.running(job.copies, now)
    return {
        "task": display.task_name(job.task_path),
        "url": address(site, "job_change", job.pk),
        "queue_name": job.queue_name,
        "age": display.moment(started, duration(max(now - clock.to_instant(started), 0))),
        "copies": len(running),
        "expired": clock.to_instant(job.visible_at) <= now and not running,
        "cancelled": job.cancelled_at is not None,
        "percent": None if job.progress is None else display.percent(job.progress),
        "progress_text": display.cut(job.progress_text or ""),
    }


def takes(workers: Sequence[Busy], queue_name: str) -> bool:
    """Return whether one of these workers takes jobs of a queue."""
    return any(row.word == "alive" and row.serves(queue_name) for row in workers)


def memory(worker: WorkerProcess) -> str:
    """Return how much memory a worker occupies."""
    if worker.memory is None:
        return "-"
    return gettext("%s MB") % round(worker.memory / 1_000_000)
