"""Pausing and resuming a queue; there is no list of pauses, for the first page of the app shows them."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from ..core import clock
from ..core.humanize import time_of
from ..engines import database_for, database_now, engine_for
from ..models import QueueState
from ..queue import pauses
from . import charts
from .base import ReadOnlyAdmin, Views, permitted
from .fields import refuse_reserved


class PauseForm(forms.Form):
    """Why, and for how long."""

    queue_name = forms.CharField(
        label=_("Queue"),
        max_length=255,
        strip=False,
        validators=[refuse_reserved],
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )
    reason = forms.CharField(
        label=_("Reason"),
        max_length=255,
        required=False,
        widget=forms.TextInput(attrs={"class": "vTextField", "autofocus": True}),
        help_text=_("It is shown with the queue, and as the reason why a job of it is not running."),
    )
    until = forms.SplitDateTimeField(
        label=_("Until"),
        required=False,
        widget=AdminSplitDateTime,
        help_text=_("The queue goes on by itself then. Leave it empty to pause the queue until it is resumed."),
    )

    def clean_until(self) -> Any:
        until = self.cleaned_data["until"]
        if until is not None and clock.to_instant(until) <= database_now():
            raise forms.ValidationError(
                gettext("%(time)s has passed already; give a later time, or none.") % {"time": time_of(until)}
            )
        return until


@admin.register(QueueState)
class QueueStateAdmin(ReadOnlyAdmin):
    """What a person does to a whole queue."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return False

    has_charts_permission = permitted("view_job")
    has_pause_permission = permitted("pause_queue")

    def get_urls(self) -> list[URLPattern]:
        return self.own_urls()

    def own_views(self) -> Views:
        return {
            "pause": (QueueStateAdmin.pause, "pause"),
            "resume": (QueueStateAdmin.resume, "pause"),
            "charts": (QueueStateAdmin.charts, "charts"),
        }

    def charts(self, request: HttpRequest) -> HttpResponse:
        """Show what was done over time."""
        engine = engine_for(database_for())
        with engine.snapshot() as now:
            shown = charts.context(request, engine, now)
        return self.page(request, "vtqueue/charts.html", **shown)

    def pause(self, request: HttpRequest) -> HttpResponse:
        """Ask for the reason and the end of a pause, and begin it; for a paused queue, change them."""
        form = PauseForm(request.POST if request.method == "POST" else None, initial=self.present(request))
        if form.is_valid():
            return self.begin(request, **form.cleaned_data)
        return self.form_page(
            request,
            form,
            title=gettext("Pause a queue"),
            button=gettext("Pause"),
            text=gettext("Nothing of a paused queue is claimed. Running jobs go on, and new jobs wait."),
            calendar=True,
            back=self.overview(request),
        )

    def present(self, request: HttpRequest) -> dict[str, Any]:
        """Return what the form begins with: the pause of the queue in question, if there is one."""
        name = request.GET.get("queue_name", "")
        state = pauses.paused(database_for(), database_now()).get(name)
        return {"queue_name": name} | ({"reason": state.reason, "until": state.paused_until} if state else {})

    def begin(self, request: HttpRequest, queue_name: str, reason: str, until: Any) -> HttpResponse:
        database = database_for()
        with engine_for(database).atomic():
            pauses.pause(queue_name, reason=reason, until=until, by=request.user.get_username(), using=database)
            state = QueueState(queue_name=queue_name, reason=reason, paused_until=until)
            self.log_change(request, state, f"{capfirst(pauses.sentence(state))}.")
        self.message_user(request, gettext("The queue “%s” is paused.") % queue_name, messages.SUCCESS)
        return HttpResponseRedirect(self.overview(request))

    @method_decorator(require_POST)
    def resume(self, request: HttpRequest) -> HttpResponse:
        """End a pause."""
        queue_name, database = request.POST.get("queue_name", ""), database_for()
        with engine_for(database).atomic():
            resumed = self.resumed(queue_name, database)
            if resumed:
                self.log_change(request, QueueState(queue_name=queue_name), gettext("Resumed."))
        if resumed:
            self.message_user(request, gettext("The queue “%s” goes on.") % queue_name, messages.SUCCESS)
        else:
            self.message_user(request, gettext("The queue “%s” was not paused any more.") % queue_name, messages.INFO)
        return HttpResponseRedirect(self.overview(request))

    def resumed(self, queue_name: str, database: str) -> bool:
        try:
            return pauses.resume(queue_name, using=database)
        except ValueError as error:
            raise BadRequest(str(error)) from None
