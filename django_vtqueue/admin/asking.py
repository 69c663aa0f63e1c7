"""Actions that ask for something first: a page between the choice of the rows and what becomes of them."""

from typing import Any

import django
from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..engines import backend_options, engine_for
from ..models import Job
from ..publishing import LONGEST_NAME, MAX_PRIORITY, MIN_PRIORITY

CHOICES = 100  # names that are offered
CRUMBS = "vtqueue/crumbs_as_list.html" if django.VERSION >= (6, 1) else "vtqueue/crumbs.html"
PRIORITY_HELP = gettext_lazy("A whole number from -100 to 100; higher ones run first.")


class Suggestions(forms.TextInput):
    """A text for which the browser offers what is known."""

    template_name = "vtqueue/suggestions.html"

    def __init__(self, suggestions: list[str], **attrs: Any) -> None:
        super().__init__(attrs)
        self.suggestions = suggestions

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context = super().get_context(name, value, {**attrs, "list": f"suggestions-{name}"})
        return {**context, "suggestions": self.suggestions}


def queues_of(database: str) -> tuple[list[str], bool]:
    """Return the names of queues that can be offered, and whether the settings allow others as well."""
    options = backend_options(database)
    if options.queues:
        return sorted(options.queues), False
    return sorted({*options.queue_options, *engine_for(database).names("job", "queue_name", CHOICES)}), True


class PriorityForm(forms.Form):
    """Another priority."""

    title = gettext_lazy("Change the priority")
    priority = forms.IntegerField(
        label=gettext_lazy("Priority"), min_value=MIN_PRIORITY, max_value=MAX_PRIORITY, help_text=PRIORITY_HELP
    )

    def __init__(self, database: str, *args: Any) -> None:
        super().__init__(*args)


class QueueField(forms.CharField):
    """The name of a queue, one that the settings of a database's backend allow."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(label=gettext_lazy("Queue"), max_length=LONGEST_NAME, strip=False, **kwargs)

    def of(self, database: str) -> None:
        """Offer the queues of a database."""
        self.names, self.others = queues_of(database)
        self.widget = Suggestions(self.names)

    def validate(self, value: str) -> None:
        super().validate(value)
        if value and not self.others and value not in self.names:
            raise ValidationError(
                _("The settings allow no queue “%(queue)s”; they name these: %(names)s."),
                params={"queue": value, "names": ", ".join(self.names)},
            )


class QueueForm(forms.Form):
    """Another queue."""

    title = gettext_lazy("Move to another queue")
    queue_name = QueueField(
        help_text=gettext_lazy(
            "Their visibility timeout and their number of attempts stay what their present queue gave them."
        )
    )

    def __init__(self, database: str, *args: Any) -> None:
        super().__init__(*args)
        self.fields["queue_name"].of(database)  # type: ignore[attr-defined]


def asked(request: HttpRequest, form_class: Any, database: str) -> Any:
    """Return the form of an action, bound if it was sent."""
    return form_class(database, request.POST) if "post" in request.POST else form_class(database)


def ask(
    model_admin: "admin.ModelAdmin[Job]", request: HttpRequest, queryset: QuerySet[Job], form: forms.Form
) -> TemplateResponse:
    """Return the page that shows the form, and the rows that it is about."""
    about = {"rows": queryset, "action": request.POST["action"], "page": "page" in request.POST}
    return form_page(model_admin, request, form, checkbox=ACTION_CHECKBOX_NAME, **about)


def form_page(
    model_admin: "admin.ModelAdmin[Job]", request: HttpRequest, form: forms.Form, **context: Any
) -> TemplateResponse:
    """Return the page of a form, with what else is in its context."""
    own = {
        **model_admin.admin_site.each_context(request),
        "title": form.title,  # type: ignore[attr-defined]
        "opts": model_admin.opts,
        "crumbs": CRUMBS,
        "form": form,
        "media": model_admin.media + form.media,
    }
    return TemplateResponse(request, "vtqueue/ask.html", {**own, **context})
