"""Jobs and dead letters as a command line names them: by an id, or by the end of one that the log shows."""

import re
from collections.abc import Sequence
from typing import TypeVar

from django.core.management.base import CommandError
from django.db.models import QuerySet

from ..models import Entry

SHORTEST = 8  # digits of an id, as the log has them
SHOWN = 5  # ids of an error
E = TypeVar("E", bound=Entry)


def digits_of(given: str) -> str:
    """Return what was typed as the last digits of an id; raise CommandError if it cannot be that."""
    digits = re.sub(r"^…|^\.\.\.|-", "", given.lower())
    if not re.fullmatch(rf"[0-9a-f]{{{SHORTEST},32}}", digits):
        raise CommandError(f"{given!r} is no id: give all of it, or its last {SHORTEST} hexadecimal digits or more.")
    return digits


def ending(entries: QuerySet[E], digits: str) -> QuerySet[E]:
    """Return those whose ids end so, the oldest first."""
    return entries.filter(pk__endswith=digits).order_by("pk")


def some(entries: QuerySet[E], digits: str) -> list[E]:
    """Return those whose ids end so, but no more than it takes to say that they are too many."""
    return list(ending(entries, digits)[: SHOWN + 1])


def only(found: Sequence[E], given: str, what: str) -> E | None:
    """Return the one that was found, None if there was none; raise CommandError for several."""
    if len(found) > 1:
        ids = ", ".join(str(entry.pk) for entry in found[:SHOWN]) + (", …" if found[SHOWN:] else "")
        raise CommandError(f"{given} is the end of several {what}; give more digits: {ids}")
    return found[0] if found else None
