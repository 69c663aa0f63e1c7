"""Rows as tests say them."""

from typing import Any

from django_vtqueue.core import states
from django_vtqueue.fields import StoredText

JSON = ("payload", "history", "result")


def in_columns(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a job with its ``visible_at`` where the table has it: the end of the lease of a held one,
    the place in the line of any other.
    """
    visible_at = row["visible_at"]
    held = row.get("state") == states.RUNNING
    place = {"due_at": row["enqueued_at"] if held else visible_at, "lease_until": visible_at if held else None}
    return as_stored({key: value for key, value in row.items() if key != "visible_at"} | place)


def as_stored(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row with the texts of its columns of JSON as they shall stand in the table."""
    return {key: StoredText(value) if key in JSON and isinstance(value, str) else value for key, value in row.items()}
