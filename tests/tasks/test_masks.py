"""What a mask hides of a payload, and what of it a text must not repeat: values alone, no database."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_vtqueue.core.failures import MAX_MESSAGE, describe
from django_vtqueue.core.masks import MASKED, Mask, replaced

MASK = Mask(("password", "token"))

SHOWN: dict[str, tuple[Any, Any]] = {
    "a part of a key, in any case": ({"Session-TOKEN": 1, "n": 2}, {"Session-TOKEN": MASKED, "n": 2}),
    "nested": ({"user": {"password": {"a": 1}, "n": 2}}, {"user": {"password": MASKED, "n": 2}}),
    "in a list": ([{"token": 1}, [{"n": 2, "token": 3}]], [{"token": MASKED}, [{"n": 2, "token": MASKED}]]),
    "JSON in a text": ({"body": '{"n": 1, "password": "x"}', "n": 2}, {"body": MASKED, "n": 2}),
    "JSON in JSON": ([json.dumps({"a": json.dumps([{"token": 1}])})], [MASKED]),
    "a text that is JSON": ('{"token": 1}', MASKED),
    "JSON encoded twice": (json.dumps(json.dumps({"token": 1})), MASKED),
    "JSON that was cut off": (['{"n": 1, "password": "hunt'], [MASKED]),
    "a dictionary printed by Python": (["{'password': 'x'}", "[{'n': 1}]"], [MASKED, "[{'n': 1}]"]),
    "other JSON": (['{"n": 1}', "[1, 2]"], ['{"n": 1}', "[1, 2]"]),
    "other texts": (["[Shop] your password", "no token", '"'], ["[Shop] your password", "no token", '"']),
    "no words in values": ({"kind": "password"}, {"kind": "password"}),
    "a value": (7, 7),
}


@pytest.mark.parametrize(("value", "shown"), SHOWN.values(), ids=SHOWN)
def test_keys(value: Any, shown: Any) -> None:
    """A value is hidden if a key above it contains one of the words, also a key of JSON that stands in a text."""
    assert MASK.hide(value) == shown


def test_positions() -> None:
    """Arguments are hidden by their positions; what comes behind these shares one answer."""
    call: dict[str, Any] = {"args": [1, 2, 3, 4], "kwargs": {"n": 5}}
    some, rest = Mask((), (False, True)), Mask((), (False, True), behind=True)
    assert some.hide(json.loads(json.dumps(call)))["args"] == [1, MASKED, 3, 4]
    assert rest.hide(json.loads(json.dumps(call)))["args"] == [1, MASKED, MASKED, MASKED]
    assert rest.hide(call)["kwargs"] == {"n": 5}


def test_deep_values() -> None:
    """A value is hidden, and not repeated, however deeply it is nested."""
    payload = "[" * 800 + '{"password":"hunter2"}' + "]" * 800
    value = MASK.hide(json.loads(payload))
    for _ in range(800):
        [value] = value
    assert value == {"password": MASKED}
    assert MASK.texts(payload) == ["hunter2"]


SECRET = "xä/qq\\'jj\"zz &1"
REPEATED = {
    "as it is": f"no user has {SECRET}",
    "quoted by Python": f"no user has {SECRET!r}, {[SECRET]}",
    "as JSON": json.dumps({"user": {"password": SECRET}}),
    "as JSON with other letters": json.dumps([SECRET], ensure_ascii=False),
    "in an address": f"404 for https://example.com/?{urlencode({'password': SECRET})}",
    "inside a word": f"key_{SECRET}_1",
    "twice": SECRET + SECRET,
}


@pytest.mark.parametrize("text", REPEATED.values(), ids=REPEATED)
def test_texts(text: str) -> None:
    """A text that repeats what is hidden has dots there, in whichever usual way it was written; the rest is left."""
    secrets = MASK.texts(json.dumps({"args": [], "kwargs": {"password": SECRET, "n": "user"}}))
    left = replaced(text, secrets)
    assert MASKED in left
    assert not any(part in left for part in ("qq", "jj", "zz", "%2F"))
    assert ("user" in left) == ("user" in text)


def test_what_texts_must_not_repeat() -> None:
    """Texts and numbers below a key that is hidden, nested ones too, of four characters or more, the longest first."""
    payload = {
        "token": {"a": ["longest one", 1234, 1.25], "b": [True, None, "abc", 12, "    ", {"c": '{"d": "inside"}'}]},
        "password": "two\n lines",
        "open": "shown",
    }
    found = MASK.texts(json.dumps(payload))
    assert {"longest one", "1234", "1.25", "inside", "two\n lines", "lines", "two\\n lines"} <= {*found}
    assert not {"True", "None", "abc", "12", "    ", "two", "shown"} & {*found}
    assert [*map(len, found)] == sorted(map(len, found), reverse=True)
    assert MASK.texts('{"password": "hunter2"') == []


def test_a_text_that_is_cut() -> None:
    """A message that is too long is cut after its secrets are hidden: no half of one is left at the cut."""
    text = "x" * (MAX_MESSAGE // 2 - 3) + "hunter2" + "y" * MAX_MESSAGE
    told = describe(ValueError(text), ["hunter2"])
    assert MASKED[:3] in told.message
    assert "hun" not in told.message + told.traceback


def test_groups_and_notes() -> None:
    """Neither a note, nor a cause, nor a member of a group repeats a secret, though it be of several lines."""
    secret = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\n-----END KEY-----"
    member = ValueError(f"bad key {secret}")
    member.add_note(f"it was {secret}")
    error = ExceptionGroup("many", [member])
    error.__cause__ = KeyError(secret)
    told = describe(error, MASK.texts(json.dumps({"password": secret})))
    assert "MIIE" not in told.traceback
    assert "bad key" in told.traceback


@given(st.lists(st.text(min_size=1) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
def test_any_secret(values: list[Any]) -> None:
    """Whatever the values are, hiding them in a text never fails, and none that was said alone is left."""
    secrets = MASK.texts(json.dumps({"password": values}))
    for value in values:
        if len(str(value).strip()) >= 4:
            assert str(value) not in replaced(f"<{value}>", secrets) or str(value) in f"<{MASKED}>"
