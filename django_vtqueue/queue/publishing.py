"""Publishing: what a payload and a task have in common on their way into the table."""

from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from django.db import OperationalError
from django.utils import timezone

from ..conf import Options
from ..core import clock
from ..core.humanize import time_of
from ..core.job import NewJobs
from ..core.names import LONGEST_NAME, is_reserved, refusal
from ..core.unique import KEEP
from ..engines import Engine, Trouble, engine_for
from ..exceptions import PayloadTooLarge
from .depth import admitted
from .doorbell import ring, ring_after_commit
from .schema import mismatch
from .unique import Duplicates, insert_with_keys

MIN_PRIORITY, MAX_PRIORITY = -100, 100


def store(
    new: NewJobs,
    database: str,
    options: Options,
    timeout: float | None = None,
    *,
    on_duplicate: str = KEEP,
    limited: bool = True,
) -> Duplicates:
    """Insert new jobs in the caller's transaction, or in one of their own, and ring the doorbells after the commit.

    Return those that were not stored, for there is a job with their unique key; see insert_with_keys. ``timeout``: see
    ``depth.admitted``; ``limited``: whether ``max_depth`` counts. Raise PayloadTooLarge if one of the payloads is
    larger than ``max_payload_bytes``, QueueFull if the queue has no room; then none is stored. Where Django refuses
    because of the place of the call, or the tables are not there, its error says what to do.
    """
    policy = options.policy(new.queue_name)
    limit = policy.max_payload_bytes
    for _, payload in new.jobs:
        # A character has 4 bytes at the most, so a short text needs no count.
        if len(payload) > limit // 4 and (size := len(payload.encode())) > limit:
            raise PayloadTooLarge(
                f"A payload for queue {new.queue_name!r} has {size:,} bytes; max_payload_bytes allows {limit:,}. "
                "Store the data elsewhere and publish a reference to it, or raise the limit."
            )
    engine = engine_for(database)
    try:
        if limited and policy.max_depth is not None:
            alone, duplicates = admitted(partial(_insert, engine, new, on_duplicate), engine, new, policy, timeout)
        else:
            alone, duplicates = _insert(engine, new, on_duplicate)
    except SynchronousOnlyOperation as error:
        name = new.task_path.rpartition(".")[2]
        awaited = f"await {name}.aenqueue(...)" if name else "await queue.apublish(...)"
        raise SynchronousOnlyOperation(f"{error} In async code: {awaited}.") from None
    except OperationalError as error:
        if engine.trouble(error) is Trouble.SCHEMA:
            raise OperationalError(f"{error}: {mismatch(database)}") from error
        raise
    if alone:
        ring(database, options.doorbells)
    elif len(duplicates) < len(new.jobs) or new.replace:
        ring_after_commit(database, options.doorbells)
    return duplicates


def _insert(engine: Engine, new: NewJobs, on_duplicate: str) -> tuple[bool, Duplicates]:
    """Return whether the jobs are known to be committed, and those that were not stored.

    Jobs with keys are never known to be: their doorbells are left to ``on_commit``.
    """
    if new.keyed:
        return False, insert_with_keys(engine, new, on_duplicate)
    return engine.insert(new), {}


def due_from(now: int, publish_at: datetime | timedelta | None, delay: float | timedelta | None = None) -> int:
    """Return the instant from which a job may be claimed; raise ValueError for a naive datetime where USE_TZ is on."""
    checked_moment(publish_at, "publish_at")
    if publish_at is not None and delay is not None:
        raise ValueError("Give publish_at or delay, not both.")
    if publish_at is not None:
        return max(instant_of(publish_at, now, "publish_at"), now)
    return now if delay is None else max(now + clock.microseconds(delay), now)


def start_by(now: int, due_at: int, expires: datetime | timedelta | float | None) -> int | None:
    """Return the instant by which a job must have started; raise ValueError if that is over, or before it is due."""
    if expires is None:
        return None
    if not isinstance(expires, datetime | timedelta | int | float):
        raise TypeError(f"expires is {expires!r}, but must be a datetime, or a duration (seconds or a timedelta).")
    instant = instant_of(expires, now, "expires")
    if instant <= now:
        raise ValueError(f"expires is {expires!r}, which is over: give a later moment, or a duration above 0.")
    if instant <= due_at:
        raise ValueError(
            f"expires is {expires!r}, which is not after the moment at which the job is due "
            f"({time_of(clock.from_instant(due_at))}), so it could never start. Give a later moment, or a longer "
            "duration: that begins now."
        )
    return instant


def checked_moment(given: datetime | timedelta | None, name: str) -> None:
    """Raise TypeError for what is neither a moment nor a duration from now; ``name``: that of the argument."""
    if given is not None and not isinstance(given, datetime | timedelta):
        raise TypeError(f"{name} is {given!r}, but must be a datetime or a timedelta: timedelta(seconds=60) from now.")


def instant_of(given: datetime | timedelta | float, now: int, name: str) -> int:
    """Return the instant of a moment, or of a duration from ``now``; ``name``: that of the argument, for errors.

    Raise ValueError for a naive datetime where USE_TZ is on.
    """
    if not isinstance(given, datetime):
        return now + clock.microseconds(given)
    if settings.USE_TZ and timezone.is_naive(given):
        raise ValueError(f"{name} is a naive datetime while USE_TZ is on; use timezone.make_aware() on it.")
    return clock.to_instant(given)


def checked_queue_name(name: str) -> str:
    """Return ``name``; raise ValueError if no queue of a user can be called so."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or "\0" in name:  # SQLite reads JSON up to a NUL
        raise ValueError(f"A queue's name is a text of 1 to {LONGEST_NAME} characters without NUL, not {name!r}.")
    if is_reserved(name):
        raise ValueError(refusal(name))
    return name


def checked_priority(priority: int) -> int:
    """Return ``priority``; raise ValueError if it is not a whole number from -100 to 100."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        raise ValueError(f"priority is {priority!r}, but must be a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}.")
    return priority
