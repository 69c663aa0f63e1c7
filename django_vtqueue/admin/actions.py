"""Actions on jobs: the pages that ask for a value first, and the reasons why a job was left as it was."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..core import clock
from ..core.ids import shown_worker
from ..models import UNFINISHED, DeadLetter, Job
from . import display
from .fields import PriorityField, QueueField
from .job_base import EntryAdmin

# -- pages that ask first ----------------------------------------------------------------------------------------------
#
# An action that needs a value shows a page between the choice of the rows and the change.


class PriorityForm(forms.Form):
    """Another priority."""

    title = gettext_lazy("Change the priority")
    priority = PriorityField()


class QueueForm(forms.Form):
    """Another queue."""

    title = gettext_lazy("Move to another queue")
    queue_name = QueueField(
        help_text=gettext_lazy(
            "Their visibility timeout and their number of attempts stay what their present queue gave them."
        )
    )


def asked(request: HttpRequest, form_class: Any) -> Any:
    """Return the form of an action, bound if it was sent."""
    return form_class(request.POST if "post" in request.POST else None)


def ask(model_admin: EntryAdmin, request: HttpRequest, queryset: QuerySet[Job], form: Any) -> TemplateResponse:
    """Return the page that shows the form, and the rows that it is about."""
    about = {"rows": queryset, "action": request.POST["action"], "page": "page" in request.POST}
    return model_admin.form_page(
        request, form, title=form.title, button=form.title, checkbox=ACTION_CHECKBOX_NAME, **about
    )


SHOWN = 5  # sentences


def left_out(jobs: Sequence[Job], database: str, queue_name: str = "") -> list[str]:
    """Return why jobs were not changed, by what they are now; ``queue_name``: the one they should have gone to."""
    first = jobs[:SHOWN]
    present = Job.objects.using(database).in_bulk([job.pk for job in first])
    dead = set(DeadLetter.objects.using(database).filter(pk__in=[job.pk for job in first]).values_list("pk", flat=True))
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
    if display.word_of(job, clock.now()) == "running":
        values["worker"] = shown_worker(job.worker_id)
        return _("%(job)s was left as it is: %(worker)s holds it.") % values
    if queue_name and job.queue_name == queue_name:
        return _("%(job)s was left as it is: it is in queue “%(queue)s” already.") % values
    if queue_name and job.unique_key is not None and taken(job, queue_name):
        return (
            _("%(job)s was left as it is: an unfinished job of queue “%(queue)s” has its unique key “%(key)s”.")
            % values
        )
    return _("%(job)s was left as it is: it has just changed; try again.") % values


def taken(job: Job, queue_name: str) -> bool:
    """Return whether an unfinished job of a queue has the unique key of this one."""
    rows = Job.objects.using(job._state.db).filter(UNFINISHED, queue_name=queue_name, unique_key=job.unique_key)
    return rows.exists()
