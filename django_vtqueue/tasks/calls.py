"""The call of a task: the signature of its function, the keys that are formed of its arguments, calls as children."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import Parameter, Signature, signature
from re import split
from string import Formatter
from typing import Any, Concatenate, ParamSpec, Protocol, overload

from ..core.unique import checked_key
from .compat import Task, TaskResult

P = ParamSpec("P")
KeyOf = Callable[..., str | None]  # of a call's arguments


@dataclass(frozen=True, slots=True)
class TaskCall:
    """A call of a task that is not enqueued yet; see call."""

    task: "Task[..., Any]"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@overload
def call(task: "Task[P, Any]", /, *args: P.args, **kwargs: P.kwargs) -> TaskCall: ...
@overload
def call(task: "Task[Concatenate[Any, P], Any]", /, *args: P.args, **kwargs: P.kwargs) -> TaskCall: ...
def call(task: Task, /, *args: Any, **kwargs: Any) -> TaskCall:
    """Return a call of a task as a value, to be enqueued by another task: ``context.gather("send", [call(send, 7)])``.

    In a workflow the first argument may be the result of another call; see chain and group.

    The options of the task hold, also those of ``task.using(…)``. Raises TypeError for what is no task.
    """
    if not isinstance(task, Task):
        raise TypeError(f"call takes a task (what @task has made), and its arguments, not {task!r:.100}.")
    return TaskCall(task, args, kwargs)


class ChildStore(Protocol):
    """Where a ledger stores its job's children and reads how they ended; see children.py, which imports the models."""

    def enqueue(self, calls: Sequence[TaskCall], parent_id: str) -> list[str]:
        """Enqueue children, in the caller's transaction; return their ids."""

    def ended(self, ids: Sequence[str]) -> list[dict[str, Any]] | None:
        """Return what became of children, to be kept; None as long as one is unfinished."""

    def was_read(self, ids: Sequence[str]) -> None:
        """Keep children for no longer than other jobs."""

    def results(
        self, ids: Sequence[str], ended: Sequence[dict[str, Any]], calls: Sequence[TaskCall]
    ) -> list[TaskResult]:
        """Return the results of children from what was kept of them."""


@lru_cache(maxsize=1000)
def call_signature(function: Callable[..., Any], takes_context: bool) -> Signature:
    """Return the signature of a task's function without its context; raise what ``inspect.signature`` raises."""
    whole = signature(function)
    return whole.replace(parameters=[*whole.parameters.values()][takes_context:])


def key_of_call(
    given: str | KeyOf, function: Callable[..., Any], takes_context: bool, where: str, option: str = "unique_key"
) -> KeyOf:
    """Return what forms a key of a task's call: a format over its arguments, or a callable that is given them.

    Raise ValueError, which begins with ``where`` and names the ``option``, for a format with a name that is no
    parameter.
    """
    what = option.replace("_", " ")
    if not isinstance(given, str):
        return lambda *args, **kwargs: checked_key(given(*args, **kwargs), what)
    text, known = given, call_signature(function, takes_context)
    arguments = _arguments_of(known)
    try:
        wrong = [name for name in names_in(text) if name not in known.parameters]
    except ValueError as error:
        raise ValueError(f"{where}: {option} is {text!r}, which is no format: {error}.") from error
    if wrong:
        names = ", ".join(f"{{{name}}}" for name in known.parameters) or "none, for the function has no parameter"
        raise ValueError(f"{where}: {option} is {text!r}, which has {{{wrong[0]}}}; allowed are {names}.")

    def key(*args: Any, **kwargs: Any) -> str | None:
        try:
            return checked_key(text.format_map(arguments(args, kwargs)), what)
        except (LookupError, AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{where}: the {what} {text!r} cannot be formed of this call: {error}") from error

    return key


def _arguments_of(known: Signature) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """Return what names the arguments of a call that fits a signature, defaults among them."""

    def bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        call = known.bind(*args, **kwargs)
        call.apply_defaults()
        return call.arguments

    parameters = known.parameters.values()
    if any(parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for parameter in parameters):
        return bound
    names = tuple(known.parameters)
    defaults = {
        parameter.name: parameter.default for parameter in parameters if parameter.default is not Parameter.empty
    }
    return lambda args, kwargs: {**defaults, **dict(zip(names, args, strict=False)), **kwargs}  # a third of the time


def names_in(text: str) -> Iterator[str]:
    """Yield the first name of each field of a format, those inside of other fields too; raise ValueError if it is none.

    That is "report" for ``{report[id]}``, "" for ``{}``.
    """
    for _, field, spec, _ in Formatter().parse(text):
        if field is not None:
            yield split(r"[.\[]", field, maxsplit=1)[0]
            yield from names_in(spec or "")
