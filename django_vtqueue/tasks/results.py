"""From a row to Django's TaskResult, without validation.

History stays readable when a queue, a function or USE_TZ has changed since: what validates (the constructors of Task
and TaskResult) is left out, and a task that is gone is shown by its path.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from typing import Any, TypeVar

from ..core import history, states
from ..core.clock import from_instant
from ..core.encoding import decode
from ..core.ids import dashed
from ..core.job import HeldJob, StoredJob
from ..core.settlement import Settlement
from ..exceptions import DamagedPayload, UnknownTask
from .compat import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskError, TaskResult, TaskResultStatus
from .lookup import find_task, loaded_task
from .task import ATTRIBUTE

T = TypeVar("T")
STANDS_IN = "_vtqueue_stands_in"  # an attribute of functions that stand for those of tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(TaskResult):  # type: ignore[misc]  # Django's is frozen, too
    """A TaskResult that says where to look when there is no return value.

    ``duplicate``: nothing was stored; it is the result of the unfinished job that has the unique key of the call.
    """

    duplicate: bool = False

    @property
    def return_value(self) -> Any:
        """See Django's."""
        if self.status == TaskResultStatus.FAILED and self.errors:
            error = self.errors[-1].exception_class_path
            raise ValueError(f"Task failed: {error}. Each attempt is in errors: print(result.errors[-1].traceback)")
        return TaskResult.return_value.fget(self)  # type: ignore[attr-defined]


@lru_cache(maxsize=10)
def _slots(kind: Any) -> tuple[list[tuple[str, Callable[[Any, Any], None]]], dict[str, Any]]:
    """Return what sets each field of a dataclass with slots, be it frozen or not, and their defaults."""
    setters = [(item.name, getattr(kind, item.name).__set__) for item in fields(kind)]
    return setters, {item.name: None if item.default is MISSING else item.default for item in fields(kind)}


def unvalidated(kind: type[T], **values: Any) -> T:
    """Return an instance of a frozen dataclass with slots without running its constructor."""
    instance = object.__new__(kind)
    setters, defaults = _slots(kind)  # type: ignore[arg-type]
    values = defaults | values
    for name, put in setters:
        put(instance, values[name])
    return instance


def change(result: TaskResult, **values: Any) -> None:
    """Change a result, which is frozen for its readers, where it is made."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def with_changes(task: Task, **changes: Any) -> Task:
    """Return a copy of a task with other values, unvalidated."""
    return unvalidated(Task, **{item.name: getattr(task, item.name) for item in fields(Task)} | changes)


def own_task(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function a task of this package, which no project has to allow: each run says its queue and its backend.

    ``options``: in their final form; ``transactional=True``: in any database.
    """

    def decorate(func: Callable[..., Any]) -> Any:
        setattr(func, ATTRIBUTE, options)
        backend = DEFAULT_TASK_BACKEND_ALIAS
        return unvalidated(Task, func=func, backend=backend, queue_name="default", priority=0, takes_context=True)

    return decorate


def missing_function(path: str) -> Callable[..., Any]:
    """Return a function that stands for one that is gone, or not loaded: it has its path, and cannot be called."""

    def gone(*args: Any, **kwargs: Any) -> None:
        raise UnknownTask(f"There is no task {path!r} here.")

    gone.__module__, _, gone.__qualname__ = path.rpartition(".")
    gone.__name__ = gone.__qualname__
    setattr(gone, STANDS_IN, True)
    return gone


def found_again(task: Task, task_modules: Sequence[str]) -> Task:
    """Return a task with its own function, if it has one that stands for it; raise UnknownTask if there is none."""
    if not hasattr(task.func, STANDS_IN):
        return task
    known = find_task(task.module_path, task_modules)
    return with_changes(task, func=known.func, takes_context=known.takes_context)


