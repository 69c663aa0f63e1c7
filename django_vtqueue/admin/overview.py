"""The first page of the app: how each queue stands, what the workers do, and what is wrong.

All is read anew for each look, in one snapshot: a dozen queries that read indexes or a few rows, and that stop counting
somewhere.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.db import DatabaseError
from django.http import HttpRequest
from django.utils.translation import gettext as _

from ..core import clock
from ..core.humanize import duration
from ..core.names import LEASE
from ..engines import Trouble, database_for, engine_for, named_queues
from ..inspection import overview as inspection
from ..inspection import throughput
from ..inspection.holdings import Holding, holdings
from ..inspection.overview import Held
from ..inspection.parked_keys import ParkedKey, parked_keys
from ..inspection.state import limits_for
from ..models import RESERVED, Job, WorkerProcess
from ..queue import pauses
from ..queue.arguments import MAX_PRIORITY
from . import display
from .banners import banners, failing, unmigrated
from .changelists import AFTER
from .links import Pages, address
from .queue_rows import Facts
from .workers import Busy, busy

SHOWN = 100  # queues, workers, and leases
KEYS_SHOWN, MOST_PARKED = 10, 1000  # concurrency keys, and their parked jobs that are counted
NAMES = 1000  # that are looked for
ACTIVE = 5000  # minutes of queues that are looked at to find those that did something
GLANCE = 100  # jobs of a queue that are counted to find the busiest ones
FEWEST, MOST_COUNTED = 1000, 10_000  # up to which a number is counted: the fewer, the more queues are shown
JOBS_OF_A_WORKER = 5
MINUTES = 180  # of the plots
REFRESH = 5  # seconds


def overview(request: HttpRequest, app_list: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the template of the overview shows; ``app_list``: as Django's admin gives it to its templates."""
    pages, engine = Pages(request, app_list), engine_for(database_for())
    page = {"pages": pages, "path": request.path, "refresh": REFRESH}
    try:
        with engine.snapshot() as now:
            page["updated"] = display.moment(clock.from_instant(now))
            return page | sections(engine.alias, now, pages)
    except DatabaseError as error:
        if engine.trouble(error) is not Trouble.SCHEMA:
            raise
        return page | {"pages": None, "banners": [unmigrated(engine.alias)]}


def sections(database: str, now: int, pages: Pages) -> dict[str, Any]:
    """Return the parts of the page, as far as the user may see them."""
    held = inspection.held(database, MOST_COUNTED, now)
    workers = worker_rows(database, held, now, pages)
    leases, leases_left = lease_rows(database, now, pages) if pages.jobs else ([], 0)
    queues = summary(database, held, workers, now, pages) if pages.jobs else {"queues": []}
    parked = any(queue.parked.value for queue in queues["queues"])
    keys, keys_left = key_rows(database, pages) if parked else ([], 0)
    return {
        "banners": [
            *(failing(database, now, pages) if pages.letters else []),
            *banners(database, queues["queues"], workers if pages.workers else []),
        ],
        "workers": workers[:SHOWN] if pages.workers else [],
        "workers_left": max(len(workers) - SHOWN, 0),
        "keys": keys,
        "keys_left": keys_left,
        "leases": leases,
        "leases_left": leases_left,
        "nothing": bool(pages.jobs and not workers and not leases) and untouched(queues["queues"], database),
        **queues,
    }


def worker_rows(database: str, held: Held, now: int, pages: Pages) -> list[Busy]:
    """Return the workers in an order that stays, those that are gone last, with what they run."""
    workers = list(WorkerProcess.objects.using(database).order_by("-heartbeat_at")[:NAMES])
    listed = [worker.pk for worker in workers[:SHOWN]] if pages.jobs and pages.workers else []
    jobs = inspection.begun(database, listed, JOBS_OF_A_WORKER, MOST_COUNTED, now)
    rows = busy(workers, held, jobs, now, pages.site)
    return sorted(rows, key=lambda row: (row.over, row.word, row.worker.host, row.worker.pid))


