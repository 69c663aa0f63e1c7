"""The first page of the app: how each queue stands, what the workers do, and what is wrong.

All is read anew for each look, in a dozen queries that read indexes or a few rows, and that stop counting somewhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest

from .. import throughput
from ..core import clock
from ..core.counts import MINUTE, minute_of
from ..engines import Engine, Trouble, database_for, engine_for, named_queues
from ..engines.inspection import HeldCount
from ..models import Job, QueueState, WorkerProcess
from ..queue import pauses
from . import display
from .banners import banners, failing, unmigrated
from .links import Pages, pages_for
from .queue_rows import Facts, flows
from .workers import Busy, busy

SHOWN = 100  # queues, and workers
NAMES = 1000  # that are looked for
ACTIVE = 5000  # minutes of queues that are looked at to find those that did something
GLANCE = 100  # jobs of a queue that are counted to find the busiest ones
FEWEST, MOST = 1000, 10_000  # up to which a number is counted: the fewer, the more queues are shown
ALTOGETHER = 300_000  # jobs that are counted before now, and as many after it
JOBS_OF_A_WORKER = 5
MINUTES = 180  # of the plots
REFRESH = 5  # seconds


def overview(request: HttpRequest, app_list: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the template of the overview shows; ``app_list``: as Django's admin gives it to its templates."""
    pages, engine = pages_for(request, app_list), engine_for(database_for())
    now = engine.now()
    page = {
        "pages": pages,
        "path": request.path,
        "refresh": REFRESH,
        "updated": display.moment(clock.from_instant(now)),
    }
    try:
        return page | situation(engine, now, pages)
    except DatabaseError as error:
        if engine.trouble(error) is not Trouble.SCHEMA:
            raise
        return page | {"pages": None, "banners": [unmigrated(engine.alias)]}


def situation(engine: Engine, now: int, pages: Pages) -> dict[str, Any]:
    """Return how it stands, as far as the user may see it."""
    held = engine.inspection.held(MOST, now)
    workers = worker_rows(engine, held, now, pages)
    queues = summary(engine, held, workers, now, pages) if pages.jobs else {"queues": []}
    return {
        "banners": [
            *(failing(engine.alias, now, pages) if pages.letters else []),
            *banners(engine.alias, queues["queues"], workers if pages.workers else []),
        ],
        "workers": workers[:SHOWN] if pages.workers else [],
        "workers_left": max(len(workers) - SHOWN, 0),
        "nothing": bool(pages.jobs and not workers) and untouched(queues["queues"], engine.alias),
        **queues,
    }


def worker_rows(engine: Engine, held: Sequence[HeldCount], now: int, pages: Pages) -> list[Busy]:
    """Return the workers in an order that stays, those that are gone last, with what they run."""
    workers = list(WorkerProcess.objects.using(engine.alias).order_by("-heartbeat_at")[:NAMES])
    listed = [worker.pk for worker in workers[:SHOWN]] if pages.jobs and pages.workers else []
    rows = busy(workers, held, engine.inspection.running(listed, JOBS_OF_A_WORKER), now, pages.site)
    return sorted(rows, key=lambda row: (row.over, row.word, row.worker.host, row.worker.pid))


def summary(
    engine: Engine, held: Sequence[HeldCount], workers: Sequence[Busy], now: int, pages: Pages
) -> dict[str, Any]:
    """Return the rows of the queues (of the busiest, if there are many), and how many are left out."""
    sizes = engine.inspection.sizes(NAMES, GLANCE)
    active = engine.inspection.active(minute_of(now) - (MINUTES - 1) * MINUTE, minute_of(now), ACTIVE)
    paused: dict[str, QueueState] = pauses.paused(engine.alias, now)
    most_letters = MOST if len(sizes) < SHOWN else FEWEST
    letters = engine.inspection.letters(NAMES, most_letters + 1) if pages.letters else {}
    names = {*sizes, *active, *paused, *letters, *named_queues(engine.alias)}

    def importance(name: str) -> tuple[bool, int]:
        return name in paused, sizes.get(name, 0) + active.get(name, 0)

    shown = sorted(sorted(names, key=importance, reverse=True)[:SHOWN])
    most = max(FEWEST, min(MOST, ALTOGETHER // max(len(shown), 1)))
    backlogs = engine.inspection.backlogs(shown, now, most + 1)
    arrivals, more_arrived = throughput.arrivals(engine.alias, now)
    facts = Facts(
        database=engine.alias,
        now=now,
        most=most,
        most_letters=most_letters,
        most_held=MOST,
        backlogs=backlogs,
        held=held,
        letters=letters,
        seen=engine.inspection.seen_letters([name for name in shown if name in letters], most_letters + 1),
        flows=flows(engine, shown, now, MINUTES),
        arrivals=arrivals,
        more_arrived=more_arrived,
        paused=paused,
        workers=workers,
        pages=pages,
    )
    return {
        "queues": facts.rows(shown),
        "queues_left": len(names) - len(shown),
        "queues_unread": max(len(sizes), len(letters)) >= NAMES,
    }


def untouched(rows: Sequence[Any], database: str) -> bool:
    """Return whether there has been no job yet, as far as the tables still tell."""
    return not any(row.used for row in rows) and not Job.objects.using(database).exists()
