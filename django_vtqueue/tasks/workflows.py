"""Workflows: several calls as one whole, a chain or a group. Each is a durable task, and its calls are its children."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from inspect import Parameter
from typing import Any, Union, cast
from uuid import UUID

from django.utils.dateparse import parse_datetime

from ..backend import VTQueueBackend
from ..core import clock, history
from ..core.encoding import normalize
from ..core.failures import class_path
from ..core.job import SHORT
from ..exceptions import WorkflowFailed
from ..queue.moments import due_from, start_by_of
from .calls import TaskCall
from .compat import InvalidTask, Task, TaskResult, TaskResultStatus
from .context import JobContext
from .lookup import find_task
from .results import own_task
from .signatures import call_signature, check_call, refused_call
from .task import options_of
from .waits import gather

Part = Union[TaskCall, "Workflow"]
Stored = Mapping[str, Any]  # a call as it stands in the row of the whole

THEN, ON_FAILURE = "then", "on_failure"
OPTIONS = ("queue_name", "priority", "backend")  # of a task, which each call may have others of


# -- what a project calls ----------------------------------------------------------------------------------------------


def chain(*calls: Part | Iterable[Part]) -> "Workflow":
    """Return calls that run one after the other, each with the result of the one before as its first argument.

    ``calls``: of ``call(task, …)``, or chains and groups; as arguments, or as one list. The result of the whole is the
    last one's. A call that fails ends the chain: the whole becomes a dead letter with WorkflowFailed, and no later call
    is enqueued. Raises TypeError for what is no call, ValueError for none.
    """
    parts = parts_of(calls, "chain")
    if not parts:
        raise ValueError("chain takes at least one call: chain(call(fetch, url), call(parse)).")
    return Workflow(run_chain, parts)


def group(*calls: Part | Iterable[Part], then: Part | None = None, on_failure: Part | None = None) -> "Workflow":
    """Return calls that run side by side; the result of the whole is the list of their results, in order.

    ``calls``: see chain; none at all: the list is empty.
    ``then``: a call that gets that list as its first argument; its result is that of the whole. If a call fails,
    ``then`` is not enqueued, and the whole becomes a dead letter with WorkflowFailed when the others have ended and
    ``on_failure`` has run. ``on_failure``: a call that gets the list of failures as its first argument, each a dict
    with ``index`` (None for ``then``), ``job_id``, ``task``, ``exception_class`` and ``message``. Raises TypeError for
    what is no call.
    """
    ends = {name: checked(each, name) for name, each in ((THEN, then), (ON_FAILURE, on_failure)) if each is not None}
    return Workflow(run_group, parts_of(calls, "group"), ends)


def parts_of(calls: Sequence[Part | Iterable[Part]], where: str) -> tuple[Part, ...]:
    """Return calls that were given as arguments, or as one list; raise TypeError for what is no call."""
    [only, *others] = calls or [()]
    several = isinstance(only, Iterable) and not isinstance(only, str | Mapping) and not others
    return tuple(checked(each, where) for each in (cast(Iterable[Part], only) if several else calls))


def checked(part: object, where: str) -> Part:
    if not isinstance(part, TaskCall | Workflow):
        raise TypeError(f"{where} takes call(task, …), a chain or a group, not {part!r:.100}.")
    return part


@dataclass(frozen=True, slots=True)
class Workflow:
    """Several calls as one whole; see chain and group. The whole runs where its first call does, see using."""

    task: Task
    parts: tuple[Part, ...]
    ends: Mapping[str, Part] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def using(self, *, queue_name: str | None = None, priority: int | None = None) -> "Workflow":
        """Return it with another queue or priority of the whole; its calls have those of their tasks."""
        given = {"queue_name": queue_name, "priority": priority}
        return replace(self, options={**self.options, **{key: it for key, it in given.items() if it is not None}})

    def enqueue(self) -> TaskResult:
        """Store it, in the caller's transaction if there is one; return the result of the whole.

        Nothing is stored if one of its calls cannot be made. Raises TypeError for arguments that do not fit or are not
        JSON, StepError for a task that cannot be a child, and what ``task.enqueue`` raises.
        """
        made = self.call()
        return made.task.enqueue(*made.args, **made.kwargs)

    async def aenqueue(self) -> TaskResult:
        """See enqueue."""
        made = self.call()
        return await made.task.aenqueue(*made.args, **made.kwargs)

    def call(self, *before: Any) -> TaskCall:
        """Return the call of its task, checked; ``before``: what stands for the result of the call before it."""
        whole = self.task.using(**{**self.of_first(), **self.options})
        backend = whole.get_backend()
        if not isinstance(backend, VTQueueBackend):
            raise InvalidTask(f"A workflow needs VTQueueBackend, but TASKS has {type(backend).__name__} for its tasks.")
        if backend.settings.policy(whole.queue_name).overflow:
            raise InvalidTask(
                f"A chain or group is a job with steps, so it cannot be in queue {whole.queue_name!r}, which has "
                "overflow. It runs where its first call does if you say no other queue: chain(…).using(queue_name=…)."
            )
        behind = before if self.task is run_group else (None,)
        parts = [(part, behind if index else before) for index, part in enumerate(self.parts)]
        calls = [stored(part, first, backend) for part, first in parts]
        ends = {name: stored(part, (None,), backend) for name, part in self.ends.items()}
        return TaskCall(whole, (), {"calls": calls, **ends})

    def of_first(self) -> dict[str, Any]:
        """Return the queue, the priority and the backend of its first call."""
        for part in (*self.parts, *self.ends.values()):
            if isinstance(part, Workflow):
                return {**part.of_first(), **part.options}
            return {name: getattr(part.task, name) for name in OPTIONS}
        return {}


# -- as it stands in a row ---------------------------------------------------------------------------------------------


def stored(part: Part, before: tuple[Any, ...], whole: VTQueueBackend) -> Stored:
    """Return a call as it is stored, checked; ``before``: what stands for the result that it gets."""
    from .children import Children  # imports the models: this module is imported before the apps are ready

    given = part.call(*before) if isinstance(part, Workflow) else part
    task, args, kwargs = given.task, list(given.args), given.kwargs
    Children(whole).backend_of(task).validate_task(task)
    try:
        check_call(task, (*before, *args), kwargs)
    except TypeError as error:
        if before:
            raise TypeError(f"{error} Its first argument is the result of the call before it.") from None
        raise
    try:
        args, kwargs = by_name(task, len(before), normalize(args), normalize(dict(kwargs)))
    except TypeError:
        raise refused_call(task, (*before, *args), kwargs) from None
    later = task.run_after
    if isinstance(later, timedelta):
        start_by_of(now := whole.now(), due_from(now, later), options_of(task.func).get("expires"))
    return {
        "task": task.module_path,
        "args": args,
        "kwargs": kwargs,
        **{name: getattr(task, name) for name in OPTIONS},
        "run_after": clock.microseconds(later) if isinstance(later, timedelta) else later and later.isoformat(),
    }


def by_name(task: Task, before: int, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments by their names if all can have one, for what is secret is hidden by its name.

    ``before``: how many arguments stand before these.
    """
    known = [*call_signature(task.func, task.takes_context).parameters.values()][before:][: len(args)]
    if len(known) < len(args) or any(each.kind is not Parameter.POSITIONAL_OR_KEYWORD for each in known):
        return args, kwargs
    return [], {each.name: value for each, value in zip(known, args, strict=True)} | kwargs


