"""Rows as tests say them."""

from typing import Any

from django_vtqueue.core import states
from django_vtqueue.fields import StoredText

JSON = ("payload", "history", "result")


def in_columns(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a job with its ``visible_at`` where the table has it: the end of the lease of a held one,
    the moment at which one wakes that is not in the line, the place in the line of any other.
    """
    visible_at, enqueued_at, state = row["visible_at"], row["enqueued_at"], row.get("state", states.READY)
    place = {
        "due_at": enqueued_at if state in (states.RUNNING, states.BLOCKED) else visible_at,
        "wake_at": visible_at if state in states.ASIDE else None,
        "lease_until": visible_at if state == states.RUNNING else None,
    }
    return as_stored({key: value for key, value in row.items() if key != "visible_at"} | place)


def as_stored(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row with the texts of its columns of JSON as they shall stand in the table."""
    return {key: StoredText(value) if key in JSON and isinstance(value, str) else value for key, value in row.items()}
