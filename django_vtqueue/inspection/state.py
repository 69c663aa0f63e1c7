"""The word for the state of a job or a dead letter, as pages and commands show it."""

from ..core import states
from ..core.clock import to_instant
from ..models import DeadLetter, Job
from .waiting import is_parked, waits_of


def state_word(entry: Job | DeadLetter, now: int) -> str:
    """Return the word of states.WORDS for a job or dead letter as it was read; ``now``: an instant.

    A job that was to start by now, and has not, is "expired" as one is whose lease has ended.
    """
    if isinstance(entry, DeadLetter):
        return "dead"
    if is_overdue(entry, now):
        return "expired"
    word = states.word(entry.state, to_instant(entry.visible_at), entry.attempts, now)
    if word not in ("scheduled", "retrying"):
        return word
    return "parked" if is_parked(entry) else "waiting" if waits_of(entry) else word


def is_overdue(entry: Job | DeadLetter, now: int) -> bool:
    """Return whether a job waits that was to start by now, so that it is never run."""
    if not isinstance(entry, Job) or entry.state != states.READY or entry.start_by is None:
        return False
    return to_instant(entry.start_by) <= now
