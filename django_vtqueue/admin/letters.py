"""The pages of dead letters."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from ..core import history
from ..core.humanize import local, whole
from ..core.text import shorten
from ..engines import database_now
from ..models import DeadLetter
from ..queue import dead_letters
from ..queue.discarding import discard_letters
from . import display, letter_bulk, letter_forms, letter_groups, letter_selection, tracebacks
from .actions import carry_out, confirm_discard
from .base import Views
from .changelists import LetterList
from .filters import ExceptionFilter, Filter, QueueFilter, TaskFilter, WorkerFilter
from .job_base import GRID, EntryAdmin

NOTE = 80  # characters of a note in the list


class ChoiceFilter(Filter):
    """A filter whose values ``selection`` knows, so that the same letters can be requeued, discarded or exported."""

    def criteria(self, now: int) -> dict[str, Any]:
        criteria = letter_selection.criteria_of({str(self.parameter_name): self.value() or ""}, now)
        given = criteria.given() if criteria else {}
        return {"since" if name == "died_from" else name: value for name, value in given.items() if value != ""}


class DiedFilter(ChoiceFilter):
    title = _("time of death")
    parameter_name = "died"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [(value, text) for value, (_seconds, text) in letter_selection.TIMES.items()]


class ReviewedFilter(ChoiceFilter):
    title = _("reviewed")
    parameter_name = "reviewed"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [("no", _("No")), ("yes", _("Yes"))]


class GroupFilter(ChoiceFilter):
    """The letters of one failure; chosen on the page of groups, and taken back here."""

    title = _("group")
    parameter_name = "fingerprint"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [(value, value) for value in request.GET.getlist("fingerprint")[:1]]


@admin.register(DeadLetter)
class DeadLetterAdmin(EntryAdmin):
    """Jobs that failed for good, until they are requeued or discarded."""

    changelist = LetterList
    list_display = ("task", "failure", "died", "queue_name", "seen")
    list_filter = (
        QueueFilter,
        TaskFilter,
        ExceptionFilter,
        DiedFilter,
        ReviewedFilter,
        WorkerFilter,
        GroupFilter,
    )
    search_help_text = _(
        "Part of a task's name, of the arguments or of the error, or an id; its last digits, as the log shows them, "
        "will do."
    )
    actions = ("requeue", "skip_step", "repeat_steps", "review_selected", "export_selected", "delete_selected")
    fieldsets = (
        (None, {"fields": ("failure", "traceback", "arguments")}),
        (None, {"fields": (("task_link", "died", "used", "reviewed"), *GRID)}),
        (_("Attempts"), {"fields": ("parent", "tree", "steps_made", "timeline")}),
        (
            _("Details"),
            {"fields": ("situation", ("claims", "visibility_timeout"), "fingerprint"), "classes": ("collapse",)},
        ),
    )

    died = display.moment_of("died_at", _("died"))

    @admin.display(description=_("failure"))
    def failure(self, letter: DeadLetter) -> SafeString:
        return format_html("{} {}", display.exception(letter.exception_class), display.cut(letter.message))

    @admin.display(description=_("traceback"))
    def traceback(self, letter: DeadLetter) -> SafeString | str:
        return tracebacks.last_of(history.read(letter.history))

    @admin.display(description=_("reviewed"))
    def reviewed(self, letter: DeadLetter) -> SafeString | str:
        if letter.reviewed_at is None:
            return "-"
        return format_html(
            '{} {}<div class="vtq-note">{}</div>',
            display.moment(letter.reviewed_at),
            letter.reviewed_by,
            letter.note,
        )

    @admin.display(description=_("reviewed"))
    def seen(self, letter: DeadLetter) -> SafeString | str:
        if letter.reviewed_at is None:
            return "-"
        return format_html(
            '<span title="{}">{}</span> {}',
            whole(local(letter.reviewed_at)),
            letter.reviewed_by,
            shorten(letter.note, NOTE),
        )

    def own_views(self) -> Views:
        return {
            "groups": (letter_groups.page, "view"),
            "requeue": (letter_bulk.requeue, "requeue"),
            "discard": (letter_bulk.discard, "delete"),
            "export": (letter_bulk.export, "view"),
            "<uuid:pk>/edit": (letter_forms.edit, "requeue"),
            "<uuid:pk>/review": (letter_forms.review, "review"),
        }

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        criteria = letter_selection.criteria_of(request.GET.dict(), database_now())
        own = {
            "selected": None if criteria is None else letter_selection.query_of(criteria),
            "may_requeue": self.has_requeue_permission(request),
            "may_discard": self.has_delete_permission(request),
        }
        return super().changelist_view(request, {**own, **(extra_context or {})})

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("vtqueue.discard_deadletter") and self.has_view_permission(request)

    @admin.action(permissions=["requeue"], description=_("Requeue selected %(verbose_name_plural)s"))
    def requeue(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        letter_bulk.requeue_at_once(self, request, queryset)

    @admin.action(permissions=["review"], description=_("Mark selected %(verbose_name_plural)s as reviewed"))
    def review_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        def mark(letters: list[DeadLetter]) -> list[UUID]:
            new = [letter for letter in letters if letter.reviewed_at is None]
            return dead_letters.mark_reviewed(new, by=request.user.get_username(), note="")

        carry_out(
            self,
            request,
            queryset,
            mark,
            note=gettext("Reviewed."),
            done=ngettext_lazy("%d dead letter is marked as reviewed.", "%d dead letters are marked as reviewed."),
        )

    @admin.action(permissions=["view"], description=_("Export selected %(verbose_name_plural)s as JSON lines"))
    def export_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> StreamingHttpResponse:
        return letter_bulk.as_file([list(queryset.defer(None))])

    @admin.action(permissions=["delete"], description=_("Discard selected %(verbose_name_plural)s"))
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        if "post" not in request.POST:
            return confirm_discard(self, request, queryset, letter_bulk.question(len(queryset)))
        carry_out(
            self,
            request,
            queryset,
            discard_letters,
            done=ngettext_lazy("%d dead letter was discarded.", "%d dead letters were discarded."),
        )
        return None
