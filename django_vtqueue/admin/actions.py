"""Actions on jobs and dead letters: the question, the change with its lines in the log, and why a row was left."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core.ids import shown_worker
from ..engines import database_for, database_now, engine_for
from ..inspection.state import state_word
from ..models import DeadLetter, Job
from ..models.jobs import HAS_KEY
from .base import ReadOnlyAdmin
from .fields import PriorityField, QueueField
from .links import address

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise as StrPromise

SHOWN = 5  # sentences that say why a row was left as it is


# -- the question ------------------------------------------------------------------------------------------------------


class PriorityForm(forms.Form):
    """Another priority."""

    title = gettext_lazy("Change the priority")
    priority = PriorityField()


class QueueForm(forms.Form):
    """Another queue."""

    title = gettext_lazy("Move to another queue")
    queue_name = QueueField(
        help_text=gettext_lazy(
            "Their visibility timeout and their number of attempts stay those of their present queue."
        )
    )


def bound(request: HttpRequest, form_class: Any) -> Any:
    """Return the form of an action, bound if it was sent."""
    return form_class(request.POST if "post" in request.POST else None)


def confirm(
    model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Any], form: Any = None, **more: Any
) -> HttpResponse:
    """Return the page before an action: the form of its values, or only a confirmation."""
    site, name, page = model_admin.admin_site.name, model_admin.opts.model_name, "page" in request.POST
    row_page = address(site, f"{name}_change", request.POST[ACTION_CHECKBOX_NAME]) if page else None
    own = {"title": form.title, "button": form.title} if form else {}
    return model_admin.form_page(
        request,
        form,
        rows=rows,
        action=request.POST["action"],
        checkbox=ACTION_CHECKBOX_NAME,
        page=page,
        back=row_page or address(site, f"{name}_changelist"),
        **own | more,
    )


def confirm_discard(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Any], text: str) -> HttpResponse:
    """Return the page to confirm that rows are deleted for good."""
    return confirm(model_admin, request, rows, title=_("Discard"), button=_("Discard"), danger=True, text=text)


# -- the change --------------------------------------------------------------------------------------------------------


def carry_out(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    queryset: QuerySet[Any],
    change: Callable[[list[Any]], list[UUID]],
    *,
    done: "StrPromise",
    skipped: "StrPromise | None" = None,
    reasons: Callable[[list[Any]], list[str]] | None = None,
    note: str = "",
) -> None:
    """Change rows, in one transaction with their lines in the admin's log; say how many were changed.

    ``change`` returns the ids of those; ``skipped`` says how many were not, ``reasons`` why each of them was not.
    ``note``: what the log says; without one the rows are gone.
    """
    rows, flag = list(queryset), CHANGE if note else DELETION
    with engine_for(str(queryset.db)).atomic():
        changed = set(change(rows))
        log = [as_job(row) if note else row for row in rows if row.pk in changed]
        LogEntry.objects.log_actions(request.user.pk, log, flag, note)  # type: ignore[arg-type]
    left = [row for row in rows if row.pk not in changed]
    if skipped and left:  # others may have taken some meanwhile
        there = queryset.model._base_manager.using(queryset.db).in_bulk([row.pk for row in left])
        left = [row for row in left if row.pk in there]
    selected = max(len(set(request.POST.getlist(ACTION_CHECKBOX_NAME))), len(rows))
    if not changed and not left:
        model_admin.message_user(request, _("Your selection is not here any more."), messages.WARNING)
    elif (gone := selected - len(changed) - len(left)) > 0:
        text = ngettext(
            "%d of those selected is not here any more.", "%d of those selected are not here any more.", gone
        )
        model_admin.message_user(request, text % gone, messages.WARNING)
    if changed:
        model_admin.message_user(request, done % len(changed), messages.SUCCESS)
    if skipped and left:
        model_admin.message_user(request, skipped % len(left), messages.WARNING)
    for reason in reasons(left) if reasons else ():
        model_admin.message_user(request, reason, messages.WARNING)


def change_by_form(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    jobs: QuerySet[Any],
    form_class: type[forms.Form],
    change: Callable[..., list[UUID]],
    *,
    note: str,
    done: "StrPromise",
) -> HttpResponse | None:
    """Ask for the values of a change of jobs, and make it; ``note``: what the log says, with these values."""
    form = bound(request, form_class)
    if not form.is_valid():
        return confirm(model_admin, request, jobs, form)
    values = form.cleaned_data
    reasons = partial(left_out, queue_name=values.get("queue_name", ""))
    carry_out(model_admin, request, jobs, partial(change, **values), note=note % values, done=done, reasons=reasons)
    return None


def as_job(row: Any) -> Job:
    """Return the row to which a line of the log points: a requeued letter is a job by now, with the same id."""
    return row if isinstance(row, Job) else Job(pk=row.pk, queue_name=row.queue_name, task_path=row.task_path)


# -- what was left -----------------------------------------------------------------------------------------------------


def left_out(jobs: Sequence[Job], queue_name: str = "") -> list[str]:
    """Return why jobs were not changed, by what they are now; ``queue_name``: the one they should have gone to."""
    first, database = jobs[:SHOWN], database_for()
    present = Job.objects.using(database).in_bulk([job.pk for job in first])
    dead = DeadLetter.objects.using(database).in_bulk([job.pk for job in first])
    said = [reason(job, present.get(job.pk), job.pk in dead, queue_name) for job in first]
    if (more := len(jobs) - SHOWN) > 0:
        said.append(ngettext("%d more job was left as it is.", "%d more jobs were left as they are.", more) % more)
    return said


def reason(before: Job, job: Job | None, dead: bool, queue_name: str) -> str:
    """Return why one job was not changed; ``before``: as it was when it was chosen."""
    values = {"job": f"…{before.pk.hex[-8:]}", "queue": queue_name, "key": before.unique_key}
    if job is None:
        if dead:
            return _("%(job)s was left as it is: it is a dead letter by now.") % values
        return _("%(job)s was left as it is: it is not here any more.") % values
    if job.finished_at is not None:
        return _("%(job)s was left as it is: it is done.") % values
    if state_word(job, database_now()) == "running":
        values["worker"] = shown_worker(job.worker_id)
        return _("%(job)s was left as it is: %(worker)s holds it.") % values
    if queue_name and job.queue_name == queue_name:
        return _("%(job)s was left as it is: it is in queue “%(queue)s” already.") % values
    if queue_name and taken(job, queue_name):
        return (
            _("%(job)s was left as it is: an unfinished job of queue “%(queue)s” has its unique key “%(key)s”.")
            % values
        )
    return _("%(job)s was left as it is: it has just changed; try again.") % values


def taken(job: Job, queue_name: str) -> bool:
    """Return whether an unfinished job of a queue has the unique key of this one, which needs it."""
    jobs = Job.objects.using(job._state.db).filter(HAS_KEY)
    wanted = jobs.filter(pk=job.pk).exists()
    return wanted and jobs.filter(queue_name=queue_name, unique_key=job.unique_key).exists()
