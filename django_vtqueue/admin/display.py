"""How stored values are shown: escaped, with what is secret hidden, and whole even where a row was damaged."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from .. import clock, states
from ..encoding import decode, dumps
from ..engines import backend_options, database_of, options_for
from ..failures import shorten, storable
from ..fields import text_of
from ..masks import HIDDEN, Mask
from ..models import DeadLetter, Job
from ..shown import duration, local, time_of, whole
from ..signatures import mask_of, named

LONGEST = 50_000  # characters of a value that are shown


def moment(value: datetime | None, text: str = "") -> SafeString | str:
    """Return a moment to the second (of today, its time), or ``text`` with the moment behind it."""
    if value is None:
        return text or "-"
    here = local(value)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', here.isoformat(), whole(here), text or time_of(value)
    )


def number(value: int, *, more: bool = False) -> str:
    """Return a count with the separators of the reader's language; ``more``: there are at least as many."""
    return f"{number_format(value, force_grouping=True)}{'+' if more else ''}"


def database() -> str:
    """Return the alias of which the pages show what is in it."""
    return database_of(backend_options())


def task_name(path: str) -> SafeString | str:
    """Return the path of a task, which a narrow column may break after its dots."""
    if not path:
        return _("(raw payload)")
    return format_html_join(mark_safe(".<wbr>"), "{}", ((part,) for part in path.split(".")))


def word_of(job: Job, now: int) -> str:
    """Return the word for a job's state."""
    return states.word(job.state, clock.to_instant(job.visible_at), job.attempts, now)


def timing(job: Job, now: int) -> SafeString | str:
    """Return when a job will run, until when it is held, or when it ended."""
    word, visible_at = word_of(job, now), clock.to_instant(job.visible_at)
    if word == "done":
        ended = job.finished_at or job.visible_at
        return moment(ended, _("finished %s ago") % duration(max(now - clock.to_instant(ended), 0)))
    text = {
        "due": _("due for %s"),
        "scheduled": _("due in %s"),
        "retrying": _("due in %s"),
        "running": _("lease ends in %s"),
        "expired": _("lease ended %s ago"),
    }[word]
    return moment(job.visible_at, text % duration(abs(visible_at - now)))


def mask(entry: Job | DeadLetter) -> Mask:
    """Return what is hidden of a job or dead letter."""
    return mask_of(entry.task_path, entry.queue_name, entry._state.db)


def arguments(entry: Job | DeadLetter) -> SafeString:
    """Return the arguments of a job by the names of the task's parameters, or its raw payload."""
    return laid_out(lambda: call_of(entry), text_of(entry.payload), mask(entry))


def returned(job: Job) -> SafeString:
    """Return the result of a job; it has no arguments, and what is hidden in it has a key."""
    text, own = text_of(job.result), Mask(mask(job).words)
    return laid_out(lambda: own.hide(decode(text)), text, own)


def laid_out(read: Callable[[], Any], text: str, own: Mask) -> SafeString:
    """Return what is read of a stored text; what is no JSON is shown as it is, unless the mask conceals it."""
    try:
        shown = indented(read())
    except (ValueError, RecursionError):
        return format_html(
            '<p class="vtq-damaged">{}</p><pre class="vtq-text">{}</pre>',
            _("Not readable as JSON:"),
            unreadable(text, own),
        )
    return format_html('<pre class="vtq-text">{}</pre>', cut(shown))


def indented(value: Any) -> str:
    """Return JSON laid out for people, as text that can be sent to a browser."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates: only their escapes can be sent
        return json.dumps(value, indent=2)
    return text


def call_of(entry: Job | DeadLetter) -> Any:
    """Return the arguments of a job by the names of the task's parameters, with what is secret hidden.

    Raise ValueError or RecursionError if they are not readable.
    """
    payload = mask(entry).hide(decode(text_of(entry.payload)))
    options = options_for(entry.queue_name, entry._state.db)
    return named(payload, entry.task_path, options.task_modules) if entry.task_path else payload


def searchable(payload: str, own: Mask) -> str:
    """Return a stored payload with what is secret hidden, otherwise as it was stored: what a search may find."""
    try:
        return dumps(own.hide(decode(payload)))
    except (TypeError, ValueError, RecursionError):
        return "" if own.conceals(payload) else payload


def unreadable(text: str, own: Mask) -> str:
    """Return stored text that is no JSON, unless the mask conceals it."""
    return HIDDEN if own.conceals(text) else cut(text)


def cut(value: object) -> str:
    """Return any stored value as text that can be sent to a browser."""
    return storable(shorten(str(value), LONGEST))
