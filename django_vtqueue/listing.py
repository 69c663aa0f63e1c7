"""What a list of jobs or of dead letters is asked for, and what comes of it; it is read by key, in slices."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

STEPS = "django_vtqueue.requeueing.step"  # the task of a requeue's own jobs, which no list shows
Key = list[int | str]  # where a row stands in the order of its list; addresses bring it back, or anything else


@dataclass(frozen=True)
class Sought:
    """Which rows; None and "" ask for nothing. ``since`` and ``until``: instants, of the enqueueing or of the death."""

    word: str = ""  # of states.WORDS
    queue_name: str | None = None
    task_path: str | None = None
    worker_id: str | None = None
    exception_class: str | None = None
    fingerprint: str | None = None
    acknowledged: bool | None = None
    since: int | None = None
    until: int | None = None
    text: str = ""


class Found(NamedTuple):
    """A row of a slice; without an id it is the last one that was looked at, and there may be more beyond.

    ``payload``: only of a row in which nothing else has the text that is sought; ``queue_name``: where one is sought.
    """

    id: str | None
    key: Key
    task_path: str | None = None
    payload: str | None = None
    queue_name: str | None = None


Fits = Callable[[Found], bool]


class Count(NamedTuple):
    """How many rows there are; ``more``: at least, for not all were looked at."""

    rows: int
    more: bool


def in_json(text: str) -> str:
    """Return a text as it stands within a stored payload."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def key_of(key: Key | None, *kinds: type) -> Key | None:
    """Return a key if it has what these kinds say; None, which is the beginning of a list, if it has not."""
    fits = key and len(key) == len(kinds) and all(map(isinstance, key, kinds))
    return key if fits else None
