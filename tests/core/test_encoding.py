"""Payloads and results as JSON: what goes in comes out, and what is not JSON is refused in words."""

import re
from collections import UserDict, deque
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.utils.translation import gettext_lazy
from hypothesis import given

from django_vtqueue.core import encoding
from django_vtqueue.models import Job

from .texts import stored, values


@given(values)
def test_json_round_trip(value: Any) -> None:
    """What comes out is what went in, types and all."""
    again = encoding.decode(encoding.encode(value))
    assert again == value
    assert repr(again) == repr(value)


@given(stored)
def test_any_stored_text(text: str) -> None:
    """A stored text is a value, or damaged; nothing else comes out of it."""
    try:
        value = encoding.decode(text)
    except ValueError:
        return
    with suppress(TypeError):
        assert encoding.decode(encoding.encode(value)) == value


@given(values)
def test_json_can_be_stored_anywhere(value: Any) -> None:
    """The text is UTF-8 without NUL, whatever was in it."""
    text = encoding.encode(value)
    assert "\0" not in text
    assert text.encode().decode() == text


@given(values)
def test_normalize_is_what_decode_gives(value: Any) -> None:
    """The arguments that an enqueue returns are those that the task will be given."""
    assert encoding.normalize(value) == encoding.decode(encoding.encode(value))


def test_normalize_makes_jsons_own_types() -> None:
    """Tuples become lists, also deep inside."""
    given_ = {"a": ((1, 2), "é"), "b": [{"c": (None,)}]}
    assert encoding.normalize(given_) == {"a": [[1, 2], "é"], "b": [{"c": [None]}]}


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "float that is nan. root is not JSON: pass None or a string."),
        ([float("inf")], "float that is inf. root[0] is not JSON: pass None or a string."),
        ({1: 2}, "int as a key (1). root is not JSON: pass strings as keys."),
        ({"a": {(1,): 2}}, "tuple as a key ((1,)). root.a is not JSON: pass strings as keys."),
        (
            [{"due on": {"b": b"text"}}],
            "bytes. root[0]['due on'].b is not JSON: pass a string, decoded or in base64.",
        ),
        (bytearray(b"text"), "bytearray. root is not JSON: pass a string, decoded or in base64."),
        (memoryview(b"text"), "memoryview. root is not JSON: pass a string, decoded or in base64."),
        (object(), "object. root is not JSON: pass strings, numbers, booleans, None, lists or dictionaries of them."),
        (datetime(2030, 1, 1), "datetime.datetime. root is not JSON: pass its .isoformat()."),
        (date(2030, 1, 1), "datetime.date. root is not JSON: pass its .isoformat()."),
        (timedelta(1), "datetime.timedelta. root is not JSON: pass its .total_seconds()."),
        (UUID(int=1), "uuid.UUID. root is not JSON: pass str() of it."),
        (Decimal("1.5"), "decimal.Decimal. root is not JSON: pass str() of it."),
        ((1, (2, Path("a"))), f"{Path.__module__}.PosixPath. root[1][1] is not JSON: pass str() of it."),
        (gettext_lazy("a"), "django.utils.functional.lazy.<locals>.__proxy__. root is not JSON: pass str() of it."),
        (Colour.RED, "tests.core.test_encoding.Colour. root is not JSON: pass its .value."),
        (Job(), "django_vtqueue.models.jobs.Job. root is not JSON: pass its primary key, .pk."),
        ({1, 2}, "set. root is not JSON: pass list() of it."),
        (range(3), "range. root is not JSON: pass list() of it."),
        (deque([1]), "collections.deque. root is not JSON: pass list() of it."),
        (UserDict(a=1), "collections.UserDict. root is not JSON: pass dict() of it."),
        (10**5000, "int of too many digits. root is not JSON: pass hex() of it."),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_not_json(value: Any, words: str) -> None:
    """TypeError, and its text says what was found, where, and what to pass instead."""
    with pytest.raises(TypeError, match=re.escape(f"Unsupported type: {words}") + "$"):
        encoding.encode(value, "root")


def test_json_of_endless_depth() -> None:
    """A value that contains itself, or a text nested too deeply: an error of ours, not a RecursionError."""
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(TypeError, match="nested too deeply"):
        encoding.normalize(circle)
    with pytest.raises(TypeError, match=r"contains itself\. value is not JSON: pass a flatter"):
        encoding.encode({"a": circle})
    with pytest.raises(ValueError, match="nested too deeply"):
        encoding.decode("[" * 1_000_000)


@pytest.mark.parametrize("text", ["", "{", "nope", "[1,]", "'a'"])
def test_damaged_json(text: str) -> None:
    """ValueError, which is what a damaged row is to everybody above."""
    with pytest.raises(ValueError):  # noqa: PT011
        encoding.decode(text)
