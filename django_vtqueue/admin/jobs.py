"""The pages of jobs: those that wait, run, or are done."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.actions import delete_selected as ask_first
from django.contrib.admin.models import CHANGE, DELETION
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from .. import clock, control
from ..engines import backend_options
from ..ids import shown_worker
from ..models import Job
from . import display
from .entries import DETAILS, EntryAdmin
from .filters import LABELS, JobTaskFilter, PeriodFilter, QueueFilter, StateFilter, WorkerFilter
from .lists import JobList


@admin.register(Job)
class JobAdmin(EntryAdmin):
    """Jobs that wait, run, or are done."""

    list_display = ("task", "word", "timing", "place", "used", "enqueued")
    list_filter = (StateFilter, QueueFilter, JobTaskFilter, PeriodFilter, WorkerFilter)
    actions = ("run_now", "delete_selected")
    fieldsets = (
        (None, {"fields": ("task", ("word", "timing"), "situation", "arguments", "returned")}),
        (_("Attempts"), {"fields": (("used", "worker"), "timeline")}),
        (_("Details"), {"fields": DETAILS}),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        return JobList

    @admin.display(description=_("state"))
    def word(self, job: Job) -> SafeString:
        word = display.word_of(job, clock.now())
        return format_html('<span class="vtq-word vtq-{}">{}</span>', word, LABELS[word])

    @admin.display(description=_("when"))
    def timing(self, job: Job) -> SafeString | str:
        return display.timing(job, clock.now())

    @admin.display(description=_("queue"))
    def place(self, job: Job) -> str:
        return f"{job.queue_name} ({job.priority:+d})" if job.priority else job.queue_name

    @admin.display(description=_("worker"))
    def worker(self, job: Job) -> str:
        return shown_worker(job.worker_id) or "-"

    @admin.display(description=_("result"))
    def returned(self, job: Job) -> SafeString | str:
        if job.result is None:
            return "-"
        return display.stored_json(job.result, backend_options(job._state.db).mask)

    def has_run_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("vtqueue.run_job")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        held = isinstance(obj, Job) and display.word_of(obj, clock.now()) == "running"
        return not held and super().has_delete_permission(request, obj)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        if not control.delete([obj.pk], obj._state.db):
            raise PermissionDenied(gettext("A worker has taken this job meanwhile."))

    @admin.action(permissions=["run"], description=_("Run selected %(verbose_name_plural)s now"))
    def run_now(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self.carry_out(
            request,
            queryset,
            control.run_now,
            CHANGE,
            note=gettext("Run now."),
            done=ngettext_lazy("%d job is due now.", "%d jobs are due now."),
            skipped=ngettext_lazy(
                "%d job was skipped: only one that is scheduled or retrying can be run now.",
                "%d jobs were skipped: only those that are scheduled or retrying can be run now.",
            ),
        )

    @admin.action(permissions=["delete"], description=_("Delete selected %(verbose_name_plural)s"))
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        if "post" not in request.POST:
            return ask_first(self, request, queryset)
        self.carry_out(
            request,
            queryset,
            control.delete,
            DELETION,
            done=ngettext_lazy("%d job was deleted.", "%d jobs were deleted."),
            skipped=ngettext_lazy("%d job was skipped: a worker holds it.", "%d jobs were skipped: workers hold them."),
        )
        return None
