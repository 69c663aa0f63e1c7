"""The pages of dead letters."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.actions import delete_selected as ask_first
from django.contrib.admin.models import CHANGE, DELETION
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from .. import letters
from ..models import DeadLetter
from . import display
from .entries import DETAILS, EntryAdmin
from .filters import ExceptionFilter, FingerprintFilter, PeriodFilter, QueueFilter, TaskFilter, WorkerFilter
from .lists import LetterList


@admin.register(DeadLetter)
class DeadLetterAdmin(EntryAdmin):
    """Jobs that failed for good, until somebody requeues or discards them."""

    list_display = ("task", "failure", "died", "queue_name", "used")
    list_filter = (QueueFilter, TaskFilter, ExceptionFilter, PeriodFilter, WorkerFilter, FingerprintFilter)
    search_help_text = _(
        "Part of a task's name, of the arguments or of the error, or an id; its last digits, as the log shows them, "
        "will do."
    )
    actions = ("requeue", "delete_selected")
    fieldsets = (
        (None, {"fields": ("task_link", "situation", "failure", "died", "arguments")}),
        (_("Attempts"), {"fields": ("used", "timeline")}),
        (_("Details"), {"fields": (*DETAILS, "fingerprint")}),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LetterList]:
        return LetterList

    @admin.display(description=_("failure"))
    def failure(self, letter: DeadLetter) -> SafeString:
        return format_html(
            '<strong title="{}">{}</strong> {}',
            letter.exception_class,
            letter.exception_class.rpartition(".")[2],
            letter.message,
        )

    @admin.display(description=_("died"))
    def died(self, letter: DeadLetter) -> SafeString | str:
        return display.moment(letter.died_at)

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("vtqueue.requeue_deadletter")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("vtqueue.discard_deadletter")

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        letters.discard([obj.pk], obj._state.db)

    @admin.action(permissions=["requeue"], description=_("Requeue selected %(verbose_name_plural)s"))
    def requeue(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self.carry_out(
            request,
            queryset,
            letters.requeue,
            CHANGE,
            note=gettext("Requeued."),
            done=ngettext_lazy("%d dead letter is a job again.", "%d dead letters are jobs again."),
            skipped=ngettext_lazy(
                "%d dead letter was skipped: a waiting job has its unique key, or its row was damaged.",
                "%d dead letters were skipped: waiting jobs have their unique keys, or their rows were damaged.",
            ),
        )

    @admin.action(permissions=["delete"], description=_("Discard selected %(verbose_name_plural)s"))
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        if "post" not in request.POST:
            return ask_first(self, request, queryset)
        self.carry_out(
            request,
            queryset,
            letters.discard,
            DELETION,
            done=ngettext_lazy("%d dead letter was discarded.", "%d dead letters were discarded."),
        )
        return None
