"""The progress bar of ``vtworker --drain`` on a terminal."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from django.db.models import Q

from ..core.clock import from_instant
from ..core.job import Scope
from ..engines import Engine
from ..models import Job
from ..queue.pauses import paused
from .log import WorkerLog

logger = logging.getLogger("django_vtqueue")


@contextmanager
def drain_bar(engine: Engine, scopes: Sequence[Scope], log: WorkerLog, *, show: bool) -> Iterator[None]:
    """Show how far a drain is, if tqdm is installed (``django-vtqueue[progress]``); else the log lines do."""
    if not (show and find_spec("tqdm")):
        yield
        return
    from tqdm import tqdm
    from tqdm.contrib.logging import logging_redirect_tqdm

    with ExitStack() as stack:
        stack.enter_context(logging_redirect_tqdm([logger]))
        bar: Any = stack.enter_context(
            tqdm(total=backlog(engine, scopes, engine.now()), unit="job", dynamic_ncols=True)
        )
        log.quiet = True
        log.listeners.append(lambda jobs: grow(bar, jobs))
        yield


def backlog(engine: Engine, scopes: Sequence[Scope], now: int) -> int:
    """Return how many jobs of these scopes are due; those of a paused queue are not counted."""
    due = Job.objects.using(engine.alias).filter(finished_at=None, lease_until=None, due_at__lte=from_instant(now))
    due = due.exclude(queue_name__in=paused(engine.alias, now))
    return sum(due.filter(in_scope(scope)).count() for scope in scopes)


def in_scope(scope: Scope) -> Q:
    """Return the condition for the jobs of a scope."""
    of_kind = Q(task_path="") if scope.raw else ~Q(task_path="")
    return of_kind if scope.queues is None else of_kind & Q(queue_name__in=scope.queues)


def grow(bar: Any, jobs: int) -> None:
    """Move the bar on by so many jobs; what was published meanwhile makes it longer."""
    bar.total = max(bar.total, bar.n + jobs)
    bar.update(jobs)
