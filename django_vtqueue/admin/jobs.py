"""The pages of jobs: those that wait, run, or are done."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from .. import control
from ..core import clock, copies, states
from ..core.humanize import duration
from ..core.ids import shown_worker
from ..core.names import LEASE
from ..inspection.state import is_overdue, state_word
from ..inspection.why import wait
from ..models import Job
from ..queue.discarding import discard_jobs
from . import display
from .actions import PriorityForm, QueueForm, carry_out, change_by_form, confirm_discard, left_out
from .base import Views, permitted
from .changelists import JobList
from .enqueueing import enqueue
from .filters import LABELS, JobTaskFilter, PeriodFilter, QueueFilter, StateFilter, WorkerFilter
from .job_base import GRID, EntryAdmin
from .timelines import present, worker_link

# What the page of a lease or of a time slot has.
RESERVED_FIELDSETS = (
    (None, {"fields": (("holder", "token", "lease"), "situation")}),
    (_("Terms"), {"fields": ("timeline",)}),
)


@admin.register(Job)
class JobAdmin(EntryAdmin):
    """Jobs that wait, run, or are done."""

    changelist = JobList
    list_display = ("task", "word", "timing", "place", "used", "enqueued")
    list_filter = (StateFilter, QueueFilter, JobTaskFilter, PeriodFilter, WorkerFilter)
    actions = ("run_now", "change_priority", "move", "skip_step", "repeat_steps", "cancel", "delete_selected")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    "task_link",
                    ("word", "when"),
                    "situation",
                    "asked_to_stop",
                    "running_copies",
                    "progress_bar",
                    "arguments",
                    "returned",
                    *GRID,
                )
            },
        ),
        (_("Attempts"), {"fields": (("used", "worker"), "parent", "tree", "steps_made", "timeline")}),
        (_("Details"), {"fields": ("lease", ("claims", "visibility_timeout")), "classes": ("collapse",)}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Job | None = None) -> Any:
        """Have what is said of the lease of a job that runs among the details.

        The row of a lease or a time slot is no job to its readers.
        """
        if obj and obj.reserved:
            return RESERVED_FIELDSETS
        (name, options), attempts, (last, details) = super().get_fieldsets(request, obj)
        if obj and state_word(obj, display.now_of(obj)) == "running":
            options = {**options, "fields": tuple(field for field in options["fields"] if field != "situation")}
            details = {**details, "fields": ("situation", *details["fields"])}
        return [(name, options), attempts, (last, details)]

    def if_set(self, entry: Any) -> dict[str, object]:
        own = {"asked_to_stop": entry.cancelled_at, "progress_bar": entry.progress is not None}
        return super().if_set(entry) | own | {"running_copies": entry.state == states.RUNNING and entry.copies}

    def own_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        if not row.reserved:
            return {}
        return {"title": gettext("Lease") if row.queue_name.startswith(LEASE) else gettext("Time slot")}

    def own_views(self) -> Views:
        return {"enqueue": (enqueue, "enqueue")}

    @admin.display(description=_("state"))
    def word(self, job: Job) -> SafeString:
        word = state_word(job, display.now_of(job))
        return display.badge(word, LABELS[word])

    @admin.display(description=_("when"))
    def when(self, job: Job) -> SafeString | str:
        return display.timing(job, display.now_of(job))

    @admin.display(description=_("when"))
    def timing(self, job: Job) -> SafeString | str:
        """Return the same for a list, and how long it has left to start."""
        now, when = display.now_of(job), self.when(job)
        if job.start_by is None or not job.queued or is_overdue(job, now):
            return when
        return format_html(gettext("{}; expires in {}"), when, duration(clock.to_instant(job.start_by) - now))

    def as_of_now(self, entry: Any) -> object:
        return self.word(entry), self.timing(entry)

    @admin.display(description=_("holder"))
    def holder(self, job: Job) -> str:
        return gettext("free") if wait(job, display.now_of(job)) is not None else shown_worker(job.worker_id)

    @admin.display(description=_("token"))
    def token(self, job: Job) -> str:
        return display.number(job.claims)

    @admin.display(description=_("lease"))
    def lease(self, job: Job) -> SafeString | str:
        now = display.now_of(job)
        held = wait(job, now) is None if job.reserved else job.state == states.RUNNING and not job.queued
        return display.lease(job, now) if held else "-"

    @admin.display(description=_("queue"))
    def place(self, job: Job) -> str:
        place = f"{job.queue_name} ({job.priority:+d})" if job.priority else job.queue_name
        return f"{place} · {display.cut(job.unique_key)[: display.ARGUMENT]}" if job.unique_key else place

    @admin.display(description=_("worker"))
    def worker(self, job: Job) -> SafeString | str:
        return worker_link(job.worker_id, present([job.worker_id]), self.admin_site.name) or "-"

    @admin.display(description=_("asked to stop"))
    def asked_to_stop(self, job: Job) -> SafeString | str:
        return format_html("{} {}", display.moment(job.cancelled_at), job.cancelled_by or "")

    @admin.display(description=_("copies"))
    def running_copies(self, job: Job) -> SafeString:
        running, now = copies.read(job.copies).values(), display.now_of(job)
        alive = present([copy.worker for copy in running])
        each = [(worker_link(copy.worker, alive, self.admin_site.name), duration(now - copy.since)) for copy in running]
        return format_html_join(", ", "{} ({})", each)

    @admin.display(description=_("progress"))
    def progress_bar(self, job: Job) -> SafeString:
        percent = display.percent(job.progress or 0)
        text = f"{percent}% {display.cut(job.progress_text or '')}"
        return display.progress(percent, 100, gettext("Progress"), text)

    @admin.display(description=_("result"))
    def returned(self, job: Job) -> SafeString | str:
        return "-" if job.finished_at is None else display.returned(job)

    has_enqueue_permission = permitted("enqueue_job")
    has_run_permission = permitted("run_job")
    has_amend_permission = permitted("change_job")
    has_cancel_permission = permitted("cancel_job")

    def has_steps_permission(self, request: HttpRequest) -> bool:
        return self.has_run_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        kept = isinstance(obj, Job) and (state_word(obj, display.now_of(obj)) == "running" or obj.reserved)
        return not kept and request.user.has_perm("vtqueue.delete_job")

    @admin.action(permissions=["run"], description=_("Run selected %(verbose_name_plural)s now"))
    def run_now(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        carry_out(
            self,
            request,
            queryset,
            control.run_now,
            note=gettext("Run now."),
            done=ngettext_lazy("%d job is due now.", "%d jobs are due now."),
            skipped=ngettext_lazy(
                "%d job was skipped: only one that is scheduled or retrying can be run now.",
                "%d jobs were skipped: only those that are scheduled or retrying can be run now.",
            ),
        )

    @admin.action(permissions=["amend"], description=_("Change the priority of selected %(verbose_name_plural)s"))
    def change_priority(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        note = gettext("Priority set to %(priority)d.")
        done = ngettext_lazy("%d job has this priority now.", "%d jobs have this priority now.")
        return change_by_form(self, request, queryset, PriorityForm, control.change_priority, note=note, done=done)

    @admin.action(permissions=["amend"], description=_("Move selected %(verbose_name_plural)s to another queue"))
    def move(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        note = gettext("Moved to queue “%(queue_name)s”.")
        done = ngettext_lazy("%d job was moved.", "%d jobs were moved.")
        return change_by_form(self, request, queryset, QueueForm, control.move, note=note, done=done)

    @admin.action(permissions=["cancel"], description=_("Cancel selected %(verbose_name_plural)s"))
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        carry_out(
            self,
            request,
            queryset,
            partial(control.cancel, by=request.user.get_username()),
            note=gettext("Cancelled."),
            done=ngettext_lazy(
                "%d job was cancelled: if it waited it is a dead letter now, if it runs it is asked to stop.",
                "%d jobs were cancelled: those that waited are dead letters now, those that run are asked to stop.",
            ),
            skipped=ngettext_lazy(
                "%d job was skipped: it is done, or was asked to stop before.",
                "%d jobs were skipped: they are done, or were asked to stop before.",
            ),
        )

    @admin.action(permissions=["delete"], description=_("Discard selected %(verbose_name_plural)s"))
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        if "post" not in request.POST:
            count = len(queryset)
            text = ngettext("%s job will be discarded for good.", "%s jobs will be discarded for good.", count)
            return confirm_discard(self, request, queryset, text % display.number(count))
        carry_out(
            self,
            request,
            queryset,
            discard_jobs,
            done=ngettext_lazy("%d job was discarded.", "%d jobs were discarded."),
            reasons=left_out,
        )
        return None
