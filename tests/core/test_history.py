"""The history of a job: what is kept of its attempts, also of a damaged one."""

import json

from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from django_vtqueue.core import failures, history

from .texts import json_values, stored, values


def ended(number: int) -> history.Entry:
    return history.entry(number, f"w{number}", number, number + 1, history.FAILED, None)


def written(count: int) -> str:
    """Return the history of so many attempts."""
    text = history.EMPTY
    for number in range(1, count + 1):
        assert history.number(text) == number
        text = history.append(text, ended(number))
    return text


@given(st.integers(0, 120))
@examples(max_examples=30)
def test_history_caps(count: int) -> None:
    """The first 5 and the last 45 entries are kept; together with those left out they are always all."""
    text = written(count)
    entries = history.read(text)
    numbers = [entry["number"] for entry in entries if "number" in entry]
    if count <= 50:
        assert numbers == list(range(1, count + 1))
    else:
        assert numbers == [*range(1, 6), *range(count - 44, count + 1)]
        assert entries[5] == {"omitted": count - 50}
    assert sum(history.count(entry) for entry in entries) == count
    workers = history.workers(entries)
    assert len(workers) == count
    assert [name for name in workers if name] == [f"w{number}" for number in numbers]


def test_an_entry_has_what_is_known() -> None:
    """Of a failure its class, words and traceback; of a release nothing of the kind."""
    failure = failures.Failure("app.Error", "no luck", "Traceback …", "f00")
    assert history.entry(3, "w", None, 9, history.RETRY, failure) == {
        "number": 3,
        "worker": "w",
        "started": None,
        "ended": 9,
        "outcome": "retry",
        "exception_class": "app.Error",
        "message": "no luck",
        "traceback": "Traceback …",
    }
    assert "exception_class" not in ended(1)


damaged = st.sampled_from(
    ["", "{", "null", "7", '"x"', "{}", "[1]", "[null]", "[" * 100_000, '[{"omitted": "x"}]', '[{"x": 1e999}]']
)


@given(damaged | st.text() | values.map(json.dumps))
def test_a_damaged_history_can_be_read_and_added_to(text: str) -> None:
    """Whatever somebody wrote into the row: it is shown, counted, and goes on."""
    entries = history.read(text)
    assert all(isinstance(entry, dict) for entry in entries)
    assert len(history.workers(entries)) == history.number(text) - 1 or not entries
    again = history.read(history.append(text, ended(1)))
    assert ended(1) in again


def test_a_history_is_bounded() -> None:
    """A job that is retried for ever stays small: below a megabyte with the longest of tracebacks."""
    failure = failures.Failure("app.Error", "m" * failures.MAX_MESSAGE, "t" * failures.MAX_TRACEBACK, "f00")
    text = history.EMPTY
    for number in range(120):
        text = history.append(text, history.entry(number, "w", 1, 2, history.FAILED, failure))
    assert len(text) < 50 * (failures.MAX_TRACEBACK + failures.MAX_MESSAGE + 500) < 1_000_000


ENTRIES = st.lists(
    st.dictionaries(st.sampled_from([*history.Entry.__annotations__, "x"]), json_values, max_size=5), max_size=4
)


@given(stored | ENTRIES.map(json.dumps))
@example('[{"number": 1e400}]')
@example('[{"x": NaN}]')
def test_any_history(text: str) -> None:
    """It is read, counted and added to, whatever it is; the new entry is always there."""
    number = history.number(text)
    assert number >= 1
    assert history.crashes(text) >= 0
    assert len(history.workers(history.read(text))) == number - 1
    new = history.entry(number, "w", 1, 2, history.FAILED, None)
    assert new in history.read(history.append(text, new))
