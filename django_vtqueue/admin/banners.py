"""What is wrong, or was stopped on purpose, on top of the overview.

A screen reader says a banner when it changes: its sentences hold moments, not ages, which would change all the time.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..conf import configured
from ..engines import database_of
from ..models import QueueState
from ..schema import APP
from ..shown import time_of
from .busy import Busy
from .queue_rows import QueueRow

MOST = 5  # banners of paused queues, and names in a sentence


@dataclass
class Banner:
    """``level``: error or warning; ``sentences``: what is wrong; ``command``: what to type; ``resume``: a queue."""

    level: str
    sentences: Sequence[str]
    command: str = ""
    resume: str = ""


def banners(database: str, rows: Sequence[QueueRow], workers: Sequence[Busy]) -> list[Banner]:
    """Return the banners of these queues and workers, the worst first."""
    unserved = [row.name for row in rows if row.unserved]
    silent = [row for row in workers if row.gone]
    pauses = [row.pause for row in rows if row.pause]
    found = [nobody(database, unserved, workers)] if unserved else []
    found += [lost(silent)] if silent else []
    found += [paused(pause) for pause in pauses[:MOST]]
    if (left := len(pauses) - MOST) > 0:
        found.append(
            Banner("warning", [ngettext("%d more queue is paused.", "%d more queues are paused.", left) % left])
        )
    return found


def unmigrated(database: str) -> Banner:
    """Return that the tables are not those that this code knows, and what makes them."""
    words = ["python", "manage.py", "migrate", APP, *(["--database", database] if database != "default" else [])]
    return Banner("error", [_("The tables of the queue are missing, or of another version:")], shlex.join(words))


def listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST])
    if (left := len(names) - MOST) <= 0:
        return shown
    return ngettext("%(names)s and %(n)d more", "%(names)s and %(n)d more", left) % {"names": shown, "n": left}


def nobody(database: str, queue_names: Sequence[str], workers: Sequence[Busy]) -> Banner:
    """Return that something is due in queues which no live worker serves."""
    sentences = [
        ngettext(
            "Jobs are due in a queue that no live worker serves: %s.",
            "Jobs are due in queues that no live worker serves: %s.",
            len(queue_names),
        )
        % listed(queue_names)
    ]
    idle = [row.name for row in workers if row.word in ("quiet", "stopping") and any(map(row.serves, queue_names))]
    if idle:
        sentences.append(_("Asked to claim nothing: %s.") % listed(idle))
    sentences.append(_("Start a worker:"))
    some = any(row.word == "alive" for row in workers)
    return Banner("error", sentences, command(database, queue_names if some else ()))


def command(database: str, queue_names: Sequence[str] = ()) -> str:
    """Return what starts a worker, for some queues or (without any) for all."""
    found = {alias: entry for alias, entry in configured().items() if database_of(entry) == database}
    serving = [alias for alias, entry in found.items() if all(map(entry.serves, queue_names))]
    alias = next(iter([*serving, *found]), "default")
    words = ["python", "manage.py", "vtworker"]
    words += ["--backend", alias] if alias != "default" else []
    words += ["--queues", ",".join(queue_names)] if queue_names else []
    return shlex.join(words)


def lost(rows: Sequence[Busy]) -> Banner:
    """Return that workers fell silent, and since when."""
    shown = [
        _("%(worker)s since %(time)s") % {"worker": row.name, "time": time_of(row.worker.heartbeat_at)} for row in rows
    ]
    first = ngettext("A worker has fallen silent: %s.", "Workers have fallen silent: %s.", len(rows)) % listed(shown)
    return Banner("warning", [first, _("What is held there runs again when the leases end.")])


def paused(pause: QueueState) -> Banner:
    """Return who paused a queue, when, why, and until when."""
    values = {"queue": pause.queue_name, "since": time_of(pause.paused_at), "by": pause.paused_by}
    if pause.paused_by:
        sentences = [_("“%(queue)s” has been paused by %(by)s since %(since)s.") % values]
    else:
        sentences = [_("“%(queue)s” has been paused since %(since)s.") % values]
    if pause.reason:
        sentences.append(_("Reason: “%s”.") % pause.reason)
    if pause.paused_until:
        sentences.append(_("It goes on by itself at %s.") % time_of(pause.paused_until))
    return Banner("warning", sentences, resume=pause.queue_name)
