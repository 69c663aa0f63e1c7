"""A job's history: one entry for each ended attempt that did not succeed, kept as a JSON list in its row.

Further entries are no attempts: of each requeue, with the name of the user, and of the end of a job that was cancelled
or has expired before it ran.

The first and the last entries are kept, and those between are only counted, so that a job which is retried for ever
stays small: ``[e1 … e5, {"omitted": 17}, e23 … e67]``.
"""

import json
from typing import Any, TypedDict

from .encoding import dumps
from .failures import Failure

FIRST, LAST = 5, 45
MOST_ATTEMPTS = 1_000_000  # attempts; a larger number was written by hand, and would fill the memory
EMPTY = "[]"
OMITTED = "omitted"
UNREADABLE = "unreadable"

LEASE_EXPIRED = "lease expired"
WORKER_DIED = "worker died"
FAILED = "failed"
RETRY = "retry"
GAVE_UP = "gave up"
RELEASED = "released"
TIMED_OUT = "timed out"
CANCELLED = "cancelled"
EXPIRED = "expired"
REQUEUED = "requeued"
SKIPPED = "step skipped"
REPEATED = "steps repeated"

PARENT_WENT_ON = "Its parent has gone on without it, and does not see how this job ends."

NO_ATTEMPT = 0  # the number of an entry that is no attempt: a requeue, a cancellation, an expiry


class Entry(TypedDict, total=False):
    """An ended attempt; instants in microseconds."""

    number: int
    worker: str
    started: int | None
    ended: int
    outcome: str
    exception_class: str
    message: str
    traceback: str
    omitted: int


def entry(number: int, worker: str, started: int | None, ended: int, outcome: str, failure: Failure | None) -> Entry:
    """Return the entry of an attempt that ended at ``ended`` with ``outcome``."""
    ended_attempt = Entry(number=number, worker=worker, started=started, ended=ended, outcome=outcome)
    if failure:
        ended_attempt["exception_class"] = failure.exception_class
        ended_attempt["message"] = failure.message
        ended_attempt["traceback"] = failure.traceback
    return ended_attempt


def requeued(by: str, now: int) -> Entry:
    """Return the entry of a requeue by a user."""
    return Entry(number=NO_ATTEMPT, worker=by, ended=now, outcome=REQUEUED)


def changed(outcome: str, message: str, by: str, now: int) -> Entry:
    """Return the entry of a change that a user has made to the steps of a durable task."""
    return Entry(number=NO_ATTEMPT, worker=by, ended=now, outcome=outcome, message=message)


def last_requeue(stored: Any) -> Entry | None:
    """Return the entry of the last requeue in a history; see read."""
    return next((item for item in reversed(read(stored)) if item.get("outcome") == REQUEUED), None)


def rebased(text: str, onto: str) -> str:
    """Return the stored ``onto`` with the last entry of ``text``, which is the next attempt there."""
    return append(onto, Entry(**{**read(text)[-1], "number": number(onto)}))


def read(stored: Any) -> list[Entry]:
    """Return the entries of a history, given as its stored text or as the value that the models have read.

    A history that cannot be read becomes one entry that shows it.
    """
    try:
        entries = json.loads(stored) if isinstance(stored, str) else stored
        if isinstance(entries, list) and all(isinstance(item, dict) for item in entries):
            return entries
    except (ValueError, RecursionError):
        pass
    return [unreadable(stored)]


def unreadable(stored: Any) -> Entry:
    """Return the entry that stands for a history which cannot be read, or not be stored again."""
    return Entry(outcome=UNREADABLE, message=str(stored)[:1000])


def append(text: str, ended_attempt: Entry) -> str:
    """Return the stored ``text`` with one more entry, shortened to the limits."""
    entries: list[Any] = [ended_attempt] if text == EMPTY else [*read(text), ended_attempt]
    omitted = sum(count(item) for item in entries if OMITTED in item)
    entries = [item for item in entries if OMITTED not in item]
    surplus = len(entries) - FIRST - LAST
    if surplus > 0:
        omitted += sum(map(count, entries[FIRST : FIRST + surplus]))
        del entries[FIRST : FIRST + surplus]
    if omitted:
        entries.insert(FIRST, Entry(omitted=omitted))
    try:
        return dumps(entries)
    except TypeError:  # a number that is infinite, say
        return dumps([unreadable(text), ended_attempt])


def count(item: Entry) -> int:
    """Return the number of attempts that an item of the list stands for; one that was given back has not been used."""
    if item.get("number") == NO_ATTEMPT or item.get("outcome") == RELEASED:
        return 0
    omitted = item.get(OMITTED, 1)
    return min(omitted, MOST_ATTEMPTS) if isinstance(omitted, int) and omitted > 0 else 1


def workers(entries: list[Entry]) -> list[str]:
    """Return the worker of each ended attempt; "" for an attempt whose entry was left out."""
    names: list[str] = []
    for item in entries:
        names += ["" if OMITTED in item else str(item.get("worker", ""))] * count(item)
    return names


def number(stored: Any) -> int:
    """Return the number of the next attempt after those of a history, over the job's whole life; see read."""
    return 1 if stored == EMPTY else 1 + sum(count(item) for item in read(stored))


def crashes(text: str) -> int:
    """Return how many attempts in the stored ``text`` ended because their worker died or their lease ended."""
    return 0 if text == EMPTY else sum(item.get("outcome") in (WORKER_DIED, LEASE_EXPIRED) for item in read(text))
