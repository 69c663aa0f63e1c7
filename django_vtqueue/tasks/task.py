"""Tasks: the options that this queue adds to Django's decorator, and what holds for the jobs of a task.

The options have one home, an attribute of the function, so that a module which uses them imports and runs under any
other backend as well.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from django.db import DEFAULT_DB_ALIAS

from ..conf import ELSEWHERE, POLICY, UNIQUE, Options, Policy, checked, nearest
from ..core.allowed import Invalid, count, positive_duration, rate_of
from ..core.unique import LONGEST
from .compat import Task, TaskResult, framework_task
from .context import JobContext
from .keys import key_of_call
from .lookup import loaded_task, loaded_tasks

P = ParamSpec("P")
R = TypeVar("R")
Seconds = float | timedelta
ATTRIBUTE = "vtqueue_options"


def _exceptions(value: Any) -> tuple[type[BaseException], ...]:
    kinds = (value,) if isinstance(value, type) else tuple(value) if isinstance(value, Sequence) else (None,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise Invalid("an exception class or a sequence of them")
    return kinds


def _database(value: Any) -> str | None:
    if not isinstance(value, bool | str) or value == "":
        raise Invalid("True or False, or the alias of the database that the task writes to")
    return (value if isinstance(value, str) else DEFAULT_DB_ALIAS) if value else None


def _key(value: Any) -> Any:
    if value == "" or not (isinstance(value, str) or callable(value)):
        raise Invalid("a format such as 'report:{report_id}', or a callable that is given the call's arguments")
    return value


if TYPE_CHECKING:
    # Without django-stubs the classes of the framework have no type parameters, and no types of what they return.
    class JobResult(TaskResult[P, R], Generic[P, R]):
        """What ``enqueue`` returns, for type checkers."""

        duplicate: bool  # nothing was stored: this is the result of the unfinished job that has the unique key

        @property
        def return_value(self) -> R: ...

    class DeferrableTask(Task[P, R], Generic[P, R]):
        """What ``@task`` makes, for type checkers: ``run_after`` may be a timedelta, as Django's documentation says."""

        def using(
            self,
            *,
            priority: int | None = None,
            queue_name: str | None = None,
            run_after: datetime | timedelta | None = None,
            backend: str | None = None,
        ) -> "DeferrableTask[P, R]": ...
        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "JobResult[P, R]": ...
        async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "JobResult[P, R]": ...
        def get_result(self, result_id: str) -> "JobResult[P, R]": ...
        async def aget_result(self, result_id: str) -> "JobResult[P, R]": ...
        def call(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
        async def acall(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


OPTIONS: dict[str, Callable[[Any], Any]] = {
    "max_attempts": POLICY["max_attempts"],
    "backoff": POLICY["backoff"],
    "visibility_timeout": POLICY["visibility_timeout"],
    "timeout": POLICY["timeout"],
    "hard_timeout": POLICY["hard_timeout"],
    "transactional": _database,
    "no_retry_for": _exceptions,
    "unique_key": _key,
    **UNIQUE,
    "expires": positive_duration,
    "immediate": POLICY["immediate"],
    "concurrency": count,
    "concurrency_key": _key,
    "rate": rate_of,
    "burst": count,
    "rate_key": _key,
    "order_key": _key,
}
KEYS = ("unique_key", "concurrency_key", "rate_key", "order_key")
NEEDS = {  # an option that says nothing without another one
    "unique_until": "unique_key",
    "on_duplicate": "unique_key",
    "concurrency_key": "concurrency",
    "rate_key": "rate",
    "burst": "rate",
}

DJANGOS = ("priority", "queue_name", "backend")
KNOWN = [*OPTIONS, *DJANGOS, "takes_context"]

# What other frameworks call it, and what to say here.
OF_OTHERS = {
    **ELSEWHERE,
    "queue": "say queue_name.",
    "bind": "say takes_context=True.",
    **dict.fromkeys(("retry_for", "autoretry_for"), "every exception is retried, but those of no_retry_for."),
    **dict.fromkeys(("overflow", "copies"), "that is said of a queue, in OPTIONS['queue_options']."),
    **dict.fromkeys(
        ("eta", "countdown", "delay", "run_after"), "say task.using(run_after=...), with a datetime or a timedelta."
    ),
}


class TaskOptions(TypedDict, total=False):
    """The keywords of ``@task``: this queue's, then Django's."""

    max_attempts: int
    backoff: Seconds | Sequence[Seconds] | Callable[[Exception, "TaskResult[Any, Any]"], Seconds | None]
    no_retry_for: type[BaseException] | Sequence[type[BaseException]]
    visibility_timeout: Seconds
    timeout: Seconds | None
    hard_timeout: Seconds | None
    transactional: bool | str
    unique_key: str | Callable[..., str | None]
    unique_until: Literal["done", "start"]
    on_duplicate: Literal["keep", "replace", "error"]
    expires: Seconds
    immediate: bool
    concurrency: int
    concurrency_key: str | Callable[..., str | None]
    rate: str
    burst: int
    rate_key: str | Callable[..., str | None]
    order_key: str | Callable[..., str | None]
    priority: int
    queue_name: str
    backend: str


class Decorator(Protocol):
    """What ``@task(...)`` returns, for type checkers: an async function's task has the awaited value as its result."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> "DeferrableTask[P, R]": ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> "DeferrableTask[P, R]": ...


class ContextDecorator(Protocol):
    """The same with ``takes_context=True``: callers do not pass the first argument."""

    @overload
    def __call__(
        self, function: "Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]]", /
    ) -> "DeferrableTask[P, R]": ...
    @overload
    def __call__(self, function: "Callable[Concatenate[JobContext, P], R]", /) -> "DeferrableTask[P, R]": ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> "DeferrableTask[P, R]": ...
@overload
def task(function: Callable[P, R], /) -> "DeferrableTask[P, R]": ...
@overload
def task(*, takes_context: Literal[True], **options: Unpack[TaskOptions]) -> ContextDecorator: ...
@overload
def task(*, takes_context: Literal[False] = False, **options: Unpack[TaskOptions]) -> Decorator: ...
def task(function: Callable[..., Any] | None = None, /, *, takes_context: bool = False, **options: Any) -> Any:
    """Make a function a task: Django's decorator, with the options of this queue.

    ``max_attempts``: executions before it becomes a dead letter (0: unlimited). ``backoff``: seconds before the first
    retry, doubled each time; or a sequence of seconds; or ``f(exception, task_result) -> seconds | None``, where None
    means no further attempt. ``no_retry_for``: exceptions after which it becomes a dead letter at once.
    ``visibility_timeout``: seconds for which a claim hides the job. ``timeout``: seconds after which TaskTimeout is
    raised inside it; ``hard_timeout``: seconds after which its child process is killed. ``transactional``: its writes
    and its acknowledgement are one transaction (True, or the alias of their database if that is not "default").

    ``unique_key``: a format over the arguments of the call, or a callable that is given them: no two unfinished jobs of
    a queue have one key. ``unique_until``: ``"done"``, or ``"start"``: until it is claimed. ``on_duplicate``:
    ``"keep"`` (the result of a duplicate is that of the job which is there), ``"replace"`` (a waiting one becomes the
    new one), ``"error"`` (DuplicateJob). ``expires``: seconds after which it becomes a dead letter instead of being
    started.

    ``concurrency``: how many of its jobs run at once, of all workers; with ``concurrency_key``, a format or a callable
    as ``unique_key``, how many of each key. ``order_key``: those of a key run one at a time, in the order in which they
    were enqueued, retries included. ``rate``: how many start, such as ``"100/m"``, of all or, with ``rate_key``, of
    each key; ``burst``: how many of these at once after a pause.

    The rest is Django's. Raise TypeError for an unknown option, ValueError for a value that is not allowed.
    """
    djangos = {key: options.pop(key) for key in DJANGOS if key in options}

    def decorate(func: Callable[..., Any]) -> Any:
        if not callable(func):
            raise TypeError(f"@task stands above a function, not {func!r:.100}. Name each option: queue_name='emails'.")
        set_options(func, options, takes_context=takes_context)
        return framework_task(takes_context=takes_context, **djangos)(func)  # type: ignore[call-overload]

    return decorate if function is None else decorate(function)


def set_options(func: Callable[..., Any], options: Mapping[str, Any], *, takes_context: bool) -> None:
    """Attach this queue's options to a task function; see task for what is raised."""
    name = f"@task on {func.__qualname__}"
    for key in options:
        if key not in OPTIONS:
            raise TypeError(f"{name} got an unknown option {key!r}: {OF_OTHERS.get(key) or nearest(key, KNOWN)}")
    if options:
        known = checked(options, OPTIONS, name)
        for needed in NEEDS.values():
            if needed not in known and (lone := [key for key in known if NEEDS.get(key) == needed]):
                raise ValueError(
                    f"{name} has {' and '.join(sorted(lone))} without {needed}: give that too, or neither."
                )
        if "order_key" in known and (both := [key for key in ("concurrency", "concurrency_key") if key in known]):
            raise ValueError(
                f"{name} has order_key and {' and '.join(both)}: jobs in order run one at a time. Give one of them."
            )
        if "rate_key" in known:
            known["rate_key_given"] = known["rate_key"]
        known |= {key: key_of_call(known[key], func, takes_context, name, key) for key in KEYS if key in known}
        for limit in ("concurrency", "rate"):
            if limit in known:  # of all jobs of the task, if it names no key
                known.setdefault(f"{limit}_key", f"{func.__module__}.{func.__qualname__}"[-LONGEST:])
        setattr(func, ATTRIBUTE, known)


def options_of(func: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the options attached to a task function, each in its final form."""
    return getattr(func, ATTRIBUTE, {})


@lru_cache(maxsize=1000)
def policy_of(options: Options, queue_name: str, func: Callable[..., Any] | None) -> Policy:
    """Return what holds for jobs of a queue: an option of their task, else of the queue, else of the backend.

    ``func``: the function of their task; None: they are raw, or it is not loaded. Limits are not merged: those of a
    task hold beside those of its queue.
    """
    own = {name: value for name, value in options_of(func).items() if name in POLICY} if func else {}
    return replace(options.policy(queue_name), **own)


def loaded_options(path: str) -> Mapping[str, Any] | None:
    """Return the options of the task that a stored path names; None if its module is not loaded."""
    return options_of(found.func) if (found := loaded_task(path)) else None


def largest_burst(path: str, task_modules: Iterable[str] = ()) -> int:
    """Return the largest ``burst`` of the loaded tasks that were given the same ``rate_key`` as that of a path."""
    if (key := (loaded_options(path) or {}).get("rate_key_given")) is None:
        return 1
    all_options = (options_of(task.func) for task in loaded_tasks(task_modules))
    return max((own.get("burst", 1) for own in all_options if own.get("rate_key_given") == key), default=1)