def task_of(job: HeldJob, alias: str, known: Task | None) -> Task:
    """Return the task of a row, as it was enqueued; one that is not known here is a stand-in with its path."""
    func, takes_context = (known.func, known.takes_context) if known else (missing_function(job.task_path), False)
    deferred = job.claims == 0 and job.due_at > job.enqueued_at
    return unvalidated(
        Task,
        func=func,
        priority=job.priority,
        backend=alias,
        queue_name=job.queue_name,
        run_after=from_instant(job.due_at) if deferred else None,
        takes_context=takes_context,
    )


def call_of(job: HeldJob) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a row's call; raise DamagedPayload if they cannot be read."""
    try:
        payload = decode(job.payload)
    except ValueError as error:
        raise DamagedPayload(f"The stored payload is not JSON: {error}") from error
    args = payload.get("args") if isinstance(payload, dict) else None
    kwargs = payload.get("kwargs") if isinstance(payload, dict) else None
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise DamagedPayload('The payload of a task must be {"args": [...], "kwargs": {...}}.')
    return args, kwargs


def result_of_call(job: HeldJob, task: Task, args: list[Any], kwargs: dict[str, Any]) -> TaskResult:
    """Return the result of a task that is about to be called."""
    entries = [] if job.history == history.EMPTY else history.read(job.history)
    return _result(job, task, (args, kwargs), entries, status=TaskResultStatus.RUNNING, holders=[job.worker_id])


def result_of_row(job: StoredJob, alias: str, task_modules: Sequence[str]) -> TaskResult:
    """Return the result of a row as it was read."""
    known: Task | None = None
    with suppress(Exception):  # its module may fail to import: reading a result must not
        known = find_task(job.task_path, task_modules)
    result = _readable(job, alias, known, job.state, job.history, job.finished_at)
    if job.state == states.SUCCESSFUL and job.result is not None:
        with suppress(ValueError):  # it is damaged
            change(result, _return_value=decode(job.result))
    return result


def result_of_letter(settlement: Settlement, alias: str) -> TaskResult:
    """Return the result of a job that became a dead letter.

    Nothing is imported for it: the job may have died of that. If a receiver enqueues the task again, it is found then.
    """
    job = settlement.job
    kept = settlement.history or job.history
    return _readable(job, alias, loaded_task(job.task_path), states.FAILED, kept, settlement.finished_at)


def _readable(
    job: HeldJob, alias: str, known: Task | None, state: str, kept: str, finished_at: int | None
) -> TaskResult:
    """Return the result of a job whose task may be gone, and whose payload may be damaged; ``kept``: its history."""
    try:
        call = call_of(job)
    except DamagedPayload:
        call = [], {}
    holders = [job.worker_id] if job.worker_id and state in (states.RUNNING, states.SUCCESSFUL) else []
    task = task_of(job, alias, known)
    result = _result(
        job, task, call, history.read(kept), status=TaskResultStatus(states.of_task(state)), holders=holders
    )
    if finished_at is not None:
        change(result, finished_at=from_instant(finished_at))
    return result


def _result(
    job: HeldJob,
    task: Task,
    call: tuple[list[Any], dict[str, Any]],
    entries: list[history.Entry],
    *,
    status: TaskResultStatus,
    holders: list[str],
) -> TaskResult:
    last = None if job.started_at is None else from_instant(job.started_at)
    first = next((entry.get("started") for entry in entries if isinstance(entry.get("started"), int)), None)
    return unvalidated(
        Result,
        task=task,
        id=dashed(job.id),
        status=status,
        enqueued_at=from_instant(job.enqueued_at),
        started_at=last if first is None else from_instant(first),
        last_attempted_at=last,
        args=call[0],
        kwargs=call[1],
        backend=task.backend,
        errors=[error_of(entry) for entry in entries if entry.get("exception_class")],
        worker_ids=[*history.workers(entries), *holders],
    )


def error_of(entry: history.Entry) -> TaskError:
    """Return an entry of the history as Django's TaskError."""
    return TaskError(exception_class_path=str(entry["exception_class"]), traceback=str(entry.get("traceback", "")))
