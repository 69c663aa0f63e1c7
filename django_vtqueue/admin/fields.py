"""Fields of the forms: a queue that a backend allows, and JSON whose hidden parts stay as they are stored."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from ..conf import configured
from ..encoding import decode, encode
from ..engines import backend_options, database_of
from ..publishing import LONGEST_NAME
from .display import HIDDEN


class QueueField(forms.CharField):
    """The name of a queue that the settings allow in the database of the workers."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=LONGEST_NAME, **kwargs)

    def validate(self, value: Any) -> None:
        super().validate(value)
        database = database_of(backend_options())
        entries = [entry for entry in configured().values() if database_of(entry) == database]
        if value and entries and not any(entry.serves(value) for entry in entries):
            names = sorted(name for entry in entries for name in {*entry.queues, *entry.queue_options})
            raise ValidationError(
                _("The settings know no queue “%(queue)s”; allowed are: %(names)s."),
                params={"queue": value, "names": ", ".join(names)},
            )


def restored(value: Any, shown: Any, stored: Any) -> Any:
    """Return an edited value with what is stored wherever it was shown as hidden and was left so.

    ``shown``: the stored value as the form showed it. Raise ValidationError where dots stand for nothing.
    """
    if value == HIDDEN and isinstance(value, str):
        if shown == HIDDEN:
            return stored
        raise ValidationError(
            _("%(dots)s stands for a stored value, but none is hidden here."), params={"dots": HIDDEN}
        )
    if isinstance(value, dict):
        pairs = (shown, stored) if isinstance(shown, dict) and isinstance(stored, dict) else ({}, {})
        return {key: restored(item, pairs[0].get(key), pairs[1].get(key)) for key, item in value.items()}
    if isinstance(value, list):
        lists = (shown, stored) if isinstance(shown, list) and isinstance(stored, list) else ([], [])
        old = [*zip(*lists, strict=False)][: len(value)]
        old += [(None, None)] * (len(value) - len(old))
        return [restored(item, *pair) for item, pair in zip(value, old, strict=True)]
    return value


def json_of(text: str) -> Any:
    """Return the value of JSON that somebody typed; raise ValidationError with what is wrong with it."""
    try:
        value = decode(text)
        encode(value)
    except (TypeError, ValueError) as error:
        raise ValidationError(_("This is not JSON: %(error)s"), params={"error": error}) from error
    return value
