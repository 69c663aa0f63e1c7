"""Actions that ask for something first: a page between the choice of the rows and what becomes of them."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy

from ..models import Job
from .fields import PriorityField, QueueField

if TYPE_CHECKING:
    from .jobs import JobAdmin


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


def ask(model_admin: "JobAdmin", request: HttpRequest, queryset: QuerySet[Job], form: Any) -> TemplateResponse:
    """Return the page that shows the form, and the rows that it is about."""
    about = {"rows": queryset, "action": request.POST["action"], "page": "page" in request.POST}
    return model_admin.form_page(
        request, form, title=form.title, button=form.title, checkbox=ACTION_CHECKBOX_NAME, **about
    )
