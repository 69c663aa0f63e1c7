"""Dead letters as JSON lines: what their pages show, with what is secret hidden."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from ..core import clock, history
from ..fields import text_of
from ..models import DeadLetter
from ..queue.dead_letters import Criteria
from ..tasks.signatures import shown_call
from . import display, selection
from .job_base import EntryAdmin

SLICE = 200  # letters that are read at a time
COLUMNS = ("queue_name", "task_path", "priority", "claims", "attempts", "max_attempts", "unique_key", "exception_class")
MORE = ("message", "fingerprint", "acknowledged_by", "note")
MOMENTS = ("enqueued_at", "died_at", "acknowledged_at")


def page(model_admin: EntryAdmin, request: HttpRequest) -> HttpResponseBase:
    """Return all that the address asks for as a file."""
    criteria = selection.selected(request)
    if criteria is None:
        return selection.refused(model_admin, request)
    return as_file(slices(criteria, display.database()))


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
        **{name: getattr(letter, name) for name in (*COLUMNS, *MORE)},
        **{field.name: field.value_from_object(letter) for field in letter._meta.fields if field.name in MOMENTS},
        "arguments": arguments,
        "history": history.read(letter.history),
    }
