"""The arguments of a publish, and of what people do with queues: names, payloads, priorities, who it was."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.names import is_name, is_reserved, name_rule, refusal
from ..core.text import shown, storable
from ..engines import named_queues, options_of_database

MIN_PRIORITY, MAX_PRIORITY = -100, 100
LONGEST_BY = 150  # characters of the name of a user


def checked_queue_name(name: str) -> str:
    """Return ``name``; raise ValueError if no queue of a user can be called so."""
    if not is_name(name):
        raise ValueError(f"A queue's name is a text of {name_rule()}, not {name!r}.")
    if is_reserved(name):
        raise ValueError(refusal(name))
    return name


def served_queue_name(name: str, database: str | None = None) -> str:
    """Return ``name``; raise ValueError if no backend (of a database) has such a queue, so that no worker serves it."""
    checked_queue_name(name)
    entries = options_of_database(database)
    if entries and not any(entry.serves(name) for entry in entries):
        raise ValueError(
            f"TASKS has no queue {name!r}; its queues are {', '.join(sorted(named_queues(database)))}. Add it to "
            "QUEUES, where [] allows any."
        )
    return name


def checked_payloads(payloads: Iterable[Any]) -> list[Any]:
    """Return payloads as a list; raise TypeError for what is one payload: its letters, or its keys, are none."""
    if isinstance(payloads, str | bytes | bytearray | Mapping) or not isinstance(payloads, Iterable):
        raise TypeError(f"publish_many takes a list of payloads, not {shown(payloads)}: publish takes one payload.")
    return list(payloads)


def checked_by(by: str) -> str:
    """Return who does something, as it is stored; raise TypeError for what is no text."""
    if not isinstance(by, str):
        raise TypeError(f"by is {shown(by)}, but must be a text: the name of who does it.")
    return storable(by)[:LONGEST_BY]


def checked_text(value: str, longest: int, name: str) -> str:
    """Return a text of so many characters or less, as it is stored; raise TypeError or ValueError for any other."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, but must be a text.")
    value = storable(value)
    if len(value) > longest:
        raise ValueError(f"{name} has {len(value)} characters, but at most {longest} are kept; shorten it.")
    return value


def checked_priority(priority: int) -> int:
    """Return ``priority``; raise ValueError if it is not a whole number from -100 to 100."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        raise ValueError(f"priority is {priority!r}, but must be a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}.")
    return priority
