"""All dead letters of a filter or a group: requeue, discard (after a page that says how many they are), export."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import DELETION, LogEntry
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, ngettext_lazy

from .. import requeueing
from ..core import clock, history
from ..engines import database_for
from ..fields import text_of
from ..models import DeadLetter
from ..queue import dead_letters
from ..queue.dead_letters import Criteria
from ..queue.discarding import discard_letters
from ..tasks.signatures import shown_call
from . import display, letter_selection
from .actions import carry_out
from .fields import PriorityField, QueueField
from .job_base import EntryAdmin
from .links import address
from .tracebacks import last_of

FEW = 100  # letters that are requeued within the request
MOST_DISCARDED = 10_000  # letters that one click discards


class RequeueForm(forms.Form):
    """How fast dead letters are requeued, whether one goes first, and where to."""

    rate = forms.IntegerField(
        label=gettext_lazy("A minute"),
        min_value=1,
        max_value=requeueing.FASTEST,
        required=False,
        help_text=gettext_lazy("So many are requeued each minute; empty: all at once."),
    )
    canary = forms.BooleanField(
        label=gettext_lazy("One first"),
        required=False,
        help_text=gettext_lazy("The others follow only when it has succeeded."),
    )
    queue_name = QueueField(
        label=gettext_lazy("Into the queue"), required=False, help_text=gettext_lazy("Empty: each into its own.")
    )
    priority = PriorityField(
        label=gettext_lazy("With the priority"), required=False, help_text=gettext_lazy("Empty: each with its own.")
    )


def requeue(model_admin: EntryAdmin, request: HttpRequest) -> HttpResponse:
    """Ask how, then requeue all selected letters: a few at once, many in the background."""
    criteria = letter_selection.selected(request)
    if criteria is None:
        return letter_selection.refused(model_admin, request)
    form = RequeueForm(request.POST or None, initial={"canary": criteria.fingerprint is not None})
    count = criteria.count(database_for())
    if request.method == "POST" and form.is_valid():
        return requeue_confirmed(model_admin, request, criteria, count, **form.cleaned_data)
    text = ngettext("%s dead letter will be requeued.", "%s dead letters will be requeued.", count)
    text %= counted(criteria, count)
    return confirmation(
        model_admin, request, criteria, count, text, form=form, title=_("Requeue dead letters"), button=_("Requeue")
    )


def requeue_confirmed(
    model_admin: EntryAdmin,
    request: HttpRequest,
    criteria: Criteria,
    count: int,
    *,
    rate: int | None,
    canary: bool,
    **changes: Any,
) -> HttpResponse:
    """Requeue what was confirmed, with ``changes``, and redirect to the page that shows what becomes of it."""
    database, by = database_for(), request.user.get_username()
    if count <= FEW and rate is None and not canary:
        requeue_at_once(model_admin, request, criteria.letters(database), **changes)
        return model_admin.go_to("deadletter_changelist")
    run = requeueing.start(criteria, rate=rate, canary=canary, by=by, using=database, **changes)
    note = bulk_note(_("Requeue of %(count)s dead letters (%(criteria)s)."), criteria, count)
    model_admin.log_addition(request, run, note)
    return model_admin.go_to("requeue_change", run.pk)


def requeue_at_once(
    model_admin: EntryAdmin, request: HttpRequest, letters: QuerySet[DeadLetter], **changes: Any
) -> None:
    """Requeue letters within the request."""
    carry_out(
        model_admin,
        request,
        letters,
        partial(dead_letters.requeue, by=request.user.get_username(), **changes),
        note=_("Requeued."),
        done=ngettext_lazy("%d dead letter is a job again.", "%d dead letters are jobs again."),
        skipped=ngettext_lazy(
            "%d dead letter was skipped: a waiting job has its unique key, or its row was damaged.",
            "%d dead letters were skipped: waiting jobs have their unique keys, or their rows were damaged.",
        ),
    )


def discard(model_admin: EntryAdmin, request: HttpRequest) -> HttpResponse:
    """Ask first, then discard all selected letters, up to MOST_DISCARDED."""
    criteria = letter_selection.selected(request)
    if criteria is None:
        return letter_selection.refused(model_admin, request)
    database = database_for()
    count = criteria.count(database)
    if request.method == "POST":
        letters = criteria.letters(database).values_list("pk", flat=True)
        gone = len(discard_letters(letters[:MOST_DISCARDED], using=database))
        note = bulk_note(_("Discarded %(count)s dead letters (%(criteria)s)."), criteria, gone)
        row = DeadLetter(exception_class=note)  # one line for all of them
        LogEntry.objects.log_actions(request.user.pk, [row], DELETION, note)  # type: ignore[arg-type]
        done = ngettext("%d dead letter was discarded.", "%d dead letters were discarded.", gone) % gone
        model_admin.message_user(request, done, messages.SUCCESS)
        if gone >= MOST_DISCARDED:
            model_admin.message_user(request, _("There may be more: discard again."), messages.WARNING)
        return model_admin.go_to("deadletter_changelist")
    text = question(count, more=count >= criteria.most_counted)
    return confirmation(
        model_admin, request, criteria, count, text, title=_("Discard dead letters"), button=_("Discard"), danger=True
    )


def question(count: int, *, more: bool = False) -> str:
    """Return the question before letters are discarded; ``more``: there are at least ``count`` of them."""
    text = ngettext("%s dead letter will be discarded for good.", "%s dead letters will be discarded for good.", count)
    return text % display.number(count, more=more)


def confirmation(
    model_admin: EntryAdmin, request: HttpRequest, criteria: Criteria, count: int, text: str, **more: Any
) -> HttpResponse:
    """Return the page that says what would be done, and asks."""
    listed = replace(criteria, died_from=None, died_to=None)  # the list has no filter by the microsecond
    return model_admin.form_page(
        request,
        more.pop("form", None),
        words=letter_selection.in_words(criteria, plain=True),
        sample=sample_of(criteria) if count else None,
        criteria=criteria.to_json(),
        text=text if count else _("No dead letter meets this filter."),
        possible=count > 0,
        back=f"{address(model_admin.admin_site.name, 'deadletter_changelist')}?{letter_selection.query_of(listed)}",
        **more,
    )


def sample_of(criteria: Criteria) -> dict[str, Any] | None:
    """Return how the latest of the letters failed, for the page that asks."""
    database = database_for()
    letter = criteria.letters(database).defer("payload").reverse().first()
    if letter is None:  # another operator was faster
        return None
    return {
        "pk": letter.pk,
        "exception": display.exception(letter.exception_class),
        "message": display.cut(letter.message),
        "died": display.moment(letter.died_at),
        "traceback": last_of(history.read(letter.history)),
    }


def bulk_note(text: str, criteria: Criteria, count: int) -> str:
    """Return what the admin's log says of many letters at once."""
    words = ", ".join(f"{name}: {value}" for name, value in letter_selection.in_words(criteria))
    return text % {"count": counted(criteria, count), "criteria": words}


