"""The base of the pages of jobs and of dead letters, and who may requeue; other views say it in ``own_views``."""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..core import clock, history, states
from ..core.humanize import duration, time_of
from ..core.ids import digits_in, parse_id
from ..engines import engine_for
from ..inspection.lists import ending
from ..inspection.state import limits_for
from ..inspection.trees import find, has_tree
from ..inspection.why import why
from ..models import DeadLetter, Job
from ..models.jobs import JobOrLetter
from . import display
from .base import permitted
from .links import link
from .step_actions import StepsActions
from .step_table import made
from .timelines import timeline
from .trees import family

LINES = 20  # of the admin's log, on the page of what is gone
NO_ID = UUID(int=0)  # stands for a text that is no id; no row has it
GRID: tuple[str | tuple[str, ...], ...] = (
    ("copied_id", "key"),
    ("queue_link", "priority", "enqueued", "kept"),
)


class EntryAdmin(StepsActions):
    """What the pages of jobs and of dead letters share."""

    search_fields = ["id"]
    search_help_text = _(
        "Part of a task's name or of the arguments, or an id; its last digits, as the log shows them, will do."
    )
    show_facets = admin.ShowFacets.NEVER

    enqueued = display.moment_of("enqueued_at", _("enqueued"))
    kept = display.moment_of("kept_until", _("kept until"))

    @admin.display(description=_("task"))
    def task(self, entry: JobOrLetter) -> SafeString | str:
        """Return the name of a job's task, and its arguments, which the list has read for all its rows."""
        name, summary = display.task_name(entry.task_path), getattr(entry, "summary", "")
        return format_html('{} <span class="vtq-call">{}</span>', name, summary) if summary else name

    @admin.display(description=_("task"))
    def task_link(self, entry: JobOrLetter) -> SafeString | str:
        name = display.task_name(entry.task_path)
        return self.list_link(name, task_path=entry.task_path) if entry.task_path else name

    @admin.display(description=_("queue"))
    def queue_link(self, entry: JobOrLetter) -> SafeString | str:
        return self.list_link(entry.queue_name, queue_name=entry.queue_name)

    def list_link(self, text: object, **query: str) -> SafeString | str:
        """Return a link to the rows that have something in common with this one."""
        return link(self.admin_site.name, f"{self.opts.model_name}_changelist", text, **query)

    @admin.display(description=_("situation"))
    def situation(self, entry: JobOrLetter) -> str:
        try:
            limits = limits_for(entry.queue_name, entry._state.db, entry.task_path)
            with engine_for(str(entry._state.db)).snapshot():
                return why(entry, display.now_of(entry), limits)
        except (TypeError, ValueError):  # a damaged row of the job, or of a worker
            return "-"

    @admin.display(description=_("attempts"))
    def used(self, entry: JobOrLetter) -> str:
        return f"{entry.attempts} / {entry.max_attempts or '∞'}"

    @admin.display(description=_("visibility timeout"))
    def visibility_timeout(self, entry: JobOrLetter) -> str:
        return duration(entry.lease_us)

    @admin.display(description=_("arguments"))
    def arguments(self, entry: JobOrLetter) -> SafeString:
        return display.arguments(entry)

    @admin.display(description=_("unique key"))
    def key(self, entry: JobOrLetter) -> SafeString | str:
        return display.unique_key(entry)

    @admin.display(description=_("id"))
    def copied_id(self, entry: JobOrLetter) -> SafeString:
        return display.copyable(format_html("<code>{}</code>", entry.pk))

    @admin.display(description=_("history"))
    def timeline(self, entry: JobOrLetter) -> SafeString | str:
        return timeline(entry, self.admin_site.name)

    @admin.display(description=_("steps"))
    def steps_made(self, entry: JobOrLetter) -> SafeString | str:
        return made(entry, self.admin_site.name)

    @admin.display(description=_("parent"))
    def parent(self, entry: JobOrLetter) -> SafeString | str:
        above = entry.parent_id and find(entry.parent_id, entry._state.db)
        if not above:
            return gettext("…%(id)s, which is not here any more") % {"id": str(entry.parent_id)[-8:]}
        name = format_html("{} …{}", display.task_name(above.task_path), above.pk.hex[-8:])
        return link(self.admin_site.name, f"{above._meta.model_name}_change", name, above.pk)

    @admin.display(description=_("tree"))
    def tree(self, entry: JobOrLetter) -> SafeString | str:
        return family(entry, self.admin_site.name)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave out what it does not have."""
        unset = {name for name, value in (self.if_set(obj) if obj else {}).items() if not value}
        return [
            (name, {**options, "fields": tuple(field for field in options["fields"] if field not in unset)})
            for name, options in super().get_fieldsets(request, obj)
        ]

    def if_set(self, entry: Any) -> dict[str, object]:
        """Return the fields that are shown only if there is something: steps, say, or the tree of a family."""
        return {"steps_made": entry.steps, "parent": entry.parent_id, "tree": has_tree(entry)}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Limit an action to the rows that were selected on the page, and answer a search for an id."""
        posted = request.POST.copy()
        posted.pop("select_across", None)
        if selected := posted.getlist(ACTION_CHECKBOX_NAME):
            posted.setlist(ACTION_CHECKBOX_NAME, [str(parse_id(row_id) or NO_ID) for row_id in selected])
        request.POST = posted  # type: ignore[assignment]
        if there := self.search(request):
            return there
        response = super().changelist_view(request, extra_context)
        if "page" in posted:
            return self.back_to_page(request, response)
        refreshed = request.headers.get("X-Requested-With") == "fetch"
        return self.unless_unchanged(request, response) if refreshed else response

    def unless_unchanged(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Return the page, or 304 if the browser shows the same already: rendering takes most of the time."""
        if not isinstance(response, TemplateResponse) or not response.context_data:
            return response
        version = f'"{response.context_data["cl"].version(request.user.pk, self.as_of_now)}"'
        if request.headers.get("If-None-Match") == version:
            return HttpResponseNotModified()
        response["ETag"] = version
        return response

    def as_of_now(self, entry: Any) -> object:
        """Return the part of a row in a list that changes with time alone."""
        return None

    def back_to_page(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Redirect to the page from which an action was posted, or to where its row is now."""
        row_id = parse_id(request.POST.get(ACTION_CHECKBOX_NAME))
        if response.status_code != 302:
            return response
        if self.get_queryset(request).filter(pk=row_id).exists():
            return self.go_to(f"{self.opts.model_name}_change", row_id)
        return self.find(request, row_id) or response

    # -- an id has one address, whatever has become of the job -----------------------------------------------------

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        """Redirect to where the row is now, or say that it is gone; Django would redirect to the index."""
        return self.find(request, parse_id(unquote(object_id))) or self.gone(request, object_id)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the page of the row: to discard it is an action there, as in the list."""
        return self.go_to(f"{self.opts.model_name}_change", object_id)

    def search(self, request: HttpRequest) -> HttpResponse | None:
        """Redirect to the one row that an id, or its last digits, finds in the other table alone; None otherwise."""
        text, queryset = request.GET.get("q", "").strip(" …"), self.get_queryset(request)
        if row_id := parse_id(text):
            return None if queryset.filter(pk=row_id).exists() else self.find(request, row_id)
        if not (digits := digits_in(text)):
            return None
        here, there = (
            ending(model.objects.using(queryset.db).only("pk"), digits, 2) for model in (self.model, self.other)
        )
        return self.find(request, there[0].pk) if not here and len(there) == 1 else None

    @property
    def other(self) -> type[JobOrLetter]:
        """The table in which a row may be that is not in this one."""
        return DeadLetter if self.model is Job else Job

    def find(self, request: HttpRequest, row_id: UUID | None) -> HttpResponse | None:
        """Redirect to the row of an id in the other table, and say how it came there; None if it is not there."""
        if row_id is None or self.other not in self.visible(request):
            return None
        entry = self.other.objects.using(self.get_queryset(request).db).filter(pk=row_id).first()
        if entry is None:
            return None
        refreshed = request.headers.get("X-Requested-With") == "fetch"  # by the page's script, which shows no message
        if not refreshed and (said := how(entry)):
            self.message_user(request, said, messages.INFO)
        return self.go_to(f"{entry._meta.model_name}_change", entry.pk)

    def visible(self, request: HttpRequest) -> list[type[JobOrLetter]]:
        """Return the tables whose rows this user may see on this site."""
        pages = self.admin_site._registry
        return [model for model in (Job, DeadLetter) if model in pages and pages[model].has_view_permission(request)]

    def gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return the page of an id that is in neither table, with what the admin's log knows of it."""
        row_id, database = parse_id(object_id), self.get_queryset(request).db
        hidden = row_id and any(
            model.objects.using(database).filter(pk=row_id).exists() for model in (Job, DeadLetter)
        )  # it is there, in a table that this user may not see
        if hidden or not self.has_view_permission(request):
            raise PermissionDenied
        types = ContentType.objects.get_for_models(*self.visible(request)).values()
        log = LogEntry.objects.filter(content_type__in=types, object_id=str(row_id)).select_related("user")
        context = {"title": _("Not here any more"), "object_id": object_id, "known": row_id, "log": log[:LINES]}
        response = self.page(request, "vtqueue/gone.html", **context)
        response.status_code = 404
        return response

    # -- permissions -----------------------------------------------------------------------------------------------

    def has_steps_permission(self, request: HttpRequest) -> bool:
        return self.has_requeue_permission(request)

    has_review_permission = permitted("change_deadletter")

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """A user must be allowed to see the letters too: the pages that ask first show or count them."""
        return request.user.has_perm("vtqueue.requeue_deadletter") and self.has_view_permission(request)


def how(entry: JobOrLetter) -> str:
    """Return who requeued a job, when, and what came of it; of a dead letter, when it died."""
    if isinstance(entry, DeadLetter):
        return gettext("It died at %(time)s.") % {"time": time_of(entry.died_at)}
    requeues = [each for each in history.read(entry.history) if each.get("outcome") == history.REQUEUED]
    if not requeues or not isinstance(ended := requeues[-1].get("ended"), int):  # never, or the history is damaged
        return ""
    requeued_at = clock.from_instant(ended)
    values = {"name": requeues[-1].get("worker") or "?", "time": time_of(requeued_at)}
    if entry.state != states.SUCCESSFUL or entry.finished_at is None:
        return gettext("It was requeued by %(name)s at %(time)s.") % values
    values["later"] = duration(clock.microseconds(entry.finished_at - requeued_at))
    return gettext("It was requeued by %(name)s at %(time)s, and done %(later)s later.") % values
