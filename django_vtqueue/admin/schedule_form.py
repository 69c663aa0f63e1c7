"""The form for a schedule: a task and its arguments, and when it is run."""

from typing import Any

from django import forms
from django.apps import apps
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core import clock
from ..core.clock import SECOND, microseconds
from ..core.ticks import ALL, EVERY, ONE, SKIP, Ticks, checked
from ..engines import backend_options, database_for, database_now
from ..models import Schedule
from ..recurrence.declaring import DEFINITION, set_next
from ..tasks.recurring import LONGEST_SCHEDULE_NAME, checked_name
from ..tasks.signatures import shown_call
from . import display
from .enqueueing import EnqueueForm

MISSED = [
    (ONE, gettext_lazy("one run for all of them")),
    (ALL, gettext_lazy("each is run, up to the last 100")),
    (SKIP, gettext_lazy("none is run")),
]


def task_modules() -> tuple[str, ...]:
    return tuple(backend_options(database_for()).task_modules)


class ScheduleForm(EnqueueForm):
    """A call of a task, and when. ``row``: the schedule that is changed."""

    run_at = delay = None  # type: ignore[assignment]
    name = forms.CharField(label=gettext_lazy("Name"), max_length=LONGEST_SCHEDULE_NAME)
    expression = forms.CharField(
        label=gettext_lazy("Expression"),
        max_length=255,
        help_text=gettext_lazy(
            "The five fields of cron (minute, hour, day of the month, month, day of the week): 0 3 * * *. "
            "Of an expression with six fields leave out the seconds. Or a period in seconds: every 300."
        ),
    )
    time_zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=64,
        required=False,
        help_text=gettext_lazy("Of the fields: Europe/Paris. Empty: that of the site."),
    )
    missed = forms.ChoiceField(label=gettext_lazy("Missed ticks"), choices=MISSED)
    overlap = forms.BooleanField(
        label=gettext_lazy("Overlap"),
        required=False,
        help_text=gettext_lazy("Run it also while its last job is not finished."),
    )
    jitter = forms.FloatField(
        label=gettext_lazy("Jitter"),
        required=False,
        min_value=0,
        max_value=1e9,
        help_text=gettext_lazy("Up to so many seconds by which a job is due later than its tick."),
    )
    shown = forms.CharField(required=False, widget=forms.HiddenInput)
    field_order = ["name", "task_path", "arguments", "expression", "time_zone", "missed", "overlap", "jitter"]

    def __init__(self, data: Any, *, row: Schedule | None) -> None:
        self.row, self.database = row, database_for()
        super().__init__(data, initial={"overlap": True} if row is None else self.values_of(row))
        if row is not None:
            self.fields["name"].disabled = True

    def values_of(self, row: Schedule) -> dict[str, Any]:
        """Return what the form begins with; what is secret is hidden."""
        names = ("name", "task_path", "expression", "time_zone", "missed", "overlap", "queue_name", "priority")
        given = {name: getattr(row, name) for name in names}
        try:
            given["arguments"] = display.indented(shown_call(row))  # type: ignore[arg-type]
        except (ValueError, RecursionError):
            given["arguments"] = ""
        return {**given, "jitter": row.jitter_us / SECOND or None}

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        try:
            checked_name(name)
        except ValueError as error:
            raise ValidationError(str(error)) from error
        if self.row is None and Schedule.objects.using(self.database).filter(pk=name).exists():
            raise ValidationError(_("There is a schedule of this name."))
        return name

    def clean_task_path(self) -> str:
        """Allow what a worker has loaded: it imports nothing for a schedule."""
        path = super().clean_task_path()
        modules = {*(f"{config.name}.tasks" for config in apps.get_app_configs()), *task_modules()}
        if not any(path.startswith(f"{module}.") for module in modules):
            raise ValidationError(
                _("Workers load only the tasks in the “tasks” modules of apps and in OPTIONS['task_modules'].")
            )
        return path

    def clean_expression(self) -> str:
        try:
            return checked(self.cleaned_data["expression"])
        except ValueError as error:
            raise ValidationError(str(error)) from error

    def clean(self) -> None:
        super().clean()
        if "expression" not in self.cleaned_data:
            return
        try:
            if Ticks(*self.times()).after(clock.now()) is None:
                self.add_error("expression", _("It never comes: there is no such day in the next 50 years."))
        except ValueError as error:
            self.add_error("time_zone", str(error))

    def times(self) -> tuple[str, str]:
        """Return the expression and its time zone."""
        expression = self.cleaned_data["expression"]
        given = self.cleaned_data.get("time_zone") or timezone.get_default_timezone_name()
        return expression, "" if expression.startswith(EVERY) else given

    def seen(self) -> bool:
        """Return whether the ticks of this expression were shown before it was sent."""
        return bool(self.cleaned_data["shown"] == self.asked())

    def asked(self) -> str:
        return " ".join(filter(None, self.times()))

    def again(self) -> "ScheduleForm":
        """Return the form as it was sent, once its ticks are shown."""
        form = ScheduleForm({**self.data.dict(), "shown": self.asked()}, row=self.row)  # type: ignore[attr-defined]
        form.is_valid()
        return form

    def save(self) -> Schedule:
        """Store the schedule; its next tick is a new one only if its times have changed."""
        given, row = self.cleaned_data, self.row or Schedule(name=self.cleaned_data["name"])
        before = (row.expression, row.time_zone)
        row.expression, row.time_zone = self.times()
        args, kwargs = given["arguments"]
        row.task_path, row.payload = given["task_path"], {"args": args, "kwargs": kwargs}
        row.missed, row.overlap = given["missed"], given["overlap"]
        row.jitter_us = microseconds(given["jitter"] or 0)
        row.queue_name, row.priority = given["queue_name"] or "", given["priority"]
        fields = [*DEFINITION, "queue_name", "priority"]
        if (row.expression, row.time_zone) != before:
            set_next(row, database_now(), changed=True)
            fields.append("next_at")
        row.save(using=self.database, update_fields=None if row._state.adding else fields)
        return row
