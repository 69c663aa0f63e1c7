"""The names of queues. Those of reserved queues are the library's own: leaders and time slots are their rows."""

from typing import Any

from .text import shown, storable

LONGEST_NAME = 255
HELD = LEASE, SLOTS = ("lease:", "slots:")  # their rows are held by instances
MOVES = "move:"  # their rows have what is under way to another database
RESERVED_PREFIXES = (*HELD, MOVES)  # what the names of reserved queues begin with


def is_reserved(queue_name: str) -> bool:
    """Return whether a queue is reserved: no user publishes into it, and its rows are held and never done."""
    return queue_name.startswith(RESERVED_PREFIXES)


def refusal(queue_name: str) -> str:
    """Return a sentence that says why nothing is done with a reserved queue."""
    return (
        f"Queue {queue_name!r} is reserved for Lease and SlotCycle, which hold its rows, and for moves to another "
        "database: nothing is published into it, claimed, paused or changed. The name of another queue does not begin "
        f"with {' or '.join(map(repr, RESERVED_PREFIXES))}."
    )


def reserved_name(prefix: str, name: str) -> str:
    """Return the reserved queue of a lease or a cycle; raise ValueError if none can be called ``name``."""
    longest = LONGEST_NAME - len(prefix)
    if not is_name(name, longest):
        raise ValueError(f"The name is a text of {name_rule(longest)}, not {shown(name)}.")
    return prefix + name


def is_name(name: Any, longest: int = LONGEST_NAME) -> bool:
    """Return whether every database stores this as a name."""
    return isinstance(name, str) and 0 < len(name) <= longest and storable(name) == name


def name_rule(longest: int = LONGEST_NAME) -> str:
    """Return what ``is_name`` allows, for an error."""
    return f"1 to {longest} characters, without NUL and half a surrogate pair"
