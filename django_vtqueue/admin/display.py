"""How stored values are shown: escaped, with what is secret hidden, and whole even where a row was damaged."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from inspect import Parameter, Signature, signature
from typing import Any

from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from .. import clock, states
from ..compat import Task
from ..conf import Options
from ..encoding import decode, dumps
from ..engines import backend_options, database_of
from ..failures import shorten, storable
from ..models import DeadLetter, Job
from ..shown import duration, local, time_of, whole
from ..tasks import find_task

HIDDEN = "••••"
LONGEST = 50_000  # characters of a value that are shown
POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


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


def arguments(entry: Job | DeadLetter, options: Options) -> SafeString:
    """Return the arguments of a job by the names of the task's parameters, or its raw payload."""
    return laid_out(lambda: call_of(entry, options), entry.payload, options.mask)


def stored_json(text: str, words: Sequence[str]) -> SafeString:
    """Return stored JSON, laid out and masked."""
    return laid_out(lambda: masked(decode(text), words), text, words)


def laid_out(read: Callable[[], Any], text: str, words: Sequence[str]) -> SafeString:
    """Return what is read of a stored text; what is no JSON is shown as it is, unless it names what is masked."""
    try:
        shown = indented(read())
    except (ValueError, RecursionError):
        shown = unreadable(text, words)
        return format_html(
            '<p class="vtq-damaged">{}</p><pre class="vtq-text">{}</pre>', _("Not readable as JSON:"), shown
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


def call_of(entry: Job | DeadLetter, options: Options) -> Any:
    """Return the arguments of a job by the names of the task's parameters, with what is secret hidden.

    Raise ValueError or RecursionError if they are not readable.
    """
    payload = hidden(decode(entry.payload), options.mask, secret_positions(entry.task_path, options))
    return named(payload, entry.task_path, options.task_modules) if entry.task_path else payload


def searchable(payload: str, words: Sequence[str], positions: Sequence[bool]) -> str:
    """Return a stored payload with what is secret hidden, otherwise as it was stored: what a search may find."""
    try:
        return dumps(hidden(decode(payload), words, positions))
    except (TypeError, ValueError, RecursionError):
        return "" if is_secret(payload, words) else payload


def hidden(payload: Any, words: Sequence[str], positions: Sequence[bool]) -> Any:
    """Return a payload with ``HIDDEN`` for what is secret by its key or, among ``args``, by its position."""
    value = masked(payload, words)
    if any(positions) and isinstance(value, dict) and isinstance(args := value.get("args"), list):
        last = len(positions) - 1
        value["args"] = [HIDDEN if positions[min(number, last)] else item for number, item in enumerate(args)]
    return value


def secret_positions(task_path: str, options: Options) -> list[bool]:
    """Return whether the name of a task's argument is masked, for each position; at last, for all that come behind.

    Too many arguments were meant for another version of the task: if this one takes a secret, they may be one.
    """
    found = positional(task_path, options.task_modules) if task_path else []
    secret = [is_secret(parameter.name, options.mask) for parameter in found]
    return secret if found and found[-1].kind is Parameter.VAR_POSITIONAL else [*secret, any(secret)]


def is_secret(name: str, words: Sequence[str]) -> bool:
    """Return whether what has this name is hidden."""
    return any(word.lower() in name.lower() for word in words)


def unreadable(text: str, words: Sequence[str]) -> str:
    """Return stored text that is no JSON, unless it names what is masked."""
    return HIDDEN if is_secret(text, words) else cut(text)


def cut(value: object) -> str:
    """Return any stored value as text that can be sent to a browser."""
    return storable(shorten(str(value), LONGEST))


def masked(value: Any, words: Sequence[str]) -> Any:
    """Return a JSON value with ``HIDDEN`` for all that stands under a key which contains one of ``words``."""
    if isinstance(value, dict):
        return {key: HIDDEN if is_secret(key, words) else masked(item, words) for key, item in value.items()}
    return [masked(item, words) for item in value] if isinstance(value, list) else value


def named(payload: Any, task_path: str, task_modules: Sequence[str]) -> Any:
    """Return the payload of a call with its positional arguments by name.

    Where that is impossible (the task is gone, they do not fit) it is returned as it was stored.
    """
    match payload:
        case {"args": list(args), "kwargs": dict(kwargs)}:
            found = positional(task_path, task_modules)
            names = [parameter.name for parameter in found if parameter.kind is not Parameter.VAR_POSITIONAL]
            by_name = dict(zip(names, args, strict=False))
            if len(by_name) == len(args) and not by_name.keys() & kwargs.keys():
                return by_name | kwargs
    return payload


def positional(task_path: str, task_modules: Sequence[str]) -> list[Parameter]:
    """Return the positional parameters of a task; none if it is gone or its module does not import."""
    try:
        task = find_task(task_path, tuple(task_modules))
        found = [each for each in signature(task.func).parameters.values() if each.kind in POSITIONAL]
    except Exception:
        return []
    return found[1:] if task.takes_context else found


def signature_of(task: Task, words: Sequence[str]) -> Signature:
    """Return the signature of a task as those see it who call it: without its context, and without secret defaults."""
    whole = signature(task.func)
    parameters = [
        parameter.replace(default=HIDDEN)
        if parameter.default is not Parameter.empty and is_secret(parameter.name, words)
        else parameter
        for parameter in whole.parameters.values()
    ]
    return whole.replace(parameters=parameters[1:] if task.takes_context else parameters)