def restored(context: JobContext, found: Stored, *before: Any) -> TaskCall:
    """Return a stored call; raise UnknownTask if its task is none of this project's.

    ``before``: its first argument, if it follows another call.
    """
    modules = cast(VTQueueBackend, context.task_result.task.get_backend()).settings.task_modules
    later = found["run_after"]
    moment: Any = parse_datetime(later) if isinstance(later, str) else None
    if isinstance(later, int):
        moment = timedelta(microseconds=later)
    known = find_task(found["task"], modules)
    task = known.using(**{name: found[name] for name in OPTIONS}, run_after=moment)
    return TaskCall(task, (*before, *found["args"]), dict(found["kwargs"]))


# -- the tasks ---------------------------------------------------------------------------------------------------------


def results(
    context: JobContext, name: str, calls: list[TaskCall], on_failure: Callable[[Any], TaskCall] | None = None
) -> list[Any]:
    """Return the results of calls that run as children; raise WorkflowFailed if one has failed.

    What has failed before the last requeue of the whole is requeued, or enqueued anew if its dead letter is gone.
    """
    found = context.gather(name, calls)
    while failed := [index for index, result in enumerate(found) if result.status != TaskResultStatus.SUCCESSFUL]:
        again = all(requeued_since(context, found[index]) for index in failed)
        failures = [failure(None if name == THEN else index, found[index]) for index in failed]
        if on_failure and (not again or was_told(context)):
            context.gather(ON_FAILURE, [on_failure(failures)])
        if not again:
            raise WorkflowFailed(message(name, failures, len(calls)))
        ids = [UUID(found[index].id).hex for index in failed]
        for index, result in zip(failed, gather(context._ledger, name, [calls[i] for i in failed], ids), strict=True):
            found[index] = result
    return [result.return_value for result in found]


