"""Calls of tasks: many at once, those that are not enqueued yet, and where a durable task stores its children."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from ..core.text import shown
from .compat import Task, TaskResult

P = ParamSpec("P")
R = TypeVar("R")
Call = tuple[Sequence[Any], Mapping[str, Any]]  # what a task is called with


@dataclass(frozen=True, slots=True)
class TaskCall:
    """A call of a task that is not enqueued yet; see call."""

    task: "Task[..., Any]"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


if TYPE_CHECKING:

    class AnyTask(Protocol[P]):
        """A task, for type checkers, also where the framework's class has no type parameters."""

        @property
        def module_path(self) -> str: ...
        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


@overload
def call(task: "AnyTask[P]", /, *args: P.args, **kwargs: P.kwargs) -> TaskCall: ...
@overload
def call(task: "AnyTask[Concatenate[Any, P]]", /, *args: P.args, **kwargs: P.kwargs) -> TaskCall: ...
def call(task: Any, /, *args: Any, **kwargs: Any) -> TaskCall:
    """Return a call of a task as a value, to be enqueued by another task: ``context.gather("send", [call(send, 7)])``.

    In a workflow the first argument may be the result of another call; see chain and group.

    The options of the task hold, also those of ``task.using(…)``. Raises TypeError for what is no task.
    """
    return TaskCall(checked_task(task, "call"), args, kwargs)


def checked_task(task: Task, where: str) -> Task:
    """Return a task; raise TypeError, which begins with ``where``, for what is none."""
    if not isinstance(task, Task):
        raise TypeError(f"{where} takes a task (made by @task), and its arguments, not {task!r:.100}.")
    return task


def enqueue_many(task: "Task[P, R]", calls: Iterable[Call]) -> "list[TaskResult[P, R]]":
    """Enqueue a task once for each ``(args, kwargs)``; all or none, in one transaction, where the backend is ours.

    Returns the results in the same order. Raises TypeError for what is no task or, with the index, no such
    pair; then none is stored. On other backends it is a loop of ``task.enqueue``.
    """
    backend = checked_task(task, "enqueue_many").get_backend()
    if hasattr(backend, "enqueue_many"):
        return backend.enqueue_many(task, calls)  # type: ignore[no-any-return]
    return [task.enqueue(*args, **kwargs) for args, kwargs in checked_calls(calls)]


def checked_calls(calls: Iterable[Call]) -> list[Call]:
    """Return calls, each a pair (list or tuple, dict); raise TypeError, with the index, for the first that is none."""
    if isinstance(calls, str | bytes | bytearray | Mapping) or not isinstance(calls, Iterable):
        raise TypeError(f"enqueue_many takes a list of calls, each (args, kwargs), not {shown(calls)}.")
    given = list(calls)
    for index, call in enumerate(given):
        match call:
            case [list() | tuple(), dict() | Mapping()]:
                pass
            case _:
                raise TypeError(
                    f"calls[{index}] is {call!r:.100}, but must be (args, kwargs), a list or tuple and a dict: "
                    "((7,), {}) for one argument."
                )
    return given


class ChildStore(Protocol):
    """Where a ledger stores its job's children and reads how they ended; see children.py, which imports the ledger."""

    def enqueue(self, calls: Sequence[TaskCall], parent_id: str, again: Sequence[str] = ()) -> list[str]:
        """Enqueue children, in the caller's transaction; return their ids. A job of ``again`` stands for its call."""

    def announce(self) -> None:
        """Send the signals of the children that were enqueued, after the commit."""

    def requeue(self, ids: Sequence[str], before: int, by: str) -> None:
        """Requeue those children, in the caller's transaction, that have died before an instant."""

    def ended(self, ids: Sequence[str], known: Sequence[dict[str, Any]] | None = None) -> list[dict[str, Any]] | None:
        """Return what became of children, to be kept; None as long as one is unfinished.

        ``known``: what was kept of them before; a success stays one, and so does a failure whose job is gone.
        """

    def was_read(self, ids: Sequence[str]) -> None:
        """Keep children for no longer than other jobs."""

    def results(
        self, ids: Sequence[str], ended: Sequence[dict[str, Any]], calls: Sequence[TaskCall]
    ) -> list[TaskResult]:
        """Return the results of children from what was kept of them."""
