"""The keys that are formed of the arguments of a call."""

from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from re import split
from string import Formatter
from typing import Any

from ..core.unique import checked_key
from .signatures import call_signature

KeyOf = Callable[..., str | None]  # of a call's arguments


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
