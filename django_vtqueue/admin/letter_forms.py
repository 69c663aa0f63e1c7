"""Forms for a single dead letter: change it and requeue it, or mark it as reviewed, with a note."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.encoding import decode, encode
from ..engines import options_for
from ..fields import text_of
from ..models import DeadLetter
from ..queue import dead_letters
from ..queue.dead_letters import LONGEST_NOTE
from ..tasks.lookup import find_task
from . import display
from .actions import as_job
from .fields import PriorityField, QueueField, call_of, check_call, json_of, restored
from .job_base import EntryAdmin
from .links import address


class LetterForm(forms.Form):
    """A form about one dead letter. ``seen``: the state of the letter that the page showed."""

    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(self, letter: DeadLetter, data: Any, **initial: Any) -> None:
        self.letter = letter
        super().__init__(data, initial={"seen": f"{letter.died_at.isoformat()} {letter.reviewed_at}", **initial})

    def clean_seen(self) -> None:
        if self.cleaned_data["seen"] not in ("", self.initial["seen"]):
            text = _("Meanwhile it has died again, or was marked as reviewed: look at it once more.")
            self.add_error(None, text)


class EditForm(LetterForm):
    """The changes with which a dead letter is requeued."""

    payload = forms.CharField(
        label=gettext_lazy("Arguments"),
        widget=forms.Textarea(attrs={"class": "vLargeTextField", "rows": 12, "spellcheck": "false"}),
        strip=False,
        help_text=gettext_lazy(
            "JSON, for a task in one of the forms of “Enqueue a job”. Hidden values (••••) stay as they are stored if "
            "you leave the dots in place."
        ),
    )
    queue_name = QueueField()
    priority = PriorityField()

    def __init__(self, letter: DeadLetter, data: Any) -> None:
        self.shown, self.stored, text = shown_and_stored(letter)
        super().__init__(letter, data, payload=text, queue_name=letter.queue_name, priority=letter.priority)

    def clean_payload(self) -> str:
        """Return the stored form of the arguments; they must be what the task takes."""
        given = self.cleaned_data["payload"]
        if given.replace("\r\n", "\n") == self.initial["payload"]:
            return text_of(self.letter.payload)
        value = json_of(given)
        if self.letter.task_path:
            args, kwargs = call_of(value)
            value = {"args": args, "kwargs": kwargs}
        value = restored(value, self.shown, self.stored)
        if self.letter.task_path:
            check_payload(value, self.letter)
        return encode(value)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if {"payload", "queue_name"} <= values.keys():
            options = options_for(values["queue_name"], self.letter._state.db)
            limit = options.policy(values["queue_name"]).max_payload_bytes
            if (size := len(values["payload"].encode())) > limit:
                text = _("The arguments have %(size)d bytes; max_payload_bytes allows %(limit)d.")
                self.add_error("payload", ValidationError(text, params={"size": size, "limit": limit}))
        return values


class NoteForm(LetterForm):
    """A note on a dead letter."""

    note = forms.CharField(
        label=gettext_lazy("Note"),
        max_length=LONGEST_NOTE,
        required=False,
        widget=forms.Textarea(attrs={"class": "vLargeTextField", "rows": 5}),
    )


def shown_and_stored(letter: DeadLetter) -> tuple[Any, Any, str]:
    """Return the payload with what is secret hidden, as it is, and the text to edit; only the text if it is no JSON."""
    mask = display.mask(letter)
    try:
        stored = decode(text_of(letter.payload))
        shown = mask.hide(decode(text_of(letter.payload)))
        return shown, stored, display.indented(shown)
    except (ValueError, RecursionError):
        return None, None, display.unreadable(text_of(letter.payload), mask)


def check_payload(value: dict[str, Any], letter: DeadLetter) -> None:
    """Raise ValidationError unless ``value`` is a call that a letter's task, if it is known here, can take."""
    try:
        options = options_for(letter.queue_name, letter._state.db)
        task = find_task(letter.task_path, options.task_modules)
    except Exception:  # the task is gone, or its module does not import: its arguments are not known
        return
    check_call(task, value["args"], value["kwargs"], display.mask(letter))


def edit(model_admin: EntryAdmin, request: HttpRequest, pk: UUID) -> HttpResponse:
    """Show a letter to be changed, then requeue it with the changes."""
    letter = model_admin.get_object(request, str(pk))
    if not isinstance(letter, DeadLetter):
        return moved_on(model_admin, request, pk)
    form = EditForm(letter, request.POST or None)
    if request.method == "POST" and form.is_valid():
        values = {name: form.cleaned_data[name] for name in ("payload", "queue_name", "priority")}
        try:
            dead_letters.requeue_changed(letter, **values, by=request.user.get_username())
        except dead_letters.NotRequeued as error:
            form.add_error(None, str(error))
        else:
            note = _("Requeued with changes: %(fields)s.") % {"fields": ", ".join(form.changed_data) or "-"}
            model_admin.log_change(request, as_job(letter), note)
            model_admin.message_user(request, _("The dead letter is a job again."), messages.SUCCESS)
            return model_admin.go_to("job_change", pk)
    return shown(model_admin, request, letter, form, title=_("Requeue with changes"), button=_("Requeue"))


def review(model_admin: EntryAdmin, request: HttpRequest, pk: UUID) -> HttpResponse:
    """Ask for a note, then store it with who wrote it."""
    letter = model_admin.get_object(request, str(pk))
    if not isinstance(letter, DeadLetter):
        return moved_on(model_admin, request, pk)
    form = NoteForm(letter, request.POST if request.method == "POST" else None, note=letter.note)
    if form.is_valid():
        by, note = request.user.get_username(), form.cleaned_data["note"]
        if not dead_letters.mark_reviewed(letter, using=letter._state.db, by=by, note=note):
            return moved_on(model_admin, request, pk)
        model_admin.log_change(request, letter, _("Reviewed: %(note)s") % {"note": note})
        model_admin.message_user(request, _("The dead letter is marked as reviewed."), messages.SUCCESS)
        return model_admin.go_to("deadletter_change", pk)
    return shown(model_admin, request, letter, form, title=_("Mark as reviewed"), button=_("Mark as reviewed"))


def moved_on(model_admin: EntryAdmin, request: HttpRequest, pk: UUID) -> HttpResponse:
    """Say that the letter is gone, and redirect to where its job is now."""
    text = _("It is no dead letter any more: it was requeued or discarded.")
    model_admin.message_user(request, text, messages.WARNING)
    return model_admin.find(request, pk) or model_admin.go_to("deadletter_changelist")


def shown(
    model_admin: EntryAdmin, request: HttpRequest, letter: DeadLetter, form: forms.Form, **more: Any
) -> HttpResponse:
    """Return the page of a form about one letter."""
    words = [
        (_("task"), display.task_name(letter.task_path)),
        (_("failure"), f"{letter.exception_class}: {letter.message}"),
        (_("unique key"), letter.unique_key or "-"),
    ]
    back = address(model_admin.admin_site.name, "deadletter_change", letter.pk)
    return model_admin.form_page(request, form, words=words, back=back, **more)
