"""The progress bar of ``vtworker --drain`` on a terminal."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ..core.job import Scope
from ..engines import Engine
from ..execution.outcomes import Outcome
from .log import WorkerLog

logger = logging.getLogger("django_vtqueue")


@contextmanager
def progress(engine: Engine, scopes: Sequence[Scope], log: WorkerLog, *, show: bool) -> Iterator[None]:
    """Show how far a drain is, if tqdm is installed (``django-vtqueue[progress]``); else the log lines do."""
    try:
        from tqdm import tqdm
        from tqdm.contrib.logging import logging_redirect_tqdm
    except ModuleNotFoundError:
        show = False
    if not show:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(logging_redirect_tqdm([logger]))
        bar: Any = stack.enter_context(tqdm(total=engine.backlog(scopes, engine.now()), unit="job", dynamic_ncols=True))
        log.quiet = True
        log.listeners.append(lambda outcome: grow(bar, outcome))
        yield


def grow(bar: Any, outcome: Outcome) -> None:
    """Move the bar on by one job; jobs that were published meanwhile make it longer."""
    if bar.n >= bar.total:
        bar.total = bar.n + 1
    bar.update()
