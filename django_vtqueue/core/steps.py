"""The steps of a durable task, as they are stored with its job: what is done, the events that came, what it waits for.

``{"done": [record, …], "events": [{"name", "value", "at"}, …], "waiting": {"kind", "name", "until", "since"}}``. The
holder alone writes ``done``, takes events out and begins to wait; senders only add events. Each writes its own paths.

What was done before a loop is apart from that, if it is large: each item writes ``done``. It is a list of records in a
column of its own (``earlier_steps``), and these come first.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

from . import names
from .clock import LAST_INSTANT
from .encoding import decode, dumps
from .job import SHORT
from .text import storable

STEP, SLEEP, EVENT, GATHER, ITERATE = "step", "sleep", "event", "gather", "iterate"
SNOOZE = "snooze"  # a job that is put off: nothing of it is stored
FIRST_LOOK = 300_000_000  # microseconds, at first: a parent looks whether a child has vanished
RAREST_LOOK = 86_400_000_000


class Record(TypedDict, total=False):
    """One step that is done; instants in microseconds. ``children``: ids; ``next``: where a loop goes on.

    ``counted``: that is how many items are done; else it is the key of the last one. ``item``: what ``next`` will be
    when the item under way is done.
    """

    kind: str
    name: str
    began: int
    at: int
    value: Any
    late: bool
    children: list[str]
    next: Any
    item: Any
    counted: bool
    ended: bool


class Waiting(NamedTuple):
    """What a job waits for since an instant, and until when."""

    kind: str
    name: str
    until: int
    since: int

    @property
    def text(self) -> str:
        """It as JSON; without an end ``until`` is null."""
        return dumps({**self._asdict(), "until": None if self.until == LAST_INSTANT else self.until})


class Suspend(BaseException):
    """Raised to leave a task that waits: not an Exception, so that ``except Exception`` does not swallow it."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__(f"The job waits for {waiting.name!r}. Let this pass: it goes on when that has come.")
        self.waiting = waiting


class Steps(NamedTuple):
    """What is stored of the steps of a job. ``earlier``: how many of those that are done are apart."""

    done: list[Record]
    events: list[dict[str, Any]]
    waiting: Waiting | None
    earlier: int = 0


def is_name(name: Any) -> bool:
    """Return whether a step, or an event, can be called so."""
    return names.is_name(name, SHORT)


def read(stored: Any, earlier: Any = None) -> Steps:
    """Return stored steps, given as their text, or as the value that the models have read; raise ValueError if damaged.

    ``earlier``: what is in the column of earlier ones. None: no step was made yet.
    """
    found, first = (decode(each) if isinstance(each, str) else each for each in (stored, earlier))
    parts: Any = {} if found is None else found
    if not isinstance(parts, dict):
        raise ValueError("The stored steps are not an object.")
    lists = first or [], parts.get("done") or [], parts.get("events") or []
    if not all(isinstance(each, list) and all(isinstance(item, dict) for item in each) for each in lists):
        raise ValueError("The stored steps are not lists of objects.")
    before, done, events = lists
    return Steps([*before, *done], events, _waiting(parts.get("waiting")), len(before))


def readable(stored: Any, earlier: Any = None) -> Steps:
    """Return stored steps as ``read`` does; none if they are damaged."""
    try:
        return read(stored, earlier)
    except (ValueError, RecursionError):
        return Steps([], [], None)


def skipped(found: Steps, name: str, value: Any, now: int) -> Steps:
    """Return steps with one more, which was not made: what the job waits for, else a step of this name.

    Raise ValueError if the job waits for something else, or for children, and for what is no name.
    """
    if not is_name(name):
        raise ValueError(f"The name of a step is a text of 1 to {SHORT} characters, not {name!r:.100}.")
    waiting = found.waiting
    if waiting and (waiting.name != name or waiting.kind not in (SLEEP, EVENT)):
        raise ValueError(f"The job waits for {waiting.kind} {waiting.name!r}, so {name!r} cannot be skipped.")
    record = Record(kind=waiting.kind if waiting else STEP, name=name, at=now, value=value)
    return Steps([*found.done, record], found.events, None)


def before(found: Steps, number: int) -> Steps:
    """Return the steps before the one with this number, counted from 1; raise ValueError if there is none.

    What the job waits for is the one behind those that are done.
    """
    if not isinstance(number, int) or not 1 <= number <= len(found.done) + bool(found.waiting):
        raise ValueError(f"There is no step {number!r}: {len(found.done)} are done.")
    return Steps(found.done[: number - 1], found.events, None)


def written(found: Steps) -> dict[str, Any]:
    """Return steps as they are stored."""
    parts: dict[str, Any] = {"done": found.done, "events": found.events}
    if found.waiting:
        parts["waiting"] = found.waiting._asdict()
    return parts


def items_done(record: Mapping[str, Any]) -> int | None:
    """Return how many items of a loop under way are done; None for other steps, and for a loop that goes by keys."""
    done = record.get("next")
    return done if record.get("kind") == ITERATE and record.get("counted") and isinstance(done, int) else None


def _waiting(stored: Any) -> Waiting | None:
    match stored:
        case {"kind": str(kind), "name": str(name), "until": int() | None as until, "since": int(since)} if (
            storable(kind + name) == kind + name
        ):
            return Waiting(kind, name, LAST_INSTANT if until is None else until, since)
    return None


def waiting_of(stored: Any) -> tuple[Waiting, int] | None:
    """Return what a job waits for, given its steps, and how many children it has there; None if they are damaged."""
    found = readable(stored)
    children = found.done[-1].get("children") if found.done else None
    return (found.waiting, len(children) if isinstance(children, list) else 0) if found.waiting else None


def said_to_wait(text: str) -> tuple[Waiting, int] | None:
    """Return the same, given what the engine has found in the steps of a row; see DurableSteps.waits."""
    try:
        waiting, children = decode(text)
    except ValueError:  # an integer with thousands of digits
        return None
    found = _waiting(waiting)
    return (found, children or 0) if found else None


def look_again_at(since: int, now: int) -> int:
    """Return when a parent looks at its children again, less and less often: the end of the last one wakes it before.

    In a test, which lets time pass in a moment, it looks a few times only.
    """
    return now + min(max(FIRST_LOOK, (now - since) // 2), RAREST_LOOK)
