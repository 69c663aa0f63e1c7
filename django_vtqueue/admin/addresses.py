"""One address for an id: who asks for a job that is a dead letter now, or the other way round, is led to it.

What is in neither table is said to be gone, with what the admin's log knows of it.
"""

import re
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from ..core import clock, history, states
from ..core.humanize import duration, time_of
from ..core.ids import parse_id
from ..inspection.lists import ending
from ..models import DeadLetter, Job
from .base import ReadOnlyAdmin

DIGITS = "[0-9a-fA-F]{8,31}"  # the end of an id
LINES = 20  # of the admin's log


def find(model_admin: ReadOnlyAdmin, request: HttpRequest, row_id: UUID | None) -> HttpResponse | None:
    """Lead to the row of an id in the other table, and say how it came there; None if it is not there either."""
    other = DeadLetter if model_admin.model is Job else Job
    there = model_admin.admin_site._registry.get(other)
    if row_id is None or there is None or not there.has_view_permission(request):
        return None
    entry = other.objects.using(model_admin.get_queryset(request).db).filter(pk=row_id).first()
    if entry is None:
        return None
    refreshed = request.headers.get("X-Requested-With") == "fetch"  # by the page's script, which shows no message
    if not refreshed and (said := how(entry)):
        model_admin.message_user(request, said, messages.INFO)
    return model_admin.go_to(f"{other._meta.model_name}_change", entry.pk)


def how(entry: Job | DeadLetter) -> str:
    """Return who requeued a job, when, and what came of it; of a dead letter, when it died."""
    if isinstance(entry, DeadLetter):
        return _("It died at %(time)s.") % {"time": time_of(entry.died_at)}
    entries = [one for one in history.read(entry.history) if one.get("outcome") == history.REQUEUED]
    if not entries:
        return ""
    ended = entries[-1].get("ended")
    if not isinstance(ended, int):  # damaged
        return ""
    requeued_at = clock.from_instant(ended)
    values = {"name": entries[-1].get("worker") or "?", "time": time_of(requeued_at)}
    if entry.state != states.SUCCESSFUL or entry.finished_at is None:
        return _("It was requeued by %(name)s at %(time)s.") % values
    values["later"] = duration(clock.microseconds(entry.finished_at - requeued_at))
    return _("It was requeued by %(name)s at %(time)s, and done %(later)s later.") % values


def gone(model_admin: ReadOnlyAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Return the page of an id that is in neither table."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    row_id, log = parse_id(object_id), LogEntry.objects.none()
    if row_id:
        database = model_admin.get_queryset(request).db
        if any(model._default_manager.using(database).filter(pk=row_id).exists() for model in (Job, DeadLetter)):
            raise PermissionDenied  # it is there, in a table that this user may not see
        registry = model_admin.admin_site._registry
        seen = [each for each in (Job, DeadLetter) if each in registry and registry[each].has_view_permission(request)]
        types = ContentType.objects.get_for_models(*seen).values()
        log = LogEntry.objects.filter(content_type__in=types, object_id=str(row_id)).select_related("user")
    response = model_admin.page(
        request, "vtqueue/gone.html", title=_("Not here any more"), object_id=object_id, known=row_id, log=log[:LINES]
    )
    response.status_code = 404
    return response


def search(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse | None:
    """Lead to what an id, or its last digits, finds in the other table only; None if that is not one row."""
    text = request.GET.get("q", "").strip(" …")
    here, other = model_admin.model, DeadLetter if model_admin.model is Job else Job
    queryset = model_admin.get_queryset(request)
    if row_id := parse_id(text):
        return None if queryset.filter(pk=row_id).exists() else find(model_admin, request, row_id)
    if not re.fullmatch(DIGITS, text):
        return None
    found = [ending(model.objects.using(queryset.db).only("pk"), text, 2) for model in (here, other)]
    return find(model_admin, request, found[1][0].pk) if not found[0] and len(found[1]) == 1 else None
