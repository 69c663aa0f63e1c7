"""Stored values as pages show them: escaped, with secrets hidden, and whole even where a row was damaged."""

import json
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Any

from django.contrib import admin
from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from ..core import clock, copies, unique
from ..core.clock import LAST_INSTANT
from ..core.encoding import decode
from ..core.humanize import duration, local, time_of, whole
from ..core.ids import shown_worker
from ..core.masks import MASKED, Mask
from ..core.text import printable, shorten, storable
from ..engines import database_now
from ..fields import text_of
from ..inspection.state import is_overdue, state_word, waiting_sentence
from ..models import Job
from ..models.jobs import JobOrLetter
from ..tasks.signatures import in_names, mask_of, shown_call

LONGEST = 50_000  # characters of a value that are shown
SUMMARY, ARGUMENT = 100, 40  # characters of the arguments in a list, and of one of them


def now_of(row: Any) -> int:
    """Return the instant as of which a page shows a row: all that it says of the row is as of one instant."""
    if "as_of" not in vars(row):
        row.as_of = database_now()
    return int(row.as_of)


def moment(value: datetime | None, text: str = "") -> SafeString | str:
    """Return a moment to the second (of today, its time), or ``text`` with the moment behind it."""
    if value is None:
        return text or "-"
    here = local(value)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        here.isoformat(),
        f"{whole(here)} {here.tzname() or ''}",
        text or time_of(value),
    )


def moment_of(name: str, description: Any) -> Callable[[Any, Any], SafeString | str]:
    """Return a column of the admin: the moment in a field."""

    @admin.display(description=description)
    def column(model_admin: Any, row: Any) -> SafeString | str:
        return moment(getattr(row, name))

    return column


def number(value: int, *, more: bool = False) -> str:
    """Return a count with the separators of the reader's language; ``more``: there are at least as many."""
    return f"{number_format(value, force_grouping=True)}{'+' if more else ''}"


def task_name(path: str) -> SafeString | str:
    """Return the path of a task, which a narrow column may break after its dots."""
    if not path:
        return _("(raw payload)")
    return format_html_join(mark_safe(".<wbr>"), "{}", ((part,) for part in path.split(".")))


def badge(word: str, text: object) -> SafeString:
    """Return a word in the colour of a state of jobs."""
    return format_html('<span class="vtq-word vtq-{}">{}</span>', word, text)


def exception(path: str) -> SafeString:
    """Return the name of an exception's class, with its path for those who point at it."""
    return format_html('<strong title="{}">{}</strong>', path, path.rpartition(".")[2])


def progress(done: float, most: float, name: object, text: object) -> SafeString:
    """Return a bar that shows how far something is, with a text beside it; ``name``: of the bar, where none sees it."""
    bar = '<progress class="vtq-progress" max="{}" value="{}" aria-label="{}"></progress> {}'
    return format_html(bar, most, done, name, text)


def timing(job: Job, now: int) -> SafeString | str:
    """Return when a job will run, for how long it has run, how far it is and where, or when it ended."""
    word, visible_at = state_word(job, now), clock.to_instant(job.visible_at)
    if job.start_by and is_overdue(job, now):
        return moment(job.start_by, _("expired %s ago") % duration(now - clock.to_instant(job.start_by)))
    if word == "running":
        return under_way(job, now)
    if word == "done":
        ended = job.finished_at or job.visible_at
        return moment(ended, _("finished %s ago") % duration(max(now - clock.to_instant(ended), 0)))
    if word == "expired" and copies.running(job.copies, now):
        return under_way(job, now)
    if waits := waiting_sentence(job, now):
        return waits if visible_at >= LAST_INSTANT else moment(job.visible_at, waits)
    text = {
        "due": _("due for %s"),
        "scheduled": _("due in %s"),
        "retrying": _("due in %s"),
        "waiting": _("due in %s"),  # with damaged steps
        "expired": _("lost by its worker %s ago"),
    }[word]
    return moment(job.visible_at, text % duration(abs(visible_at - now)))


def unique_key(entry: JobOrLetter) -> SafeString | str:
    """Return a job's unique key, and until when no other job has it; just the key of one that is done."""
    if entry.unique_key is None:
        return "-"
    if isinstance(entry, Job) and entry.finished_at:
        return entry.unique_key
    until = {
        unique.DONE: _("until it is done"),
        unique.START: _("until it starts"),
        unique.STARTED: _("free since it has started"),
    }
    return format_html('{} <span class="vtq-quiet">{}</span>', entry.unique_key, until.get(entry.unique_until, ""))