def was_told(context: JobContext) -> bool:
    """Return whether what comes next in the stored steps is the call of ``on_failure``."""
    ledger = context._ledger
    return any(record.get("name") == ON_FAILURE for record in ledger.done[ledger.position :][:1])


def requeued_since(context: JobContext, result: TaskResult) -> bool:
    """Return whether the whole was requeued after the end of a call."""
    requeue = history.last_requeue(context._job.history)
    return requeue is not None and (not result.finished_at or requeue["ended"] > clock.to_instant(result.finished_at))


def failure(index: int | None, result: TaskResult) -> dict[str, Any]:
    """Return what ``on_failure`` is told of a call that has failed; ``index``: its place in the group."""
    error = result.errors[-1] if result.errors else None
    name = error.exception_class_path if error else ""
    text = error.traceback.removeprefix(f"{name}: ") if error else ""
    task = result.task.module_path
    return {"index": index, "job_id": result.id, "task": task, "exception_class": name, "message": text}


def message(name: str, failures: list[dict[str, Any]], count: int) -> str:
    """Return the message of a whole that has failed: the cause comes first, for lists cut the end of it."""
    first = failures[0]
    cause = f"{first['exception_class']}: {first['message']}".removeprefix(f"{class_path(WorkflowFailed)}: ")
    failed = f"{len(failures)} of the {count} calls of {name!r} failed" if count > 1 else f"{name!r} failed"
    return f"{cause} [{failed}: {first['task']} (job {first['job_id']})]"


@own_task()
def run_chain(context: JobContext, *value: Any, calls: Sequence[Stored]) -> Any:
    """Run calls one after the other; ``value``: the first argument of the first of them, if it has one."""
    for number, found in enumerate(calls, 1):
        name = f"{number} {found['task'].rpartition('.')[2]}"[:SHORT]
        value = tuple(results(context, name, [restored(context, found, *value)]))
    return value[0]


@own_task()
def run_group(
    context: JobContext,
    *value: Any,
    calls: Sequence[Stored],
    then: Stored | None = None,
    on_failure: Stored | None = None,
) -> Any:
    """Run calls side by side, then one with their results; ``value``: the first argument of each, if they have one."""
    alarm = partial(restored, context, on_failure) if on_failure else None
    found = results(context, "group", [restored(context, each, *value) for each in calls], alarm)
    return results(context, THEN, [restored(context, then, found)], alarm)[0] if then else found