def summary(database: str, held: Held, workers: Sequence[Busy], now: int, pages: Pages) -> dict[str, Any]:
    """Return the rows of the queues (of the busiest, if there are many), and how many are left out."""
    sizes = inspection.sizes(database, NAMES, GLANCE)
    active = throughput.active(database, now, MINUTES, ACTIVE)
    paused = pauses.paused(database, now)
    most_letters = MOST_COUNTED if len(sizes) < SHOWN else FEWEST
    letters = inspection.letters(database, NAMES, most_letters + 1) if pages.letters else {}
    names = {*sizes, *active, *paused, *letters, *named_queues(database)}

    def importance(name: str) -> tuple[bool, int]:
        return name in paused, sizes.get(name, 0) + active[name]

    shown = sorted(sorted(names, key=importance, reverse=True)[:SHOWN])
    most = max(FEWEST, min(MOST_COUNTED, engine_for(database).countable // max(len(shown), 1)))
    arrivals, more_arrived = throughput.arrivals(database, now)
    facts = Facts(
        database=database,
        now=now,
        most=most,
        most_letters=most_letters,
        backlogs=inspection.backlogs(database, shown, now, most + 1),
        fills=inspection.fills(database, shown),
        held=held,
        more_held=held.queues.total() >= MOST_COUNTED,
        letters=letters,
        reviewed=inspection.reviewed(database, NAMES, most_letters + 1) if pages.letters else {},
        flows=throughput.lately(database, shown, now, MINUTES),
        arrivals=arrivals,
        more_arrived=more_arrived,
        paused=paused,
        workers=workers,
        pages=pages,
    )
    return {
        "queues": [facts.row(name) for name in shown],
        "queues_left": len(names) - len(shown),
        "queues_unread": max(len(sizes), len(letters)) >= NAMES,
    }


def untouched(rows: Sequence[Any], database: str) -> bool:
    """Return whether there has been no job yet, as far as the tables still tell."""
    return not any(row.used for row in rows) and not Job.objects.using(database).exclude(RESERVED).exists()


# -- leases and concurrency keys ---------------------------------------------------------------------------------------


def lease_rows(database: str, now: int, pages: Pages) -> tuple[list[dict[str, Any]], int]:
    """Return the rows to be shown, and how many are left out."""
    found = holdings(database, now)
    return [lease_row(each, now, pages) for each in found[:SHOWN]], max(len(found) - SHOWN, 0)


def lease_row(each: Holding, now: int, pages: Pages) -> dict[str, Any]:
    """Return a lease or a time slot for the template; its page has the history of its holders."""
    since = "" if each.since is None else display.moment(clock.from_instant(each.since), duration(now - each.since))
    return {
        "pk": each.job.pk,
        "name": each.job.queue_name if each.kind == LEASE else f"{each.job.queue_name} {each.key}",
        "url": address(pages.site, "job_change", each.job.pk),
        "holder": each.holder,
        "remark": each.remark,
        "token": display.number(each.token),
        "since": since,
        "left": "" if each.until is None else duration(each.until - now),
    }


def key_rows(database: str, pages: Pages) -> tuple[list[dict[str, Any]], int]:
    """Return the keys with the most blocked jobs, and how many others there are."""
    found, left = parked_keys(database, KEYS_SHOWN, MOST_PARKED + 1)
    return [key_row(each, database, pages) for each in found], left


def key_row(each: ParkedKey, database: str, pages: Pages) -> dict[str, Any]:
    """Return a concurrency key for the template; ``url``: where its blocked jobs are listed."""
    limits, held = limits_for(each.queue_name, database), display.number(each.held)
    if limits.known(each.task_path):
        limit = limits.of_key(each.queue_name, each.task_path)
        text = _("%(held)s of %(most)s, in order") if limit.ordered else _("%(held)s of %(most)s")
        held = text % {"held": held, "most": "∞" if limit.most is None else display.number(limit.most)}
    begin = json.dumps([each.key, False, "", MAX_PRIORITY, 0, 0])  # where the jobs of this key begin in the list
    return {
        "key": display.cut(each.key),
        "task": display.task_name(each.task_path) if each.task_path else each.queue_name,
        "held": held,
        "parked": display.number(min(each.parked, MOST_PARKED), more=each.parked > MOST_PARKED),
        "url": pages.jobs and f"{pages.jobs}?{urlencode({'state': 'blocked', AFTER: begin})}",
    }
