"""The workers that are alive: for pages and commands, and for a developer who forgot to start one."""

import logging
import shlex
import time
from collections.abc import Collection, Sequence
from math import inf
from typing import TYPE_CHECKING

from django.db import Error
from django.db.models import Q

from ..conf import configured
from ..core import clock
from ..engines import database_of, engine_for

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ..models import WorkerProcess

logger = logging.getLogger("django_vtqueue")

HEARTBEAT = 10.0  # seconds between two heartbeats of a worker
SILENCE = 3 * HEARTBEAT  # a worker that was silent for longer counts as gone
REMEMBERED = 3600.0  # seconds for which pages show a worker that died, or fell silent
LOOK_AGAIN = 10.0  # seconds after which a queue that had a worker may have none
QUIET, STOP, GO_ON = "quiet", "stop", ""  # what a worker may be asked to do (WorkerProcess.asked_to)
ANSWERS = {
    QUIET: "is quiet: it finishes its jobs, and claims nothing until it is asked to work",
    STOP: "stops, as it was asked to",
    GO_ON: "works again",
}

_look_at: dict[tuple[str, str], float] = {}  # when to look again (monotonic) whether a queue has a worker


def undead(database: str) -> "QuerySet[WorkerProcess]":
    """Return the rows of workers, without those of which it is known that they died."""
    from ..models import WorkerProcess  # this module is imported before the apps are ready

    return WorkerProcess.objects.using(database).filter(died_at=None)


def live_workers(database: str, now: int) -> list["WorkerProcess"]:
    """Return the workers whose last heartbeat is recent."""
    silence = clock.microseconds(SILENCE)
    alive = undead(database).filter(
        heartbeat_at__gt=now - silence,
        heartbeat_at__lt=now + silence,  # not one stamped by a clock that was ahead
    )
    return list(alive.order_by("started_at"))


def gone(worker_ids: Collection[str], database: str, now: int) -> set[str]:
    """Return those of these workers that died, or have been silent for long; one without a row is not known."""
    from ..models import WorkerProcess

    over = Q(died_at__isnull=False) | Q(heartbeat_at__lt=now - clock.microseconds(SILENCE))
    rows = WorkerProcess.objects.using(database).filter(over, pk__in=worker_ids)
    return set(rows.values_list("pk", flat=True))


def serves(worker: "WorkerProcess", queue_name: str) -> bool:
    """Return whether a worker takes jobs of a queue."""
    return not worker.queues or f",{queue_name}," in f",{worker.queues},"  # a name may have commas


def start_command(database: str, queue_names: Sequence[str] = (), *, only: bool = False) -> str:
    """Return what starts a worker that serves some queues, or ``only`` these, of a database.

    All are served where a name has a comma or a colon, which ``--queues`` takes for the end of a name.
    """
    found = {alias: entry for alias, entry in configured().items() if database_of(entry) == database}
    alias = max(found, key=lambda alias: sum(map(found[alias].serves, queue_names)), default="default")
    words = ["python", "manage.py", "vtworker"]
    words += ["--backend", alias] if alias != "default" else []
    only = only and not any({",", ":"}.intersection(name) for name in queue_names)
    words += ["--queues", ",".join(queue_names)] if only else []
    return shlex.join(words)


def hint_missing_worker(database: str, queue_name: str) -> None:
    """Say once for each queue, in development, that no worker serves it, and how to start a worker."""
    key = (database, queue_name)
    if time.monotonic() < _look_at.get(key, 0.0):
        return
    try:
        served = any(serves(worker, queue_name) for worker in live_workers(database, engine_for(database).now()))
        command = start_command(database, [queue_name])
    except (Error, ImportError, ValueError):  # of another entry of TASKS: the job is stored
        return
    _look_at[key] = time.monotonic() + LOOK_AGAIN if served else inf
    if not served:
        logger.warning("no live worker serves queue %r; start one: %s", queue_name, command)
