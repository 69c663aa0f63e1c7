"""A new job from the admin: a registered task, its arguments checked against its signature, and when to run it."""

import json
from datetime import timedelta
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.ids import parse_id
from ..core.masks import MASKED
from ..engines import backend_options, database_for, engine_for
from ..exceptions import DuplicateJob, QueueFull, UnknownTask
from ..models import Job
from ..tasks.compat import InvalidTask, Task, TaskResult
from ..tasks.lookup import find_task, loaded_tasks
from ..tasks.signatures import mask_of, shown_call
from . import display
from .fields import PriorityField, QueueField, Suggestions, call_of, check_call, json_of
from .job_base import EntryAdmin

ROWS = 8  # of the field for the arguments


def database_of_task(task: Task) -> str | None:
    """Return the alias in which the backend of a task keeps its jobs; None if it is not of this queue."""
    return getattr(task.get_backend(), "database", None)


def known_paths() -> list[str]:
    """Return the paths of the tasks that one can choose."""
    database = database_for()
    tasks = loaded_tasks(backend_options(database).task_modules)
    return sorted({task.module_path for task in tasks if database_of_task(task) == database})


class EnqueueForm(forms.Form):
    """A call of a task."""

    title = gettext_lazy("Enqueue a job")
    task_path = forms.CharField(label=gettext_lazy("Task"), widget=Suggestions(known_paths, size="80"))
    arguments = forms.CharField(
        label=gettext_lazy("Arguments"),
        required=False,
        widget=forms.Textarea(attrs={"rows": ROWS, "cols": 80, "class": "vLargeTextField", "spellcheck": "false"}),
        help_text=gettext_lazy(
            'JSON: a list, an object by the names of the parameters, or {"args": […], "kwargs": {…}}.'
        ),
    )
    queue_name = QueueField(required=False, help_text=gettext_lazy("Empty: that of the task."))
    priority = PriorityField(required=False)
    run_at = forms.DateTimeField(
        label=gettext_lazy("Run at"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
        help_text=gettext_lazy("Empty: at once."),
    )
    delay = forms.FloatField(
        label=gettext_lazy("Run in"),
        required=False,
        min_value=0,
        max_value=timedelta(days=36_500).total_seconds(),
        help_text=gettext_lazy("Seconds from now, instead of a time."),
    )

    def clean_task_path(self) -> str:
        """Find the task; only one that this database's backend would run can be enqueued."""
        path, database = self.cleaned_data["task_path"], database_for()
        try:
            task = find_task(path, backend_options(database).task_modules)
        except UnknownTask as error:
            raise ValidationError(str(error)) from error
        except Exception as error:  # its module does not import
            raise ValidationError(
                _("The module of “%(path)s” cannot be imported: %(error)s"), params={"path": path, "error": error}
            ) from error
        if database_of_task(task) != database:
            raise ValidationError(
                _("“%(path)s” belongs to another backend of TASKS, “%(backend)s”, which keeps no jobs here."),
                params={"path": path, "backend": task.backend},
            )
        self.task = task
        return cast(str, path)

    def clean_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Read the arguments; what was hidden in a job that served as the model has to be filled in."""
        value = json_of(self.cleaned_data["arguments"] or "[]")
        if MASKED in json.dumps(value, ensure_ascii=False):
            raise ValidationError(_("Fill in the values that are shown as “%(hidden)s”."), params={"hidden": MASKED})
        return call_of(value)

    def clean(self) -> None:
        """Check that the arguments are those of the function, and that there is one time at the most."""
        if "task_path" in self.cleaned_data and "arguments" in self.cleaned_data:
            args, kwargs = self.cleaned_data["arguments"]
            mask = mask_of(self.task.module_path, self.task.queue_name, database_for())
            try:
                check_call(self.task, args, kwargs, mask)
            except ValidationError as error:
                self.add_error("arguments", error)
        if self.cleaned_data.get("run_at") and self.cleaned_data.get("delay") is not None:
            self.add_error("delay", _("Give a time or a delay, not both."))

    def enqueue(self) -> TaskResult:
        """Enqueue the call as the task's backend does it; return what that returns. Raises what that raises."""
        given, delay = self.cleaned_data, self.cleaned_data["delay"]
        changes = {
            "queue_name": given["queue_name"],
            "priority": given["priority"],
            "run_after": given["run_at"] if delay is None else timedelta(seconds=delay),
        }
        args, kwargs = given["arguments"]
        changed = {name: value for name, value in changes.items() if value is not None}
        return self.task.using(**changed).enqueue(*args, **kwargs)


def like(job: Job) -> dict[str, Any]:
    """Return the initial values for a call like that of a job; what is secret is hidden."""
    begin = {"task_path": job.task_path, "queue_name": job.queue_name, "priority": job.priority}
    try:
        return {**begin, "arguments": display.indented(shown_call(job))}
    except (ValueError, RecursionError):
        return begin


def enqueue(model_admin: EntryAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form; enqueue what was sent, and redirect to the page of the new job."""
    form = EnqueueForm(request.POST or None, initial=beginning(model_admin, request))
    if form.is_valid() and (result := enqueued(model_admin, request, form)):
        if getattr(result, "duplicate", False):
            there = _("No job was added: this one is there already, with the unique key of the call.")
            model_admin.message_user(request, there, messages.WARNING)
        else:
            model_admin.message_user(request, _("The job was enqueued."))
        return to_page_of(model_admin, request, result.id)
    return model_admin.form_page(request, form, title=form.title, button=form.title)


def beginning(model_admin: EntryAdmin, request: HttpRequest) -> dict[str, Any]:
    """Return the initial values of the form: none, a task, or the call of a job that the user may see."""
    job_id = parse_id(request.GET.get("like"))
    job = model_admin.get_queryset(request).filter(pk=job_id).first() if job_id else None
    if job and job.task_path and model_admin.has_view_permission(request, job):
        return like(job)
    return {"task_path": request.GET.get("task_path", "")}


def enqueued(model_admin: EntryAdmin, request: HttpRequest, form: EnqueueForm) -> TaskResult | None:
    """Enqueue the call of a form, with a line in the admin's log; None, and an error in the form, if it is refused."""
    try:
        with engine_for(database_for()).atomic():
            result = form.enqueue()
            row = Job(pk=parse_id(result.id), task_path=form.task.module_path, queue_name=form.task.queue_name)
            if not getattr(result, "duplicate", False):
                model_admin.log_addition(request, row, "")
    except (InvalidTask, TypeError, ValueError, DuplicateJob, QueueFull) as error:
        form.add_error(None, str(error))
        return None
    return result


def to_page_of(model_admin: EntryAdmin, request: HttpRequest, job_id: str) -> HttpResponse:
    """Redirect to the new job; to the list if it is gone already; elsewhere if the user may not see jobs."""
    if not model_admin.has_view_permission(request):
        return HttpResponseRedirect(model_admin.overview(request))
    if model_admin.get_queryset(request).filter(pk=job_id).exists():
        return model_admin.go_to("job_change", job_id)
    return model_admin.go_to("job_changelist")
