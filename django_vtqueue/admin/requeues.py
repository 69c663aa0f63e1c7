"""The pages of requeues of many: how far they are, and a way to stop or continue them."""

from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST

from .. import requeueing
from ..core import states
from ..engines import engine_for
from ..inspection.why import why
from ..models import DeadLetter, Job, Requeue
from ..queue.dead_letters import MOST_COUNTED, Criteria
from . import display, letter_selection
from .base import ReadOnlyAdmin, Views
from .links import link

WORDS = {
    requeueing.CANARY: ("running", gettext_lazy("one first")),
    requeueing.RUNNING: ("running", gettext_lazy("under way")),
    requeueing.DONE: ("done", gettext_lazy("done")),
    requeueing.STOPPED: ("retrying", gettext_lazy("stopped")),
    requeueing.FAILED: ("expired", gettext_lazy("ended by its first dead letter")),
}


@admin.register(Requeue)
class RequeueAdmin(ReadOnlyAdmin):
    """Requeues of many dead letters, under way and ended."""

    list_display = ("named", "word", "progress", "outcome", "started", "created_by")
    ordering = ("-pk",)
    actions = None
    fieldsets = (
        (None, {"fields": (("word", "outcome"), "progress", "fate", "situation")}),
        (gettext_lazy("Which"), {"fields": ("which", ("to_queue", "to_priority"))}),
        (
            gettext_lazy("Details"),
            {"fields": (("started", "ended"), ("created_by", "pace"), "canary_letter", ("queue_name", "id"))},
        ),
    )

    started = display.moment_of("created_at", gettext_lazy("started"))
    ended = display.moment_of("ended_at", gettext_lazy("ended"))

    @admin.display(description=gettext_lazy("failure"))
    def named(self, run: Requeue) -> SafeString:
        task = _("several tasks") if run.task_path is None else display.task_name(run.task_path)
        path = run.exception_class
        return format_html("{}: {}", task, _("several exceptions") if path is None else display.exception(path))

    @admin.display(description=gettext_lazy("dead letters"))
    def which(self, run: Requeue) -> SafeString | str:
        try:
            words = letter_selection.in_words(Criteria.from_json(run.criteria), plain=True)
        except ValueError:
            return display.cut(run.criteria)
        return format_html_join(", ", "{}: {}", words)

    @admin.display(description=gettext_lazy("state"))
    def word(self, run: Requeue) -> SafeString | str:
        colour, text = WORDS.get(run.state, ("", run.state))
        return display.badge(colour, text)

    @admin.display(description=gettext_lazy("progress"))
    def progress(self, run: Requeue) -> SafeString:
        done = run.requeued + run.skipped
        text = _("%(requeued)s of %(matched)s requeued, %(skipped)s skipped") % {
            "requeued": display.number(run.requeued),
            "matched": display.number(run.matched, more=run.matched >= MOST_COUNTED),
            "skipped": display.number(run.skipped),
        }
        return display.progress(done, max(run.matched, done, 1), text, text)

    @admin.display(description=gettext_lazy("became of them"))
    def fate(self, run: Requeue) -> str:
        """Say what the requeued jobs have become; of many, the last ones."""
        fate = requeueing.fate_of(run)
        words = (
            (succeeded := fate[states.SUCCESSFUL], ngettext("%s succeeded", "%s succeeded", succeeded)),
            (dead := fate[states.FAILED], ngettext("%s died again", "%s died again", dead)),
            (running := fate[states.RUNNING], ngettext("%s runs", "%s run", running)),
            (waiting := sum(fate[state] for state in states.QUEUED), ngettext("%s waits", "%s wait", waiting)),
            (gone := fate[requeueing.GONE], ngettext("%s is not kept any more", "%s are not kept any more", gone)),
        )
        counted = ", ".join(text % display.number(count) for count, text in words if count)
        if not fate.total():
            return "-"
        if run.requeued > fate.total():
            values = {"all": display.number(run.requeued), "last": display.number(fate.total()), "counted": counted}
            return _("%(all)s requeued; of the last %(last)s: %(counted)s") % values
        return _("%(all)s requeued: %(counted)s") % {"all": display.number(run.requeued), "counted": counted}

    @admin.display(description=gettext_lazy("remark"))
    def outcome(self, run: Requeue) -> str:
        if run.state == requeueing.STOPPED:
            return _("Stopped by %(who)s.") % {"who": run.remark or "-"}
        if run.state == requeueing.FAILED:
            if run.remark:
                return _("The first dead letter died again: %(failure)s") % {"failure": run.remark}
            return _("The first dead letter was discarded or purged before it had succeeded.")
        gone = run.matched - run.requeued - run.skipped
        if run.state == requeueing.DONE and gone > 0:
            text = ngettext(
                "%d dead letter had been requeued or discarded by another user.",
                "%d dead letters had been requeued or discarded by another user.",
                gone,
            )
            return text % gone
        return "-"

    @admin.display(description=gettext_lazy("next step"))
    def situation(self, run: Any) -> str:
        if run.ended_at is not None:
            return "-"
        if not run.goes_on:
            return _("The job that goes on with it was discarded, purged, or has died: continue it, or stop it.")
        with engine_for(str(run._state.db)).snapshot() as now:
            step = requeueing.step_of(run)
            return why(step, now) if step else "-"  # it has just been done

    @admin.display(description=gettext_lazy("a minute"))
    def pace(self, run: Requeue) -> str:
        return _("at once") if run.rate is None else str(run.rate)

    @admin.display(description=gettext_lazy("went first"))
    def canary_letter(self, run: Requeue) -> SafeString | str:
        if run.canary is None:
            return "-"
        return link(self.admin_site.name, "job_change", run.canary, run.canary)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Read at one moment each run and whether its next step exists: another one may be the next after that."""
        step = Job.objects.filter(pk=OuterRef("step"), finished_at=None)
        runs: QuerySet[Any] = super().get_queryset(request).annotate(goes_on=Exists(step))
        return runs

    def own_views(self) -> Views:
        return {
            "<uuid:pk>/stop": (RequeueAdmin.stop, "requeue"),
            "<uuid:pk>/resume": (RequeueAdmin.resume, "requeue"),
        }

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A user who may start a requeue may see what becomes of it."""
        return self.has_requeue_permission(request) or super().has_view_permission(request, obj)

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """As for the letters themselves: a user must be allowed to see what is requeued."""
        letters = self.admin_site._registry.get(DeadLetter)
        seen = letters is not None and letters.has_view_permission(request)
        return seen and request.user.has_perm("vtqueue.requeue_deadletter")

    def own_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"lost": row.ended_at is None and not row.goes_on, "changes": self.changes(row)}

    def changes(self, run: Requeue) -> bool:
        """Return whether something on the page of a run can still change."""
        if run.ended_at is None:
            return True
        fate = requeueing.fate_of(run)
        return any(fate[state] for state in (states.RUNNING, *states.QUEUED))

    @method_decorator(require_POST)
    def stop(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """End a run where it is."""
        act = partial(requeueing.stop, by=request.user.get_username())
        return self.change(request, pk, act, _("It is stopped."), _("It has ended already."))

    @method_decorator(require_POST)
    def resume(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Continue a run whose next step is lost."""
        return self.change(request, pk, requeueing.resume, _("It goes on."), _("It goes on already, or has ended."))

    def change(self, request: HttpRequest, pk: UUID, act: Any, done: str, not_done: str) -> HttpResponse:
        if act(pk):
            self.log_change(request, Requeue(pk=pk), done)
            self.message_user(request, done, messages.SUCCESS)
        else:
            self.message_user(request, not_done, messages.WARNING)
        return self.go_to("requeue_change", pk)
