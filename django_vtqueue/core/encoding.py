"""JSON as this queue stores it: strict, so that what comes out is what went in.

Django's ``normalize_json`` lets NaN and keys that are not strings through (they come back as something else, or not
at all in other databases), and takes bytes for text; here they are refused in the caller, before anything is stored.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from django.utils.functional import Promise

from ..exceptions import PayloadTooLarge

NULL = "null"  # what most tasks return

# What to pass instead of values of these types: the first that fits.
CURES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((date, time), "its .isoformat()"),
    (timedelta, "its .total_seconds()"),
    ((Decimal, UUID, PurePath, Promise), "str() of it"),
    (Enum, "its .value"),
    ((bytes, bytearray, memoryview), "a string, decoded or in base64"),
    (Mapping, "dict() of it"),
    (Iterable, "list() of it"),
    (object, "strings, numbers, booleans, None, lists or dictionaries of them"),
)

SEARCHED = 100_000  # characters of a value in which the wrong part is looked for: each level of it is encoded once more

# In JSON text, what no database reads inside of it: a NUL character, or half of a pair of surrogates (``dumps`` escapes
# no other one). A backslash before it may be one that is escaped itself.
ILLEGIBLE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])")

# json.dumps would build an encoder for each call.
_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_escaped = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def normalize(value: Any) -> Any:
    """Return ``value`` as JSON's own types (tuples become lists); raise TypeError for what JSON cannot hold."""
    try:
        return _normal(value)
    except RecursionError as error:
        raise TypeError("This value is nested too deeply for JSON (or contains itself).") from error


def _normal(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is list or kind is tuple:
        return [_normal(item) for item in value]
    if kind is dict:
        return {_key(key): _normal(item) for key, item in value.items()}
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{value!r} is not JSON.")
        return value
    if isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        return {_key(key): _normal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    raise TypeError(f"{_name(kind)} is not JSON.")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"{key!r} is no key of JSON.")


def dumps(value: Any) -> str:
    """Return normalized ``value`` as compact JSON text that any database can store; raise TypeError if it has none."""
    try:
        text = _compact(value)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:  # lone surrogates: only their escapes are storable
        return _escaped(value)
    except (ValueError, RecursionError) as error:
        raise TypeError(f"This value has no JSON form: {error}") from error
    return text


def encode(value: Any, name: str = "value") -> str:
    """Return any JSON value as text; raise TypeError if it is none: what in it, by its path from ``name``, and why."""
    try:
        return NULL if value is None else dumps(normalize(value))
    except TypeError:
        raise refusal({name: value}) from None


def encode_result(value: Any, most: int | None) -> str:
    """Return a result as text; raise TypeError if it is not JSON, PayloadTooLarge for more than ``most`` bytes."""
    text = encode(value, "result")
    if most and len(text) > most // 4 and (size := len(text.encode())) > most:
        raise PayloadTooLarge(
            f"The result has {size:,} bytes, but this database takes {most:,} at most. Store the data elsewhere "
            "and return a reference to it."
        )
    return text


def legible(value: Any, name: str = "value", of: str = "") -> Any:
    """Return any JSON value, normalized, that a database reads inside of a row, as it does steps and events.

    Raise TypeError if it is none, or if one of its texts has a NUL character or half of a pair of surrogates:
    PostgreSQL can store that as an escape, but then reads nothing of the row's steps any more. ``of``: whose it is.
    """
    try:
        text = dumps(normalize(value))
    except TypeError:
        raise refusal({name: value}, of) from None
    if _illegible(text):
        path = name
        if len(text) <= SEARCHED:
            path, _ = _culprit({name: value}, "", lambda part: _illegible(dumps(normalize(part))))
        raise TypeError(
            f"{path.removeprefix('.')}{of} has a NUL character or half of a surrogate pair, which steps and events "
            "cannot hold: take it out, or pass the text in base64."
        )
    return decode(text)


def _illegible(text: str) -> bool:
    return "\\u" in text and ILLEGIBLE.search(text) is not None


def refusal(values: Mapping[str, Any], of: str = "") -> TypeError:
    """Return the error for values by their names, one of which is not JSON. ``of``: whose they are."""
    path, value = _culprit(values, "", _raises)
    found, cure = _found_and_cure(value)
    # The first two words are those of Django's own error.
    return TypeError(f"Unsupported type: {found}. {path.removeprefix('.')}{of} is not JSON: pass {cure}.")


def _culprit(value: Any, path: str, wrong: Callable[[Any], bool]) -> tuple[str, Any]:
    """Return the innermost part of a value that is ``wrong``, with the path to it: ``.order.lines[3].due``."""
    for step, part in _parts(value):
        try:
            if wrong(part):
                return _culprit(part, path + step, wrong)
        except RecursionError:  # it contains itself, or nearly
            return path + step, part
    return path, value


def _raises(value: Any) -> bool:
    """Return whether a value cannot be encoded; raise RecursionError if it is nested too deeply for that."""
    try:
        dumps(normalize(value))
    except TypeError as error:
        if isinstance(error.__cause__, RecursionError):
            raise error.__cause__ from None
        return True
    return False


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]", item
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield f"[{index}]", item


def _found_and_cure(value: Any) -> tuple[str, str]:
    """Return what a value is that cannot be encoded, though its parts can, and what to pass instead."""
    kind = _name(type(value))
    match value:
        case dict() if keys := [key for key in value if not isinstance(key, str)]:
            return f"{_name(type(keys[0]))} as a key ({keys[0]!r:.50})", "strings as keys"
        case dict() | list() | tuple():
            return f"{kind} that is nested too deeply or contains itself", "a flatter one"
        case float():
            return f"{kind} that is {float(value)}", "None or a string"
        case int():
            return f"{kind} of too many digits", "hex() of it"
        case _ if hasattr(type(value), "pk"):
            return kind, "its primary key, .pk"
    return kind, next(cure for kinds, cure in CURES if isinstance(value, kinds))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def decode(text: str) -> Any:
    """Return the value of stored JSON text; raise ValueError if it is damaged."""
    try:
        return None if text == NULL else json.loads(text)
    except RecursionError as error:
        raise ValueError("The stored JSON is nested too deeply to be read.") from error