def counted(criteria: Criteria, count: int) -> str:
    """Return how many letters there are, as far as they were counted."""
    return display.number(count, more=count >= criteria.most_counted)


# -- export ------------------------------------------------------------------------------------------------------------

SLICE = 200  # letters that are read at a time
VALUES = (
    *("queue_name", "task_path", "priority", "claims", "attempts", "max_attempts", "unique_key"),
    *("exception_class", "message", "fingerprint", "reviewed_by", "note"),
)
MOMENTS = ("enqueued_at", "died_at", "reviewed_at")


def export(model_admin: EntryAdmin, request: HttpRequest) -> HttpResponseBase:
    """Return all that the address asks for as a file."""
    criteria = letter_selection.selected(request)
    if criteria is None:
        return letter_selection.refused(model_admin, request)
    return as_file(slices(criteria, database_for()))


def as_file(letters: Iterable[list[DeadLetter]]) -> StreamingHttpResponse:
    """Return letters, a few at a time, as a response that is sent while they are read."""
    lines = (f"{json.dumps(value(letter), ensure_ascii=True)}\n" for batch in letters for letter in batch)
    response = StreamingHttpResponse(lines, content_type="application/x-ndjson")
    response["Content-Disposition"] = 'attachment; filename="dead-letters.jsonl"'
    return response


def slices(criteria: Criteria, database: str) -> Iterator[list[DeadLetter]]:
    """Yield letters in the order of their deaths, each slice by a statement that has ended before the next line is
    sent: a reader that is kept open would keep SQLite's log from beginning anew.
    """
    after = None
    while batch := list(criteria.letters(database, after)[:SLICE]):
        after = clock.to_instant(batch[-1].died_at), batch[-1].pk
        yield batch


def value(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as one JSON value."""
    try:
        arguments = shown_call(letter)
        json.dumps(arguments)
    except (ValueError, RecursionError):
        arguments = display.unreadable(text_of(letter.payload), display.mask(letter))
    return {
        "id": str(letter.pk),
        **{name: getattr(letter, name) for name in VALUES},
        **{field.name: field.value_from_object(letter) for field in letter._meta.fields if field.name in MOMENTS},
        "arguments": arguments,
        "history": history.read(letter.history),
    }
