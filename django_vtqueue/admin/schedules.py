"""The pages of schedules: what runs when, how the last runs went, and pausing, resuming, running and making one."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import get_current_timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from ..core import clock
from ..core.humanize import duration
from ..core.ids import dashed
from ..core.ticks import Ticks, zone
from ..engines import engine_for
from ..exceptions import UnknownTask, VTQueueError
from ..models import Schedule
from ..recurrence import control, runs
from ..tasks.compat import InvalidTask
from . import charts, display, plots, schedule_form
from .base import LeanChangeList, ReadOnlyAdmin, Views, permitted
from .filters import LABELS
from .links import link

# The words for the state of a schedule, each with the state of jobs whose colour it has.
STATES = {
    control.ACTIVE: (gettext_lazy("active"), "running"),
    control.PAUSED: (gettext_lazy("paused"), "retrying"),
    control.VANISHED: (gettext_lazy("declared by no running code"), "expired"),
    control.OVER: (gettext_lazy("never comes again"), "expired"),
}
RUNS = {**LABELS, runs.GONE: gettext_lazy("not kept any more")}
MISSED = dict(schedule_form.MISSED)
UPCOMING = 5


class ScheduleList(LeanChangeList):
    """Reads the states and the last runs of all rows of the page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        for row, each in zip(rows, control.listed(self.queryset.db, rows), strict=True):
            row.listed = each
        self.result_list = rows


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules of code and of the admin."""

    list_display = ("name", "task", "when", "word", "following", "last", "outcome")
    ordering = ("name",)
    search_fields = ("name", "task_path")
    show_full_result_count = True  # they are few
    actions = None
    changelist = ScheduleList
    fieldsets = (
        (None, {"fields": (("word", "paused"), "when", "upcoming", "last_runs")}),
        (gettext_lazy("Job"), {"fields": ("task", "arguments", ("queue_name", "priority"))}),
        (gettext_lazy("Details"), {"fields": (("missing", "overlap", "jitter"), "origin")}),
    )

    class Media:
        css = {"all": ["django_vtqueue/overview.css"]}

    last = display.moment_of("last_at", gettext_lazy("last"))

    @admin.display(description=gettext_lazy("task"))
    def task(self, row: Schedule) -> SafeString | str:
        return display.task_name(row.task_path)

    @admin.display(description=gettext_lazy("when"))
    def when(self, row: Schedule) -> SafeString:
        words = f"{of(row).words}, {row.time_zone}" if row.time_zone else of(row).words
        return format_html(
            '<code title="{}">{}</code><br><span class="vtq-quiet">{}</span>', words, row.expression, words
        )

    @admin.display(description=gettext_lazy("state"))
    def word(self, row: Schedule) -> SafeString:
        text, colour = STATES[of(row).state]
        if of(row).state == control.VANISHED and not row.declared:
            text = gettext_lazy("its task does not exist")
        return display.badge(colour, text)

    @admin.display(description=gettext_lazy("next"))
    def following(self, row: Schedule) -> SafeString | str:
        return display.moment(row.next_at) if of(row).state == control.ACTIVE else "-"

    @admin.display(description=gettext_lazy("last run"))
    def outcome(self, row: Schedule) -> SafeString | str:
        found = of(row).runs[:1]
        return format_html("{} {}", badge(found[0]), ran(found[0])) if found else "-"

    @admin.display(description=gettext_lazy("paused"))
    def paused(self, row: Schedule) -> SafeString | str:
        return format_html("{} {}", display.moment(row.paused_at), row.paused_by) if row.paused_at else "-"

    @admin.display(description=gettext_lazy("next ticks"))
    def upcoming(self, row: Schedule) -> SafeString | str:
        return ticks(row.expression, row.time_zone) if of(row).state == control.ACTIVE else "-"

    @admin.display(description=gettext_lazy("arguments"))
    def arguments(self, row: Any) -> SafeString:
        return display.arguments(row)

    @admin.display(description=gettext_lazy("missed ticks"))
    def missing(self, row: Schedule) -> str:
        return str(MISSED.get(row.missed, row.missed))

    @admin.display(description=gettext_lazy("jitter"))
    def jitter(self, row: Schedule) -> str:
        return duration(row.jitter_us) if row.jitter_us else "-"

    @admin.display(description=gettext_lazy("made"))
    def origin(self, row: Schedule) -> str:
        return _("in code, by @recurring") if row.declared else _("in the admin")

    @admin.display(description=gettext_lazy("last runs"))
    def last_runs(self, row: Schedule) -> SafeString | str:
        found = of(row).runs
        shown = [
            {
                "at": display.moment(clock.from_instant(run["at"])),
                "job": link(self.admin_site.name, "job_change", f"…{run['id'][-8:]}", dashed(run["id"])),
                "badge": badge(run),
                "ran": ran(run),
            }
            for run in found
        ]
        return render_to_string("vtqueue/runs.html", {"runs": shown, "figure": figure(found) if found else None})

    # What people may do

    has_run_permission = permitted("run_schedule")
    has_edit_permission = permitted("change_schedule")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return permitted("add_schedule")(self, request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A user who may run and pause schedules may see them."""
        return self.has_run_permission(request) or super().has_view_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What running code declares would be back within a minute."""
        allowed = permitted("delete_schedule")(self, request)
        return allowed and (obj is None or not obj.declared or of(obj).state == control.VANISHED)

    def own_views(self) -> Views:
        return {
            "pause": (ScheduleAdmin.pause, "run"),
            "resume": (ScheduleAdmin.resume, "run"),
            "run": (ScheduleAdmin.run, "run"),
            "edit": (ScheduleAdmin.edit, "edit"),
        }

    def own_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {
            "may_run": self.has_run_permission(request),
            "may_edit": self.has_edit_permission(request) and not row.declared,
        }

    def named(self, request: HttpRequest) -> Schedule:
        """Return the schedule that a form or an address names; raise Http404 if it is not there."""
        name = request.POST.get("name") if request.method == "POST" else request.GET.get("name")
        row: Schedule = get_object_or_404(self.get_queryset(request), pk=name)
        return row

    @method_decorator(require_POST)
    def pause(self, request: HttpRequest) -> HttpResponse:
        """Have a schedule publish nothing for now."""
        row = self.named(request)
        with engine_for(str(row._state.db)).atomic():
            if control.pause(row.name, request.user.get_username(), str(row._state.db)):
                self.log_change(request, row, _("Paused."))
        return self.back(request, row, _("The schedule “%s” is paused.") % row.name)

    @method_decorator(require_POST)
    def resume(self, request: HttpRequest) -> HttpResponse:
        """Have a schedule go on."""
        row = self.named(request)
        try:
            with engine_for(str(row._state.db)).atomic():
                if control.resume(row.name, str(row._state.db)):
                    self.log_change(request, row, _("Resumed."))
        except ValueError as error:
            return self.back(request, row, str(error), messages.ERROR)
        return self.back(request, row, _("The schedule “%s” goes on.") % row.name)

    @method_decorator(require_POST)
    def run(self, request: HttpRequest) -> HttpResponse:
        """Publish a job of a schedule at once."""
        row = self.named(request)
        try:
            with engine_for(str(row._state.db)).atomic():
                result = control.run_now(row, str(row._state.db), schedule_form.task_modules())
                if getattr(result, "duplicate", False):
                    text = _("No job was added: one of this schedule is not finished.")
                    return self.back(request, row, text, messages.WARNING)
                self.log_change(request, row, _("Run now: job %s.") % result.id)
        except (UnknownTask, InvalidTask, VTQueueError, TypeError, ValueError) as error:
            return self.back(request, row, str(error), messages.ERROR)
        return self.back(request, row, _("The job was enqueued."))

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Ask, then delete a schedule; its jobs stay."""
        row = get_object_or_404(self.get_queryset(request), pk=admin.utils.unquote(object_id))
        if not self.has_delete_permission(request, row):
            raise PermissionDenied
        if request.method != "POST":
            text = _("Delete the schedule “%s”? Its jobs stay.") % row.name
            return self.form_page(
                request, None, title=_("Delete a schedule"), text=text, button=_("Delete"), danger=True
            )
        with engine_for(str(row._state.db)).atomic():
            self.log_deletions(request, self.get_queryset(request).filter(pk=row.pk))
            row.delete(using=row._state.db)
        self.message_user(request, _("The schedule “%s” was deleted.") % row.name)
        return self.go_to("schedule_changelist")

    def back(self, request: HttpRequest, row: Schedule, text: str, level: int = messages.SUCCESS) -> HttpResponse:
        self.message_user(request, text, level)
        return self.go_to("schedule_change", admin.utils.quote(row.pk))

    # Making one

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Show the form; make a schedule of what was sent, once its next ticks were seen."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return self.save_page(request, None)

    def edit(self, request: HttpRequest) -> HttpResponse:
        """Show the form with a schedule that was made in the admin; change it."""
        name = request.GET.get("name")
        return self.save_page(request, get_object_or_404(self.get_queryset(request), pk=name, declared=False))

    def save_page(self, request: HttpRequest, row: Schedule | None) -> HttpResponse:
        form = schedule_form.ScheduleForm(request.POST or None, row=row)
        title = _("Add a schedule") if row is None else _("Change a schedule")
        if not form.is_valid():
            return self.form_page(request, form, title=title, button=_("Show the next ticks"))
        if not form.seen():
            text = format_html("{} {}", _("Its next ticks:"), ticks(*form.times()))
            return self.form_page(request, form.again(), title=title, text=text, button=_("Save"))
        with engine_for(form.database).atomic():
            made = form.save()
            if row is None:
                self.log_addition(request, made, "")
            else:
                self.log_change(request, made, _("Changed."))
        return self.back(request, made, _("The schedule “%s” was saved.") % made.name)


