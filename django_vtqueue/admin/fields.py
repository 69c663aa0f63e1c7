"""Fields of the forms: a queue that a backend allows, a priority, JSON whose hidden parts stay as they are stored."""

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.encoding import decode, encode
from ..core.masks import MASKED, Mask
from ..core.names import LONGEST_NAME, is_reserved
from ..engines import database_for, engine_for, named_queues, options_of_database
from ..queue.arguments import MAX_PRIORITY, MIN_PRIORITY
from ..tasks.compat import Task
from ..tasks.signatures import bind, signature_of

CHOICES = 100  # names that are offered
PRIORITY_HELP = gettext_lazy("A whole number from -100 to 100; higher ones run first.")


class Suggestions(forms.TextInput):
    """A text for which the browser offers what is known by the time the form is shown."""

    template_name = "vtqueue/suggestions.html"

    def __init__(self, known: Callable[[], list[str]], **attrs: Any) -> None:
        super().__init__(attrs)
        self.known = known

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context = super().get_context(name, value, {**attrs, "list": f"suggestions-{name}"})
        return {**context, "suggestions": self.known()}


def queues() -> list[str]:
    """Return the names of queues that can be offered."""
    database = database_for()
    found = named_queues(database)
    if all(entry.queues for entry in options_of_database(database)):
        return sorted(found)
    return sorted({*found, *engine_for(database).queue_names(CHOICES)})


def refuse_reserved(queue_name: str) -> None:
    """Raise ValidationError for the name of a reserved queue."""
    if is_reserved(queue_name):
        text = _("Queue “%(queue)s” is reserved for leases and time slots.")
        raise ValidationError(text, params={"queue": queue_name})


class QueueField(forms.CharField):
    """The name of a queue that the settings allow in the database of the workers."""

    widget = Suggestions(queues)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            **{
                "label": gettext_lazy("Queue"),
                "max_length": LONGEST_NAME,
                "strip": False,
                "empty_value": None,
                **kwargs,
            }
        )

    def validate(self, value: Any) -> None:
        super().validate(value)
        refuse_reserved(value or "")
        database = database_for()
        entries = options_of_database(database)
        if value and entries and not any(entry.serves(value) for entry in entries):
            raise ValidationError(
                _("The settings allow no queue “%(queue)s”; they name these: %(names)s."),
                params={"queue": value, "names": ", ".join(sorted(named_queues(database)))},
            )


class PriorityField(forms.IntegerField):
    """A priority as the queue has them."""

    def __init__(self, **kwargs: Any) -> None:
        own = {"label": gettext_lazy("Priority"), "help_text": PRIORITY_HELP}
        super().__init__(min_value=MIN_PRIORITY, max_value=MAX_PRIORITY, **(own | kwargs))


def call_of(value: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the named arguments of a call as people write it; raise ValidationError if it is none.

    It is a list, an object by the names of the parameters, or ``{"args": […], "kwargs": {…}}``.
    """
    match value:
        case list():
            return value, {}
        case {"args": list(args), "kwargs": dict(kwargs), **others} if not others:
            return args, kwargs
        case dict():
            return [], value
    raise ValidationError(_("Give a list or an object."))


def check_call(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], mask: Mask) -> None:
    """Raise ValidationError unless a task takes these arguments."""
    try:
        bind(task, args, kwargs)
    except TypeError as error:
        text = _("The task does not take these arguments: %(error)s. It is %(call)s.")
        call = f"{task.name}{signature_of(task, mask)}"
        raise ValidationError(text, params={"error": error, "call": call}) from error


def restored(value: Any, shown: Any, stored: Any) -> Any:
    """Return an edited value with what is stored wherever it was shown as hidden and was left so.

    ``shown``: the stored value as the form showed it. Raise ValidationError where dots stand for nothing.
    """
    if value == MASKED and isinstance(value, str):
        if shown == MASKED:
            return stored
        raise ValidationError(
            _("%(dots)s stands for a stored value, but none is hidden here."), params={"dots": MASKED}
        )
    if isinstance(value, dict):
        pairs = (shown, stored) if isinstance(shown, dict) and isinstance(stored, dict) else ({}, {})
        return {key: restored(item, pairs[0].get(key), pairs[1].get(key)) for key, item in value.items()}
    if isinstance(value, list):
        lists = (shown, stored) if isinstance(shown, list) and isinstance(stored, list) else ([], [])
        changed = sum(map(operator.ne, value, lists[0]))  # one may have been, in its place
        moved = len(value) != len(lists[0]) or changed > 1
        if moved and sum(map(hides, lists[0])) > 1 and hides(value):
            raise ValidationError(
                _("It is not clear which %(dots)s is which in a list with other or moved entries: type those values."),
                params={"dots": MASKED},
            )
        return [restored(*each) for each in islice(zip_longest(value, *lists), len(value))]
    return value


def hides(value: Any) -> bool:
    """Return whether something in a value is shown as hidden."""
    if isinstance(value, dict | list):
        return any(map(hides, value.values() if isinstance(value, dict) else value))
    return bool(value == MASKED)


def json_of(text: str) -> Any:
    """Return the value of JSON that was typed; raise ValidationError with what is wrong with it."""
    try:
        value = decode(text)
        encode(value)
    except (TypeError, ValueError) as error:
        raise ValidationError(_("This is not JSON: %(error)s"), params={"error": error}) from error
    return value
