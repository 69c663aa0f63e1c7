"""Pauses: nothing of a queue is claimed until it is resumed, or until the pause ends by itself.

Above: how people pause and resume. Below: what a claim reads of it.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db.models import Q
from django.utils.translation import gettext as _

from ..core.clock import from_instant, microseconds
from ..core.humanize import time_of
from ..core.job import Scope
from ..core.text import printable
from ..engines import Engine, database_for, engine_for
from .arguments import LONGEST_BY, checked_queue_name, checked_text
from .doorbell import wake_workers
from .moments import instant_of

if TYPE_CHECKING:
    from ..models import QueueState

LONGEST_REASON = 255


def pause(
    queue_name: str,
    *,
    reason: str = "",
    until: datetime | timedelta | float | None = None,
    by: str = "",
    using: str | None = None,
) -> None:
    """Pause a queue: from the commit on no job of it is claimed, neither tasks nor payloads; what runs goes on.

    ``until``: a moment, or a duration (seconds or a timedelta) from now; None: until it is resumed. ``reason``,
    and ``by`` whom: for people. ``using``: a database alias (default: the one of your settings). Pausing a paused queue
    replaces all of that. Raises ValueError for values that are not allowed, TypeError for those of another kind.
    """
    from ..models import QueueState  # this module is imported before the apps are ready

    name = checked_queue_name(queue_name)
    database = database_for(using, name)
    now = engine_for(database).now()
    state = QueueState(
        queue_name=name,
        paused_at=from_instant(now),
        paused_until=None if until is None else from_instant(_end(until, now)),
        paused_by=checked_text(by, LONGEST_BY, "by"),
        reason=checked_text(reason, LONGEST_REASON, "reason"),
    )
    # One statement: on SQLite a transaction that has read is refused the lock instead of waiting for it.
    with engine_for(database).atomic():
        QueueState.objects.using(database).bulk_create(
            [state],
            update_conflicts=True,
            unique_fields=["queue_name"],
            update_fields=["paused_at", "paused_until", "paused_by", "reason"],
        )


def hold_up(queue_name: str, seconds: float, reason: str, using: str) -> None:
    """Pause a queue for so many seconds, for a task of it has met a service that wants it; see Retry.

    A pause that lasts longer stays as it is, and so does its reason.
    """
    from ..models import QueueState

    engine = engine_for(using)
    now = engine.now()
    end = from_instant(now + microseconds(seconds))
    given = {"paused_at": from_instant(now), "paused_until": end, "paused_by": "", "reason": reason[:LONGEST_REASON]}
    with engine.atomic():  # it begins with a write; see pause
        if not QueueState.objects.using(using).filter(pk=queue_name, paused_until__lt=end).update(**given):
            state = QueueState(queue_name=queue_name, **given)
            QueueState.objects.using(using).bulk_create([state], ignore_conflicts=True)


def resume(queue_name: str, *, using: str | None = None) -> bool:
    """End the pause of a queue and, after the commit, wake the workers; return whether it was paused."""
    from ..models import QueueState

    name = checked_queue_name(queue_name)
    database = database_for(using, name)
    ended = Q(paused_until__lte=engine_for(database).now())
    with engine_for(database).atomic():
        # Not delete(): where a project listens to that, it reads first, and is refused the lock (see pause).
        resumed = QueueState.objects.using(database).exclude(ended).filter(pk=name)._raw_delete(database)
        wake_workers(database)
    return bool(resumed)


def paused(database: str, now: int) -> "dict[str, QueueState]":
    """Return the pauses that are in effect at an instant, by the names of their queues; ``database``: an alias."""
    from ..models import QueueState

    found = QueueState.objects.using(database).exclude(paused_until__lte=now)
    return {state.queue_name: state for state in found.order_by("queue_name")}


def sentence(state: "QueueState") -> str:
    """Return a pause in words: who made it, why, and until when, as far as that is known."""
    pause = _("paused by %(by)s") % {"by": state.paused_by} if state.paused_by else _("paused")
    if state.reason:
        pause += ": " + printable(" ".join(state.reason.split()).removesuffix("."))
    if state.paused_until:
        pause += ", " + _("until %(time)s") % {"time": time_of(state.paused_until)}
    return pause


def _end(until: datetime | timedelta | float, now: int) -> int:
    """Return the instant at which a pause ends; raise ValueError for one that is over."""
    end = instant_of(until, now, "until")
    if end <= now:
        found = time_of(from_instant(end)) if isinstance(until, datetime | timedelta) else until
        raise ValueError(
            f"until is {found}, which is over: it is {time_of(from_instant(now))}. Give a later "
            "moment, a duration above 0, or none: until the queue is resumed."
        )
    return end


# -- what a claim reads ------------------------------------------------------------------------------------------------


def paused_queues(engine: Engine, now: int) -> set[str]:
    """Return the queues that are paused at ``now``.

    A claim reads them in its own transaction, so a pause holds from its commit on.
    """
    return {name for name, until in engine.pauses().items() if until is None or until > now}


def unpaused(engine: Engine, scopes: Sequence[Scope], now: int) -> list[Scope]:
    """Return scopes without the queues that are paused at ``now``, those that have others."""
    paused_now = paused_queues(engine, now)
    return [left for scope in scopes if (left := without(engine, scope, paused_now)).queues != ()]


def earliest(engine: Engine, scopes: Sequence[Scope]) -> int | None:
    """Return the earliest moment, past or future, at which an unfinished job in scope may be claimed.

    That is ``Engine.first_due``, or the end of the pause of its queue if that is later. None if there is no such job.
    """
    pauses = engine.pauses()
    found = [engine.first_due(without(engine, scope, pauses)) for scope in scopes]
    for name, until in pauses.items():
        of_name = [scope._replace(queues=(name,)) for scope in scopes if scope.queues is None or name in scope.queues]
        if until is not None:
            found += [max(first, until) for scope in of_name if (first := engine.first_due(scope)) is not None]
    return min((instant for instant in found if instant is not None), default=None)


def without(engine: Engine, scope: Scope, names: Collection[str]) -> Scope:
    """Return a scope without these queues."""
    if not names:
        return scope
    there = engine.queue_names() if scope.queues is None else scope.queues
    return scope._replace(queues=tuple(name for name in there if name not in names))
