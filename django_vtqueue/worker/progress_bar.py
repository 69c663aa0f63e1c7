"""Progress bars on a terminal: of ``vtworker --drain``, and of other commands."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from django.db.models import Q

from ..core import states
from ..core.clock import from_instant
from ..core.job import Scope
from ..engines import Engine
from ..fields.constraints import in_state
from ..models import Job
from ..models.jobs import ASIDE
from ..queue.pauses import paused
from ..runtime.aside import LAST_LINES, log_writer
from .log import WorkerLog

logger = logging.getLogger("django_vtqueue")


@contextmanager
def drain_bar(engine: Engine, scopes: Sequence[Scope], log: WorkerLog, *, show: bool) -> Iterator[None]:
    """Show how far a drain is; else the log lines do."""
    with progress_bar(lambda: backlog(engine, scopes, engine.now()), "job", show=show) as grow:
        if grow:
            log.quiet = True
            log.listeners.append(Grown(grow).add)
        yield


class Grown:
    """Moves a bar on in the thread that writes the log: a terminal may have been stopped (Ctrl-S)."""

    def __init__(self, grow: Callable[[int], None]) -> None:
        self._grow, self._jobs, self._asked = grow, 0, False

    def add(self, jobs: int) -> None:
        self._jobs += jobs
        if not self._asked:
            self._asked = True
            log_writer.put(self._show)

    def _show(self) -> None:
        self._asked = False
        jobs, self._jobs = self._jobs, 0
        self._grow(jobs)


@contextmanager
def progress_bar(total: Callable[[], int], unit: str, *, show: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield what moves a bar on; None if it is not to be shown, or tqdm (``django-vtqueue[progress]``) is not there."""
    if not (show and find_spec("tqdm")):
        yield None
        return
    from tqdm import tqdm
    from tqdm.contrib.logging import logging_redirect_tqdm

    redirected = [logger] if logger.handlers else []  # tqdm would give it one, beside those that the project has
    with logging_redirect_tqdm(redirected):
        bar = tqdm(total=total(), unit=unit, dynamic_ncols=True)

        def grow(number: int) -> None:
            """Move it on; what was published meanwhile makes it longer."""
            bar.total = max(bar.total or 0, bar.n + number)
            bar.update(number)

        try:
            yield grow
        finally:
            log_writer.put(bar.close)
            log_writer.finish(LAST_LINES)


def backlog(engine: Engine, scopes: Sequence[Scope], now: int) -> int:
    """Return how many jobs of these scopes are due; those of a paused queue are not counted."""
    moment = from_instant(now)
    due = in_state(states.READY) & Q(due_at__lte=moment), ASIDE & Q(wake_at__lte=moment)
    jobs = Job.objects.using(engine.alias).exclude(queue_name__in=paused(engine.alias, now))
    return sum(jobs.filter(which, of_scope(scope)).count() for scope in scopes for which in due)


def of_scope(scope: Scope) -> Q:
    """Return the condition for the jobs of a scope."""
    of_kind = Q(task_path="") if scope.raw else ~Q(task_path="")
    return of_kind & (Q() if scope.queues is None else Q(queue_name__in=scope.queues))
