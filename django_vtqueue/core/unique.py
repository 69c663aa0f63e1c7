"""Unique keys: until when a job has its key to itself, and what becomes of another one that is published with it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

DONE: Final = "done"  # while it waits or runs
START = "start"  # while it waits: another one may be published when it has started
STARTED = "started"  # as stored: it was unique until its start

KEEP: Final = "keep"  # the job that has the key stays as it is
REPLACE = "replace"  # if it waits it becomes the new one
ERROR = "error"  # DuplicateJob is raised, and nothing of the call is stored

# With REPLACE, the columns of the waiting job that get the values of the new one.
REPLACED = (
    "priority",
    "max_attempts",
    "lease_us",
    "unique_until",
    "concurrency_key",
    "ordered",
    "rate_key",
    "enqueued_at",
    "start_by",
    "due_at",
    "wake_at",
    "state",
    "payload",
)

LONGEST = 255  # characters of a key
Keys = Callable[[Any], str | None] | Sequence[str | None]  # of payloads


def checked_key(key: Any, what: str = "unique key") -> str | None:
    """Return a key, None for none; raise TypeError or ValueError, which say ``what``, for one that no job can have."""
    if key is None:
        return None
    if not isinstance(key, str):
        raise TypeError(f"{named(what)} is a text, or None for none, not {key!r:.100}.")
    if not 0 < len(key) <= LONGEST or "\0" in key or not is_encodable(key):
        raise ValueError(
            f"{named(what)} has 1 to {LONGEST} characters, no NUL among them, not {len(key)}: {key!r:.100}. "
            "Make a longer one shorter with a hash."
        )
    return str(key)


def named(what: str) -> str:
    """Return the name of a kind of keys with its article."""
    return f"{'An' if what.startswith('o') else 'A'} {what}"


def is_encodable(text: str) -> bool:
    """Return whether a text can be stored: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def keys_of(payloads: Sequence[Any], given: Keys | None, option: str = "unique_key") -> list[str | None] | None:
    """Return the keys of payloads, as a callable or a list gives them; None without any; ``option``: for errors."""
    if given is None:
        return None
    if isinstance(given, str | bytes | Mapping) or not (callable(given) or isinstance(given, Iterable)):
        raise TypeError(f"{option} is {given!r}, but must be a callable, or a list with a key for each payload.")
    what = option.replace("_", " ")
    keys = [checked_key(key, what) for key in (map(given, payloads) if callable(given) else given)]
    if len(keys) != len(payloads):
        raise ValueError(f"{option} has {len(keys)} keys for {len(payloads)} payloads; give one for each, or None.")
    return keys