def of(row: Any) -> control.Listed:
    """Return what is listed of a row, read once."""
    if not hasattr(row, "listed"):
        [row.listed] = control.listed(row._state.db, [row])
    return row.listed  # type: ignore[no-any-return]


def badge(run: runs.Run) -> SafeString:
    return display.badge(run["state"], RUNS[run["state"]])


def ran(run: runs.Run) -> str:
    return duration(run["ran"]) if "ran" in run else "-"


def ticks(expression: str, time_zone: str) -> SafeString | str:
    """Return the next ticks of an expression, in its own time zone; those of a period, as other moments are shown."""
    try:
        here = zone(time_zone) if time_zone else get_current_timezone()
        found = Ticks(expression, time_zone).upcoming(clock.now(), UPCOMING)
    except ValueError as error:
        return str(error)
    texts = ((f"{(clock.EPOCH + clock.MICROSECOND * tick).astimezone(here):%Y-%m-%d %H:%M:%S %Z}",) for tick in found)
    return (
        format_html('<ul class="vtq-ticks">{}</ul>', format_html_join("", "<li>{}</li>", texts))
        if found
        else _("never")
    )


def figure(found: Sequence[runs.Run]) -> charts.Figure:
    """Return the plot of the lengths and outcomes of runs; the oldest is on the left."""
    rows = list(reversed(found))

    def lengths(state: str) -> list[int | None]:
        return [max(run.get("ran", 1), 1) if run["state"] == state else None for run in rows]

    series = [charts.Series("done", _("succeeded"), lengths("done")), charts.Series("dead", _("died"), lengths("dead"))]
    names = [charts.at(run["at"], "day") for run in rows]
    longest = max((run.get("ran", 1) for run in rows), default=1)
    counts = [f"{display.number(sum(value is not None for value in each.values))} {each.name}" for each in series]
    sentence = _("Last runs: %(counts)s; the longest took %(longest)s.") % {
        "counts": ", ".join(counts),
        "longest": duration(longest),
    }
    axis = charts.Axis(names, [names[0], names[-1]] if len(names) > 1 else names)
    top = plots.nice(longest, charts.STEPS)
    return charts.drawn(
        plots.stacked,
        _("Last runs"),
        _("how long each took"),
        series,
        axis,
        top,
        lambda value: duration(round(value)),
        sentence,
    )
