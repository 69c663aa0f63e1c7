"""The base of the pages of jobs and of dead letters."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..core import clock
from ..core.humanize import duration
from ..core.ids import parse_id
from ..models import DeadLetter, Job
from ..queue.why import why
from . import addresses, display
from .base import ReadOnlyAdmin
from .links import link
from .timelines import timeline

Entry = Job | DeadLetter
NO_ID = UUID(int=0)  # in the place of what is none: a row that is not there
GRID: tuple[str | tuple[str, ...], ...] = (
    ("copied_id", "unique_key"),
    ("queue_link", "priority", "enqueued", "kept_until"),
)


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
        """Lead to the page of a row: to discard it is an action there, as it is in the list."""
        return self.go_to(f"{self.opts.model_name}_change", object_id)

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("vtqueue.change_deadletter")

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """It needs the permission to see, too: the pages that ask first show the letter, or count it."""
        return request.user.has_perm("vtqueue.requeue_deadletter") and self.has_view_permission(request)