def under_way(job: Job, now: int) -> SafeString | str:
    """Return for how long a job has run, how far it is, and where."""
    worker = shown_worker(job.worker_id)
    if job.started_at is None:
        return _("waits for a slot of %(worker)s") % {"worker": worker}
    started = clock.to_instant(job.started_at)
    if len(running := copies.running(job.copies, now)) > 1:
        started, worker = min(copy.since for copy in running), _("%(number)s copies") % {"number": len(running)}
    reached = "" if job.progress is None else f"{percent(job.progress)} %, "
    return moment(clock.from_instant(started), f"{duration(max(now - started, 0))}, {reached}{worker}")


def percent(progress: float) -> int:
    """Return how far a job is, in percent."""
    return round(min(max(progress, 0), 1) * 100)


def lease(job: Job, now: int) -> SafeString | str:
    """Return until when a job is its worker's alone."""
    left = clock.to_instant(job.visible_at) - now
    text = _("lease ends in %s") if left > 0 else _("lease ended %s ago")
    return moment(job.visible_at, text % duration(abs(left)))


def mask(entry: JobOrLetter) -> Mask:
    """Return what is hidden of a job or dead letter."""
    return mask_of(entry.task_path, entry.queue_name, entry._state.db)


def arguments(entry: JobOrLetter) -> SafeString:
    """Return the arguments of a job by the names of the task's parameters, or its raw payload."""
    return laid_out(lambda: shown_call(entry), text_of(entry.payload), mask(entry))


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
    return copyable(format_html('<pre class="vtq-text">{}</pre>', cut(shown)))


def copyable(shown: SafeString) -> SafeString:
    """Return markup with a button that copies what its ``pre`` and ``code`` elements have; only a script shows it."""
    button = format_html(
        '<button type="button" class="vtq-button vtq-copy" data-done="{}">{}</button>', _("Copied"), _("Copy")
    )
    return format_html('<div class="vtq-copyable">{}{}</div>', button, shown)


def summary(payload: str | int | None, task_path: str, queue_name: str, database: str, own: Mask) -> str:
    """Return the arguments of a job in one short line, with what is secret hidden.

    ``payload``: the stored text, or how many characters it has if those are too many to be read for a list.
    """
    if not isinstance(payload, str):
        return "" if payload is None else _("%s characters") % number(payload)
    try:
        call = in_names(own.hide(decode(payload)), task_path, queue_name, database)
    except (ValueError, RecursionError):
        return MASKED if own.conceals(payload) else short(payload, SUMMARY)
    match call:
        case {"args": list(args), "kwargs": dict(kwargs), **others} if task_path and not others:  # it is not known here
            parts = [*map(dumps_shown, args), *(f"{name}={dumps_shown(value)}" for name, value in kwargs.items())]
            return short(", ".join(short(part, ARGUMENT) for part in parts[:SUMMARY]), SUMMARY)
    if isinstance(call, dict):
        items = islice(call.items(), SUMMARY)
        return short(", ".join(f"{name}={short(dumps_shown(value), ARGUMENT)}" for name, value in items), SUMMARY)
    return short(dumps_shown(call), SUMMARY)


def dumps_shown(value: Any) -> str:
    """Return JSON in one line; a plain text without its quotes."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def short(text: str, length: int) -> str:
    """Return text in one line, cut at its end."""
    line = " ".join(text[: length * 2].split())
    return printable(storable(line if len(line) <= length and len(text) <= length * 2 else f"{line[: length - 1]}…"))


def indented(value: Any) -> str:
    """Return JSON laid out for people, as text that can be sent to a browser."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates: only their escapes can be sent
        return json.dumps(value, indent=2)
    return text


def unreadable(text: str, own: Mask) -> str:
    """Return stored text that is no JSON, unless the mask conceals it."""
    return MASKED if own.conceals(text) else cut(text)


def cut(value: object) -> str:
    """Return any stored value as text that can be sent to a browser, and turns no line there."""
    return printable(storable(shorten(str(value), LONGEST)))
