"""The signature of a task: whether a call fits it, the names of its arguments, and which of these are secret."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any

from ..core.encoding import decode, dumps, normalize, refusal
from ..core.masks import MASKED, Mask
from ..engines import mask_words, options_for
from ..fields import text_of
from .compat import Task
from .lookup import find_task

if TYPE_CHECKING:
    from ..models import AbstractJob

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


@lru_cache(maxsize=1000)
def call_signature(function: Callable[..., Any], takes_context: bool) -> Signature:
    """Return the signature of a task's function without its context; raise what ``inspect.signature`` raises."""
    whole = signature(function)
    parameters = [*whole.parameters.values()][takes_context:]
    added = [own for own in _keywords_of_wrappers(function) if own.name not in whole.parameters]
    return whole.replace(parameters=sorted([*parameters, *added], key=lambda parameter: parameter.kind))


def _keywords_of_wrappers(function: Callable[..., Any]) -> Iterator[Parameter]:
    """Yield the keyword-only parameters of a function's wrappers: ``signature`` shows what they wrap, and not these.

    An inner wrapper's that has no default is left out: an outer one may be what gives it.
    """
    outermost, passes_on = function, True
    while passes_on and hasattr(function, "__wrapped__") and not hasattr(function, "__signature__"):
        own = signature(function, follow_wrapped=False).parameters.values()
        for parameter in own:
            optional = parameter.default is not Parameter.empty
            if parameter.kind is Parameter.KEYWORD_ONLY and (optional or function is outermost):
                yield parameter
        passes_on = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in own)
        function = function.__wrapped__


def mask_of(task_path: str, queue_name: str, database: str | None) -> Mask:
    """Return what is hidden of the jobs of a task ("": of raw payloads) in a queue; ``database``: the alias.

    Also hidden: what is passed by position to a task that is not known here, and what a task does not take: it was for
    another version of it.
    """
    mask = Mask(mask_words(queue_name, database))
    if not task_path:
        return mask
    parameters = _parameters(task_path, queue_name, database)
    if parameters is None:
        return replace(mask, behind=True, damaged=True)
    found = [parameter for parameter in parameters if parameter.kind in POSITIONAL]
    rest = found.pop() if found and found[-1].kind is Parameter.VAR_POSITIONAL else None
    return replace(
        mask,
        positions=tuple(mask.names(parameter.name) for parameter in found),
        behind=rest is None or mask.names(rest.name),
        damaged=any(mask.names(parameter.name) for parameter in parameters),
    )


def masks_of(database: str | None) -> Callable[[str, str], Mask]:
    """Return ``mask_of`` for one page: each task in a queue is looked at once."""
    return cache(partial(mask_of, database=database))


def check_call(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], index: int | None = None) -> None:
    """Raise TypeError if a task cannot be called so. ``index``: that of the call among many."""
    try:
        _bind(task.func, task.takes_context, len(args), tuple(kwargs))
    except TypeError as error:
        call = "The call" if index is None else f"calls[{index}]"
        known = signature_of(task, Mask(mask_words(task.queue_name)))
        raise TypeError(f"{call} does not fit {task.module_path}{known}: {error}.") from None


def refused_call(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], index: int | None = None) -> TypeError:
    """Return the error for a call, which fits, with an argument that is not JSON; see check_call."""
    arguments = call_signature(task.func, task.takes_context).bind(*args, **kwargs).arguments
    return refusal(arguments, f" of {task.module_path}" + ("" if index is None else f" in calls[{index}]"))


def arguments_of(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, as they are stored; raise TypeError if they do not fit the task."""
    bound = call_signature(task.func, task.takes_context).bind(*args, **kwargs)
    return {
        name: normalize(list(value) if isinstance(value, tuple) else value) for name, value in bound.arguments.items()
    }


def bind(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError if arguments do not fit a task, with the reason only."""
    _bind(task.func, task.takes_context, len(args), tuple(kwargs))


@lru_cache(maxsize=1000)  # of calls that fit: what raises is not kept
def _bind(function: Callable[..., Any], takes_context: bool, count: int, names: tuple[str, ...]) -> None:
    """Raise TypeError if so many arguments and these names do not fit a function."""
    known = call_signature(function, takes_context)
    if all(each.kind is not Parameter.VAR_KEYWORD for each in known.parameters.values()):
        for name in names:  # bind says of a mistyped one that the right one is missing
            if name not in known.parameters:
                raise TypeError(f"got an unexpected keyword argument {name!r}")
    known.bind(*[None] * count, **dict.fromkeys(names))
    first = next(iter(signature(function).parameters.values()), None)
    if takes_context and first and first.kind is first.POSITIONAL_OR_KEYWORD and first.name in names:
        raise TypeError(f"{first.name!r} is passed by the worker")


def _parameters(task_path: str, queue_name: str, database: str | None) -> list[Parameter] | None:
    """Return the parameters of a task without its context.

    None if it is gone, if its module does not import, or if its function has no signature.
    """
    try:
        task = find_task(task_path, options_for(queue_name, database).task_modules)
        return [*call_signature(task.func, task.takes_context).parameters.values()]
    except Exception:
        return None


def signature_of(task: Task, mask: Mask) -> Signature:
    """Return the signature of a task as its callers see it: without its context, and without secret defaults."""
    known = call_signature(task.func, task.takes_context)
    parameters = [
        parameter.replace(default=MASKED)
        if parameter.default is not Parameter.empty and mask.names(parameter.name)
        else parameter
        for parameter in known.parameters.values()
    ]
    return known.replace(parameters=parameters)


def shown_call(entry: "AbstractJob") -> Any:
    """Return the arguments of a job by the names of the task's parameters, with what is secret hidden.

    Raise ValueError or RecursionError if they are not readable.
    """
    payload = mask_of(entry.task_path, entry.queue_name, entry._state.db).hide(decode(text_of(entry.payload)))
    return in_names(payload, entry.task_path, entry.queue_name, entry._state.db)


def in_names(payload: Any, task_path: str, queue_name: str, database: str | None) -> Any:
    """Return the payload of a call with its positional arguments by name.

    Where that is impossible (the task is gone, they do not fit) it is returned as it was stored.
    """
    match payload:
        case {"args": list(args), "kwargs": dict(kwargs)} if task_path:
            known = _parameters(task_path, queue_name, database) or []
            names = [each.name for each in known if each.kind in POSITIONAL[:2]]
            by_name = dict(zip(names, args, strict=False))
            if len(by_name) == len(args) and not by_name.keys() & kwargs.keys():
                return by_name | kwargs
    return payload


def searchable(payload: str, own: Mask) -> str:
    """Return a stored payload with what is secret hidden, otherwise as it was stored: what a search may find."""
    try:
        return dumps(own.hide(decode(payload)))
    except (TypeError, ValueError, RecursionError):
        return "" if own.conceals(payload) else payload
