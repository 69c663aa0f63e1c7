"""The options of a worker, as it was started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..backend import VTQueueBackend
from ..core.job import Scope
from ..core.shares import Shares
from ..queue.limits import Limits


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What the command line says. ``queues``: None for all of the backend; durations in seconds.

    ``weights``: of these queues, by which they are served in proportion; None: by priority and time only.
    ``max_jobs_per_process`` and ``max_memory`` (MiB): a child process that has reached one of them is replaced.

    ``processes``: 1 for this process itself, more for child processes, each a worker with ``threads``. ``supervised``:
    this is one of these. ``owns_process``: nothing else lives in this process, so that it may be left while a job's
    code still runs. ``adopt``: run the jobs of a copied database also with DEBUG.
    """

    threads: int
    queues: tuple[str, ...] | None = None
    weights: Mapping[str, int] | None = None
    processes: int = 1
    drain: bool = False
    drain_retries: float = 0.0
    adopt: bool = False
    max_jobs: int | None = None
    max_jobs_per_process: int | None = None
    max_memory: int | None = None
    shutdown_timeout: float | None = None
    owns_process: bool = False
    supervised: bool = False


def scopes_of(backend: VTQueueBackend, queues: tuple[str, ...] | None, worker_id: str = "") -> list[Scope]:
    """Return what a worker claims: the tasks of its queues, and the raw jobs of those that name a handler.

    ``queues``: only these; None for all, also for those with a handler that are not in ``QUEUES`` (no task is theirs).
    """
    served = queues or tuple(sorted(backend.settings.queues)) or None
    handled = tuple(name for name in backend.settings.handler_queues() if queues is None or name in queues)
    return [Scope(served, False, worker_id), *([Scope(handled, True, worker_id)] if handled else [])]


def limits_of(backend: VTQueueBackend, options: WorkerOptions) -> Limits:
    """Return the limits for a worker, with the shares of its queues."""
    return replace(backend.limits, shares=Shares(options.weights)) if options.weights else backend.limits


def overflowing(backend: VTQueueBackend, scopes: Sequence[Scope]) -> Mapping[str, tuple[int, int]]:
    """Return ``Options.overflowing``; nothing if none of the queues in these scopes has copies."""
    found, names = backend.settings.overflowing, served(scopes)
    return found if not names or any(found.get(name, found.get("", (0, 0)))[0] for name in names) else {}


def served(scopes: Sequence[Scope]) -> list[str]:
    """Return the names of the queues in these scopes; none means all."""
    if any(scope.queues is None for scope in scopes):
        return []
    return sorted({name for scope in scopes for name in scope.queues or ()})
