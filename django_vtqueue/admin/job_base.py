"""The base of the pages of jobs and of dead letters."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ..core import clock
from ..core.humanize import duration
from ..core.ids import parse_id
from ..models import DeadLetter, Job
from ..queue.why import why
from . import addresses, display
from .base import ReadOnlyAdmin
from .links import address, link
from .timelines import timeline

NO_ID = UUID(int=0)  # in the place of what is none: a row that is not there
BATCH = 500  # rows that one transaction of an action changes
GRID: tuple[str | tuple[str, ...], ...] = (
    ("copied_id", "unique_key"),
    ("queue_link", "priority", "enqueued", "kept_until"),
)

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise as StrPromise

Entry = Job | DeadLetter
Reasons = Callable[[list[Any], str], list[str]]  # rows that were not changed, and database alias -> sentences
Change = Callable[[list[UUID], str], list[UUID]]  # ids and database alias -> the ids of those that were changed


class EntryAdmin(ReadOnlyAdmin):
    """What the pages of jobs and of dead letters share."""

    search_fields = ["id"]
    search_help_text = _(
        "Part of a task's name or of the arguments, or an id; its last digits, as the log shows them, will do."
    )
    show_facets = admin.ShowFacets.NEVER

    @admin.display(description=_("task"))
    def task(self, entry: Entry) -> SafeString | str:
        """Return the name of a job's task, and its arguments, which the list has read for all its rows."""
        name, summary = display.task_name(entry.task_path), getattr(entry, "summary", "")
        return format_html('{} <span class="vtq-call">{}</span>', name, summary) if summary else name

    @admin.display(description=_("task"))
    def task_link(self, entry: Entry) -> SafeString | str:
        name = display.task_name(entry.task_path)
        return self.list_link(name, task_path=entry.task_path) if entry.task_path else name

    @admin.display(description=_("queue"))
    def queue_link(self, entry: Entry) -> SafeString | str:
        return self.list_link(entry.queue_name, queue_name=entry.queue_name)

    def list_link(self, text: object, **query: str) -> SafeString | str:
        """Return a link to the rows that have something in common with this one."""
        return link(self.admin_site.name, f"{self.opts.model_name}_changelist", text, **query)

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
        return display.arguments(entry)

    @admin.display(description=_("id"))
    def copied_id(self, entry: Entry) -> SafeString:
        return display.copyable(format_html("<code>{}</code>", entry.pk))

    @admin.display(description=_("history"))
    def timeline(self, entry: Entry) -> SafeString | str:
        return timeline(entry, self.admin_site.name)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """An action is for the rows that were selected on a page: the others are neither counted nor shown."""
        posted = request.POST.copy()
        posted.pop("select_across", None)
        if selected := posted.getlist(ACTION_CHECKBOX_NAME):
            posted.setlist(ACTION_CHECKBOX_NAME, [str(parse_id(row_id) or NO_ID) for row_id in selected])
        request.POST = posted  # type: ignore[assignment]
        if there := addresses.search(self, request):
            return there
        response = super().changelist_view(request, extra_context)
        if "page" in posted:
            return self.back_to_page(request, response)
        refreshed = request.headers.get("X-Requested-With") == "fetch"
        return self.unless_unchanged(request, response) if refreshed else response

    def unless_unchanged(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Return the page for a refresh, or 304 if that would show what it showed before: rendering takes the time."""
        if not isinstance(response, TemplateResponse) or not response.context_data:
            return response
        version = f'"{response.context_data["cl"].version(request.user.pk, self.as_of_now)}"'
        if request.headers.get("If-None-Match") == version:
            return HttpResponseNotModified()
        response["ETag"] = version
        return response

    def as_of_now(self, entry: Any) -> object:
        """Return what of a row in a list changes with time alone."""
        return None

    def back_to_page(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Lead back to the page of a row from which an action was posted, or to what that has become."""
        row_id = parse_id(request.POST.get(ACTION_CHECKBOX_NAME))
        if response.status_code != 302:
            return response
        if self.get_queryset(request).filter(pk=row_id).exists():
            return self.go_to(f"{self.opts.model_name}_change", row_id)
        return addresses.find(self, request, row_id) or response

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        """Lead to what a row has become, instead of to the index of the site."""
        return self.not_here(request, object_id)

    def not_here(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lead to what a row has become, or say that it is gone."""
        return addresses.find(self, request, parse_id(unquote(object_id))) or addresses.gone(self, request, object_id)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What is confirmed on the page of a row is done, and said, as for a row that was selected in the list."""
        if not (self.has_delete_permission(request) and self.has_view_permission(request)):
            raise PermissionDenied
        if request.method != "POST":
            rows = self.get_queryset(request).filter(pk=parse_id(unquote(object_id)))
            back = address(self.admin_site.name, f"{self.opts.model_name}_change", object_id)
            return self.ask_to_discard(request, rows, back) if rows else self.not_here(request, object_id)
        posted = request.POST.copy()
        posted["post"], posted[ACTION_CHECKBOX_NAME] = "yes", object_id
        request.POST = posted  # type: ignore[assignment]
        self.delete_selected(request, self.get_queryset(request).filter(pk=parse_id(object_id)))
        return self.back_to_page(request, self.go_to(f"{self.opts.model_name}_changelist"))

    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Delete rows, once that has been confirmed; None if it is done."""
        raise NotImplementedError

    def ask_to_discard(self, request: HttpRequest, rows: QuerySet[Any], back: str | None = None) -> HttpResponse:
        """Return the page that asks before rows are gone for good; ``back``: where it leads otherwise."""
        count = len(rows)
        if self.model is Job:
            text = ngettext("%d job will be discarded for good.", "%d jobs will be discarded for good.", count)
        else:
            text = ngettext(
                "%d dead letter will be discarded for good.", "%d dead letters will be discarded for good.", count
            )
        return self.form_page(
            request,
            None,
            title=_("Discard"),
            text=text % count,
            rows=rows,
            action="delete_selected",
            checkbox=ACTION_CHECKBOX_NAME,
            page="page" in request.POST,
            back=back or address(self.admin_site.name, f"{self.opts.model_name}_changelist"),
            button=_("Discard"),
            danger=True,
        )

    def carry_out(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        change: Change,
        flag: int,
        *,
        done: "StrPromise",
        skipped: "StrPromise | None" = None,
        reasons: Reasons | None = None,
        note: str = "",
    ) -> None:
        """Change rows, each batch in one transaction with its lines in the admin's log; say how many were changed.

        ``skipped`` says how many were not, ``reasons`` why each of them was not.
        """
        entries, count = list(queryset), 0
        unchanged: list[Any] = []
        for start in range(0, len(entries), BATCH):
            batch = entries[start : start + BATCH]
            with transaction.atomic(using=queryset.db):
                changed = set(change([entry.pk for entry in batch], queryset.db))
                log = [self.logged_as(entry, flag) for entry in batch if entry.pk in changed]
                LogEntry.objects.log_actions(request.user.pk, log, flag, note)  # type: ignore[arg-type]
            count += len(changed)
            unchanged += [entry for entry in batch if entry.pk not in changed]
        if not entries:
            self.message_user(request, _("What you selected is not here any more."), messages.WARNING)
        elif (gone := len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))) - len(entries)) > 0:
            text = ngettext(
                "%d of those selected is not here any more.", "%d of those selected are not here any more.", gone
            )
            self.message_user(request, text % gone, messages.WARNING)
        if count:
            self.message_user(request, done % count, messages.SUCCESS)
        if skipped and (left := len(entries) - count):
            self.message_user(request, skipped % left, messages.WARNING)
        for reason in reasons(unchanged, queryset.db) if reasons and unchanged else ():
            self.message_user(request, reason, messages.WARNING)

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("vtqueue.change_deadletter")

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """It needs the permission to see, too: the pages that ask first show the letter, or count it."""
        return request.user.has_perm("vtqueue.requeue_deadletter") and self.has_view_permission(request)

    def logged_as(self, entry: Entry, flag: int) -> Entry:
        """Return the row that the log shall point to: a requeued letter is a job by now, with the same id."""
        if isinstance(entry, Job) or flag == DELETION:
            return entry
        return Job(pk=entry.pk, queue_name=entry.queue_name, task_path=entry.task_path)
