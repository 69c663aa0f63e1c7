"""Jobs and dead letters: two pages that show the same kind of thing, and what may be done on each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected as ask_first
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from .. import clock, control, letters
from ..engines import backend_options
from ..ids import parse_id, shown_worker
from ..models import DeadLetter, Job
from ..shown import duration
from ..why import why
from . import display
from .base import ReadOnlyAdmin
from .filters import LABELS, StateFilter

BATCH = 500  # rows that one transaction of an action changes
BY_QUEUE = ("queue_name", admin.AllValuesFieldListFilter)
BY_TASK = ("task_path", admin.AllValuesFieldListFilter)
DETAILS: tuple[str | tuple[str, ...], ...] = (
    "id",
    "unique_key",
    ("queue_name", "priority"),
    ("enqueued", "kept_until"),
    ("claims", "visibility_timeout"),
)

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise as StrPromise

Entry = Job | DeadLetter
Change = Callable[[list[UUID], str], list[UUID]]  # ids and database alias -> the ids of those that were changed


class EntryAdmin(ReadOnlyAdmin):
    """What the pages of jobs and of dead letters share."""

    search_fields = ["id", "task_path"]
    search_help_text = _("A task, or an id; its last digits, as the log shows them, will do.")

    @admin.display(description=_("task"))
    def task(self, entry: Entry) -> SafeString | str:
        return display.task_name(entry.task_path)

    @admin.display(description=_("situation"))
    def situation(self, entry: Entry) -> str:
        try:
            return why(entry, clock.now())
        except (TypeError, ValueError):  # a damaged row of the job, or of a worker
            return "-"

    @admin.display(description=_("attempts"))
    def used(self, entry: Entry) -> str:
        return f"{entry.attempts} / {entry.max_attempts or '∞'}"

    @admin.display(description=_("enqueued"))
    def enqueued(self, entry: Entry) -> SafeString | str:
        return display.moment(entry.enqueued_at)

    @admin.display(description=_("kept until"))
    def kept_until(self, entry: Entry) -> SafeString | str:
        return display.moment(entry.expires_at)

    @admin.display(description=_("visibility timeout"))
    def visibility_timeout(self, entry: Entry) -> str:
        return duration(entry.lease_us)

    @admin.display(description=_("arguments"))
    def arguments(self, entry: Entry) -> SafeString:
        return display.arguments(entry, backend_options(entry._state.db))

    @admin.display(description=_("history"))
    def timeline(self, entry: Entry) -> SafeString | str:
        return display.attempts(entry)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """A whole id is found by the primary key; the "…" before one from the log is no part of it."""
        term = search_term.strip(" …")
        if job_id := parse_id(term):
            return queryset.filter(pk=job_id), False
        return super().get_search_results(request, queryset, term)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Nothing hangs on a job, so Django need not look for it before it asks."""
        rows = [str(entry) for entry in objs]
        return rows, {self.opts.verbose_name_plural: len(rows)}, set(), []

    def carry_out(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        change: Change,
        flag: int,
        *,
        done: "StrPromise",
        skipped: "StrPromise | None" = None,
        note: str = "",
    ) -> None:
        """Change rows, each batch in one transaction with its lines in the admin's log; say how many were changed."""
        entries, count = list(queryset), 0
        for start in range(0, len(entries), BATCH):
            batch = entries[start : start + BATCH]
            with transaction.atomic(using=queryset.db):
                changed = set(change([entry.pk for entry in batch], queryset.db))
                log = [self.logged_as(entry, flag) for entry in batch if entry.pk in changed]
                LogEntry.objects.log_actions(request.user.pk, log, flag, note)  # type: ignore[arg-type]
            count += len(changed)
        if not entries:
            self.message_user(request, _("What you selected is not here any more."), messages.WARNING)
        if count:
            self.message_user(request, done % count, messages.SUCCESS)
        if skipped and (left := len(entries) - count):
            self.message_user(request, skipped % left, messages.WARNING)

    def logged_as(self, entry: Entry, flag: int) -> Entry:
        """Return the row that the log shall point to: a requeued letter is a job by now, with the same id."""
        if isinstance(entry, Job) or flag == DELETION:
            return entry
        return Job(pk=entry.pk, queue_name=entry.queue_name, task_path=entry.task_path)


@admin.register(Job)
class JobAdmin(EntryAdmin):
    """Jobs that wait, run, or are done."""

    list_display = ("task", "word", "timing", "place", "used", "enqueued")
    list_filter = (StateFilter, BY_QUEUE, BY_TASK)
    actions = ("run_now", "delete_selected")
    fieldsets = (
        (None, {"fields": ("task", ("word", "timing"), "situation", "arguments", "returned")}),
        (_("Attempts"), {"fields": (("used", "worker"), "timeline")}),
        (_("Details"), {"fields": DETAILS}),
    )

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


@admin.register(DeadLetter)
class DeadLetterAdmin(EntryAdmin):
    """Jobs that failed for good, until somebody requeues or discards them."""

    list_display = ("task", "failure", "died", "queue_name", "used")
    list_filter = (BY_QUEUE, BY_TASK, ("exception_class", admin.AllValuesFieldListFilter))
    search_fields = ["id", "task_path", "exception_class", "message"]
    search_help_text = _(
        "A task, an exception or its words, or an id; its last digits, as the log shows them, will do."
    )
    actions = ("requeue", "delete_selected")
    fieldsets = (
        (None, {"fields": ("task", "situation", "failure", "died", "arguments")}),
        (_("Attempts"), {"fields": ("used", "timeline")}),
        (_("Details"), {"fields": (*DETAILS, "fingerprint")}),
    )

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
