"""What people do to the steps of durable tasks: the next one is skipped, or some are made anew."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from .. import control
from ..core.encoding import legible
from ..core.job import SHORT
from ..core.steps import EVENT, SLEEP
from ..exceptions import PayloadTooLarge
from ..inspection.state import waits_of
from ..models import Job
from .actions import bound, carry_out, confirm
from .base import ReadOnlyAdmin

DONE = ngettext_lazy("The steps of %d job were changed.", "The steps of %d jobs were changed.")
SKIPPED = ngettext_lazy(
    "%d job was left as it is: a worker holds it, it is done, or it has no such step.",
    "%d jobs were left as they are: workers hold them, they are done, or they have no such step.",
)


class SkipForm(forms.Form):
    """What stands for the next step."""

    title = gettext_lazy("Skip the next step")
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=SHORT,
        help_text=gettext_lazy(
            "Of the step that the job waits for, or of the step that has failed: with another name the task "
            "fails again."
        ),
    )
    value = forms.JSONField(
        label=gettext_lazy("Result"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("JSON; the task goes on as if the step had returned this. Empty: nothing."),
    )

    def clean_value(self) -> Any:
        """Return the value; raise ValidationError if steps cannot hold it."""
        try:
            return legible(self.cleaned_data["value"])
        except TypeError as error:
            raise ValidationError(str(error)) from error


class RepeatForm(forms.Form):
    """The first step to be made anew."""

    title = gettext_lazy("Repeat steps")
    first = forms.IntegerField(
        label=gettext_lazy("From step"),
        min_value=1,
        help_text=gettext_lazy("This one and all behind it are made again, their effects too."),
    )


class StepsActions(ReadOnlyAdmin):
    """The actions on steps, for jobs that wait and for dead letters."""

    @admin.action(permissions=["steps"], description=_("Skip the next step of selected %(verbose_name_plural)s"))
    def skip_step(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return self.change_steps(request, queryset, SkipForm, control.skip_step, gettext("Step skipped."))

    @admin.action(permissions=["steps"], description=_("Repeat steps of selected %(verbose_name_plural)s"))
    def repeat_steps(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return self.change_steps(request, queryset, RepeatForm, control.repeat_steps, gettext("Steps repeated."))

    def change_steps(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        form_class: type[forms.Form],
        change: Callable[..., bool],
        note: str,
    ) -> HttpResponse | None:
        """Ask for the values of a change, and make it."""
        form = bound(request, partial(form_class, initial=waited_for(queryset)))
        if not form.is_valid():
            return confirm(self, request, queryset, form)
        one = partial(change, **form.cleaned_data, using=queryset.db, by=request.user.get_username())
        try:
            carry_out(self, request, queryset, partial(each, one), note=note, done=DONE, skipped=SKIPPED)
        except PayloadTooLarge as error:
            form.add_error("value", str(error))
            return confirm(self, request, queryset, form)
        return None


def waited_for(rows: QuerySet[Any]) -> dict[str, str]:
    """Return what a form begins with: the name of the event or the sleep that all of these rows wait for."""
    waits = [waits_of(row) for row in rows if isinstance(row, Job)]
    found = {each.name for each in waits if each and each.kind in (EVENT, SLEEP)}
    return {"name": found.pop()} if len(found) == 1 else {}


def each(change: Callable[[UUID], bool], rows: list[Any]) -> list[UUID]:
    """Change rows one by one; return the ids of those that were changed."""
    return [row.pk for row in rows if changed(change, row.pk)]


def changed(change: Callable[[UUID], bool], row_id: UUID) -> bool:
    """Return whether a row was changed: not if it has no such step, or waits for something else.

    Raise PayloadTooLarge if its steps would be too large.
    """
    try:
        return change(row_id)
    except PayloadTooLarge:
        raise
    except ValueError:
        return False
