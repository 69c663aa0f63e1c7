"""The arithmetic and the forms: no database, and no clock but where it is the matter."""

import json
import math
import os
import re
import traceback
from collections import UserDict, deque
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings as django_settings
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pytest_django import Settings

from django_vtqueue import conf
from django_vtqueue.core import backoff, clock, encoding, failures, history, ids, settlement, states
from django_vtqueue.core.clock import SECOND
from django_vtqueue.core.grace import REST, REST_DIVISOR
from django_vtqueue.core.job import HeldJob
from django_vtqueue.exceptions import LeaseExpired, LeaseLost, PayloadTooLarge, Retry, VTQueueError
from django_vtqueue.fields import InstantField
from django_vtqueue.models import Job
from django_vtqueue.worker.transactional_line import LONGEST_REST
from tests.project.broken import BROKEN

# -- when to try again ------------------------------------------------------------------------------------------------

jitters = st.floats(0, 1)
attempts = st.integers(1, 10**6)


def test_backoff_doubles() -> None:
    """2, 4, 8 … 512 seconds: the default's ten attempts take 17 minutes."""
    delays = [backoff.backoff_delay(2, 3600, attempt, jitter=0) for attempt in range(1, 10)]
    assert delays == [2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert sum(delays) == 1022


def test_backoff_sequence() -> None:
    """Each attempt has its own delay; the last one is repeated."""
    assert [backoff.backoff_delay((1, 5, 60), 3600, attempt, 0) for attempt in range(1, 6)] == [1, 5, 60, 60, 60]
    assert backoff.backoff_delay((), 3600, 1, 0) == 0


def test_backoff_cap() -> None:
    """Never more than the cap, by doubling or by sequence."""
    assert backoff.backoff_delay(2, 100, 50, 0) == 100
    assert backoff.backoff_delay((7, 5000), 100, 2, 0) == 100


def test_backoff_jitter() -> None:
    """Up to a fifth less, by jitter, so that what failed together does not come back together."""
    assert [backoff.backoff_delay(10, 3600, 1, jitter) for jitter in (0, 0.5, 1)] == [10, 9, 8]


@given(
    given_backoff=st.floats(0, 1e9) | st.lists(st.floats(0, 1e9), max_size=5), cap=st.floats(0, 1e9), attempt=attempts,
    jitter=jitters,
)  # fmt: skip
def test_backoff_is_always_a_delay(given_backoff: Any, cap: float, attempt: int, jitter: float) -> None:
    """Whatever the attempt: finite, never negative, never above the cap, and not shorter for a later attempt."""
    delay = backoff.backoff_delay(given_backoff, cap, attempt, jitter)
    assert 0 <= delay <= cap
    if isinstance(given_backoff, float):
        assert backoff.backoff_delay(given_backoff, cap, attempt + 1, jitter) >= delay


@given(waited=st.floats(0, 1e6), jitter=jitters)
def test_busy_pause(waited: float, jitter: float) -> None:
    """About a millisecond for a whole second, two for ten, and only then five."""
    pause = backoff.busy_pause(waited, jitter)
    expected = 0.001 if waited < 1 else 0.002 if waited < 10 else 0.005
    assert 0.5 * expected <= pause <= 1.5 * expected + 1e-9


@given(waited=st.floats(0, 1e6), jitter=jitters, left=st.floats(-1e6, 0.49))
def test_who_holds_a_lease_that_ends_or_has_ended_asks_for_the_lock_each_millisecond(
    waited: float, jitter: float, left: float
) -> None:
    """However long that takes: whoever is free first after a lock must be its holder."""
    assert 0.0005 <= backoff.busy_pause(waited, jitter, left) <= 0.0015


@given(waited=st.floats(0, 1e6), jitter=jitters)
def test_who_will_hold_the_lock_for_long_asks_for_it_less_often(waited: float, jitter: float) -> None:
    """What holds it briefly gets it first; but the worker that has had it begins its next transaction later."""
    pause = backoff.long_hold_pause(waited, jitter)
    assert pause >= 0.99 * backoff.busy_pause(min(waited, 0.9), jitter)
    assert pause < LONGEST_REST
    if waited > 1:
        assert pause > 4 * backoff.busy_pause(1, jitter)


@given(st.integers(1, 10**6))
def test_trouble_pause(tries: int) -> None:
    """From 0.1 s, doubled with each failure, to 2.5 s, and to half of what a claim leaves to the holder of a lease."""
    assert 0.1 <= backoff.trouble_pause(tries) <= backoff.trouble_pause(tries + 1) <= 2.5
    assert [backoff.trouble_pause(number) for number in (1, 2, 3, 99)] == [0.1, 0.2, 0.4, 2.5]
    for lease in (3, 15, 3600):
        rest = min(lease / REST_DIVISOR, REST / SECOND)
        assert backoff.trouble_pause(99, lease) <= rest / 2


# -- JSON -------------------------------------------------------------------------------------------------------------

texts = st.text(st.characters())  # lone surrogates and NUL among them
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda children: st.lists(children) | st.dictionaries(texts, children),
)


@given(values)
def test_json_round_trip(value: Any) -> None:
    """What comes out is what went in, types and all."""
    again = encoding.decode(encoding.encode(value))
    assert again == value
    assert repr(again) == repr(value)


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
        (Colour.RED, "tests.core.test_pure.Colour. root is not JSON: pass its .value."),
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


# -- history ----------------------------------------------------------------------------------------------------------


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


# -- failures ---------------------------------------------------------------------------------------------------------


def caught(raising: Callable[[], Any]) -> BaseException:
    try:
        raising()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def divide() -> float:
    return 1 / 0


def test_describe() -> None:
    """The dotted path that Django's TaskError has, the words, and the traceback as Python prints it."""
    error = caught(divide)
    told = failures.describe(error)
    assert told.exception_class == "builtins.ZeroDivisionError"
    assert told.message == "division by zero"
    assert told.traceback == "".join(traceback.format_exception(error))
    assert "in divide" in told.traceback


def test_describe_shows_the_causes_and_the_notes() -> None:
    """What Python's own traceback shows of an exception is kept."""

    def chain() -> None:
        try:
            divide()
        except ZeroDivisionError as error:
            error.add_note("while measuring")
            raise LookupError("no sensor") from error

    told = failures.describe(caught(chain))
    assert "while measuring" in told.traceback
    assert "direct cause" in told.traceback
    assert told.message == "no sensor"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit


class NotEvenText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


@pytest.mark.parametrize("error", [Unprintable(), NotEvenText(), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_describe_never_raises(error: BaseException) -> None:
    """Also of an exception that cannot be printed there is a description."""
    told = failures.describe(error)
    assert type(error).__name__ in told.exception_class
    assert type(error).__name__ in told.traceback
    assert told.fingerprint


@pytest.mark.parametrize("kind", BROKEN.values(), ids=BROKEN)
def test_describe_of_what_fails_when_it_is_looked_at(kind: type[Exception]) -> None:
    """Of it there is at least our own text."""
    error = kind("text")
    told = failures.describe(error)
    assert told.exception_class
    assert told.message
    assert told.fingerprint


def test_describe_of_an_endless_recursion() -> None:
    """A stack of a thousand frames is cut down like any other text."""

    def deeper(depth: int) -> int:
        return deeper(depth + 1) + 1

    told = failures.describe(caught(lambda: deeper(0)))
    assert told.exception_class == "builtins.RecursionError"
    assert len(told.traceback) < failures.MAX_TRACEBACK + 100


@given(texts, st.integers(2, 100))
def test_shorten(text: str, limit: int) -> None:
    """Head and tail are kept, and it is said how much is missing; what is short enough is left alone."""
    short = failures.shorten(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        half = limit // 2
        assert short.startswith(text[:half])
        assert half == 0 or short.endswith(text[-half:])
        assert f"[... {len(text) - 2 * half} characters left out ...]" in short
        assert len(short) < limit + 50


@given(texts)
def test_storable(text: str) -> None:
    """No NUL, no lone surrogates: what any database stores; anything else is left as it is."""
    kept = failures.storable(text)
    assert "\0" not in kept
    assert kept.encode().decode() == kept
    if text.isprintable():
        assert kept == text


@given(texts)
def test_the_longest_of_messages(text: str) -> None:
    """Messages and tracebacks are cut before they are stored."""
    told = failures.describe(ValueError(text * 2000))
    assert len(told.message) < 8 * failures.MAX_MESSAGE
    assert len(told.traceback) < 8 * failures.MAX_TRACEBACK
    assert "\0" not in told.message + told.traceback


def raise_one(kind: type[Exception], words: str) -> None:
    raise kind(words)


def test_fingerprint() -> None:
    """The same for failures of one class from one place, whatever their words; another for another class or place."""

    def elsewhere() -> None:
        raise ValueError("a")

    same = {
        failures.describe(caught(lambda words=words: raise_one(ValueError, words))).fingerprint  # type: ignore[misc]
        for words in ("a", "b", "c" * 5000)
    }
    other_class = failures.describe(caught(lambda: raise_one(KeyError, "a"))).fingerprint
    other_place = failures.describe(caught(elsewhere)).fingerprint
    assert len({*same, other_class, other_place}) == 3
    assert {len(text) for text in same} == {16}


def test_fingerprint_of_a_failure_in_a_library() -> None:
    """Two places of the project that call the same library are two; the way from there to the error is none."""

    def here(text: str) -> None:
        re.compile(text)

    def there(text: str) -> None:
        re.compile(text)

    same = {failures.describe(caught(lambda text="(" * deep: here(text))).fingerprint for deep in (1, 3, 9)}  # type: ignore[misc]
    assert len({*same, failures.describe(caught(lambda: there("("))).fingerprint}) == 2


def test_recorded() -> None:
    """A failure without an exception to show, such as a lease that expired, has the same form."""
    told = failures.recorded(LeaseExpired, "held by w1")
    assert (told.exception_class, told.message) == ("django_vtqueue.exceptions.LeaseExpired", "held by w1")
    assert told.fingerprint == failures.recorded(LeaseExpired, "held by w2").fingerprint


# -- ids --------------------------------------------------------------------------------------------------------------


def test_new_id_is_a_uuid_of_version_7() -> None:
    """With the time in front, to the fraction of a millisecond, and different each time."""
    before = clock.now()
    made = [UUID(ids.new_id()) for _ in range(1000)]
    after = clock.now()
    assert {(made_id.version, made_id.variant) for made_id in made} == {(7, "specified in RFC 4122")}
    assert len(set(made)) == 1000
    for made_id in made:
        milliseconds, fraction = made_id.int >> 80, (made_id.int >> 64) & 0xFFF
        assert before - 1 <= milliseconds * 1000 + fraction * 1000 / 4096 <= after + 1


def test_ids_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later id is greater, from a quarter of a microsecond on."""
    now = 1_800_000_000_000_000_000

    def made(later: int) -> str:
        monkeypatch.setattr("time.time_ns", lambda: now + later)
        return ids.new_id()

    times = [0, 250, 1000, 999_999, 1_000_000, 10**12]
    sorted_ids = [made(later) for later in times]
    assert sorted_ids == sorted(sorted_ids)


def test_ids_made_at_once_are_in_order() -> None:
    """Of many jobs the one that was given first has the smallest id; none is made twice, whatever is made meanwhile."""
    made = [job_id for count in (0, 1, 5000, 2) for job_id in ids.new_ids(count)]
    first = made[1:5001]
    assert first == sorted(first)
    assert len(set(made)) == len(made) == 5003
    assert {UUID(job_id).version for job_id in made} == {7}
    assert {job_id[16] for job_id in made} == set("89ab")


@given(st.uuids())
def test_parse_id(value: UUID) -> None:
    """A UUID in any of its spellings is that UUID."""
    for spelling in (value, str(value), value.hex, str(value).upper(), f"{{{value}}}", value.urn):
        assert ids.parse_id(spelling) == value
    assert ids.dashed(value.hex) == str(value)


@given(st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.text()))
def test_parse_id_of_anything(value: Any) -> None:
    """What is no id is None, never an error."""
    found = ids.parse_id(value)
    assert found is None or isinstance(found, UUID)


def test_worker_ids() -> None:
    """People know a worker by host and pid; the random end is new with each start, and with each fork."""
    first, second = ids.new_worker_id(), ids.new_worker_id()
    assert first != second
    assert ids.shown_worker(first) == ids.shown_worker(second)
    assert ids.shown_worker(first).endswith(f":{os.getpid()}")
    assert ids.shown_worker("odd") == "odd"
    assert ids.process_worker_id() == ids.process_worker_id()


def test_a_forked_child_holds_in_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes must never pass for one holder."""
    mine = ids.process_worker_id()
    monkeypatch.setattr("os.getpid", lambda: 999_999_999)
    child = ids.process_worker_id()
    assert child != mine
    assert child == ids.process_worker_id()


# -- instants ---------------------------------------------------------------------------------------------------------

zones = st.sampled_from([UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-9.5))])
moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones)


@given(moments)
def test_aware_moments_round_trip(moment: datetime) -> None:
    """To the microsecond, whatever the zone."""
    again = clock.from_instant(clock.to_instant(moment))
    assert again == moment.astimezone(UTC)
    assert again.tzinfo is UTC


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_integer_can_be_shown(instant: int) -> None:
    """What no datetime can hold (a row edited by hand) is the nearest one that exists."""
    moment = clock.from_instant(instant)
    if clock.to_instant(clock.FIRST) <= instant <= clock.to_instant(clock.LAST):
        assert clock.to_instant(moment) == instant
    else:
        assert moment == (clock.LAST if instant > 0 else clock.FIRST)


@pytest.fixture
def berlin(settings: Settings) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"


def test_naive_moments_are_local_time(berlin: None) -> None:
    """With USE_TZ off moments are naive, in TIME_ZONE, both ways."""
    noon = datetime(2030, 7, 1, 12)
    assert clock.to_instant(noon) == clock.to_instant(datetime(2030, 7, 1, 10, tzinfo=UTC))
    assert clock.from_instant(clock.to_instant(noon)) == noon
    assert clock.from_instant(clock.to_instant(datetime(2030, 1, 1, tzinfo=UTC))) == datetime(2030, 1, 1, 1)


def test_the_hour_that_comes_twice(berlin: None) -> None:
    """When daylight saving ends, ``fold`` tells the two apart, and the instants between them are an hour long."""
    first, second = datetime(2030, 10, 27, 2, 30), datetime(2030, 10, 27, 2, 30, fold=1)
    assert clock.to_instant(second) - clock.to_instant(first) == 3600 * clock.SECOND
    for moment in (first, second):
        again = clock.from_instant(clock.to_instant(moment))
        assert (again, again.fold) == (moment, moment.fold)
        assert clock.to_instant(again) == clock.to_instant(moment)


def test_the_hour_that_does_not_exist(berlin: None) -> None:
    """When daylight saving begins, a time in the gap is one of the two that it may mean, and no error."""
    gap = datetime(2030, 3, 31, 2, 30)
    before, after = datetime(2030, 3, 31, 1, 59), datetime(2030, 3, 31, 3, 31)
    assert clock.to_instant(before) < clock.to_instant(gap) < clock.to_instant(after)


def test_extreme_moments_without_time_zones(berlin: None) -> None:
    """The first and the last moment can be shown in any zone."""
    assert clock.from_instant(2**62).year == 9999
    assert clock.from_instant(-(2**62)).year == 1


@given(st.floats(-1e10, 1e10))
def test_microseconds(seconds: float) -> None:
    """Seconds and timedeltas of the same length are the same duration."""
    assert clock.microseconds(seconds) == round(seconds * 1_000_000)
    assert clock.microseconds(timedelta(microseconds=clock.microseconds(seconds))) == clock.microseconds(seconds)


@pytest.mark.parametrize("value", [None, "5", True, 1j, math.nan, math.inf, -math.inf, 1e11, -1e300, timedelta.max])
def test_what_is_no_duration(value: Any) -> None:
    """ValueError that names it: nothing that a database could not add to an instant gets through."""
    with pytest.raises(ValueError, match="number of seconds"):
        clock.microseconds(value)


def test_now_is_the_wall_clock() -> None:
    """In microseconds since 1970, UTC."""
    assert abs(clock.now() / 1e6 - datetime.now(UTC).timestamp()) < 60
    assert clock.since_boot() <= clock.since_boot()


@given(moments)
def test_instant_field(moment: datetime) -> None:
    """A field of a moment takes datetimes, integers and ISO text, and gives what it was given."""
    field = InstantField()
    instant = clock.to_instant(moment)
    assert field.get_prep_value(moment) == field.get_prep_value(instant) == instant
    assert field.get_prep_value(moment.isoformat()) == instant
    assert field.from_db_value(instant, None, None) == moment.astimezone(UTC)
    assert field.get_prep_value(None) is None
    assert field.from_db_value(None, None, None) is None


# -- settings ---------------------------------------------------------------------------------------------------------


def test_policy_of_a_queue() -> None:
    """queue_options before OPTIONS before the defaults."""
    options = conf.parse(
        {
            "QUEUES": [],
            "OPTIONS": {
                "max_attempts": 3,
                "backoff": [1, timedelta(seconds=5)],
                "queue_options": {"mails": {"max_attempts": 7, "visibility_timeout": timedelta(minutes=5)}},
            },
        }
    )
    assert options.policy("mails") == conf.Policy(max_attempts=7, backoff=(1, 5), visibility_timeout=300)
    assert options.policy("any") == conf.Policy(max_attempts=3, backoff=(1, 5))
    assert options.policy("any") is options.policy("any")


def test_the_defaults_are_those_of_the_documentation() -> None:
    """Changing one is a change for every user."""
    options = conf.parse({})
    assert (options.visibility_timeout, options.heartbeat, options.max_attempts) == (60, True, 10)
    assert (options.backoff, options.backoff_max) == (2, 3600)
    assert (options.result_ttl, options.dead_letter_ttl) == (86400, None)
    assert (options.max_payload_bytes, options.threads, options.database) == (1_000_000, 4, None)
    assert options.queues == {"default"}


def test_settings_are_read_anew_after_they_changed(settings: Settings) -> None:
    """A test with settings of its own sees them, and leaves nothing behind."""
    before = conf.configured()
    assert conf.configured() is before
    settings.TASKS = {
        "a": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "OPTIONS": {"threads": 9}},
        "b": {"BACKEND": f"{task_framework()}.backends.dummy.DummyBackend"},
    }
    assert {alias: options.threads for alias, options in conf.configured().items()} == {"a": 9}
    settings.TASKS = {}
    assert conf.configured() == {}


def task_framework() -> str:
    return "django_tasks" if "django_tasks" in django_settings.INSTALLED_APPS else "django.tasks"


@pytest.mark.parametrize(("word", "meant"), [("max_atempts", "max_attempts"), ("visibility", "visibility_timeout")])
def test_nearest(word: str, meant: str) -> None:
    """A misspelled option is answered with the one that was probably meant."""
    assert conf.nearest(word, list(conf.POLICY)) == f"did you mean {meant!r}?"


def test_nearest_of_nothing_like_it() -> None:
    """Otherwise with all that are known."""
    assert conf.nearest("zzz", ["b", "a"]) == "known are a, b."


# -- words and errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "visible_at", "attempts", "word"),
    [
        (states.READY, 5, 0, "due"),
        (states.READY, 10, 3, "due"),
        (states.READY, 11, 0, "scheduled"),
        (states.READY, 11, 1, "retrying"),
        (states.RUNNING, 11, 1, "running"),
        (states.RUNNING, 10, 1, "expired"),
        (states.SUCCESSFUL, 5, 1, "done"),
        (states.FAILED, 5, 1, "dead"),
    ],
)
def test_state_words(state: str, visible_at: int, attempts: int, word: str) -> None:
    """What people see at instant 10."""
    assert states.word(state, visible_at, attempts, now=10) == word
    assert word in states.WORDS


def test_errors() -> None:
    """What the queue raises is one family; what a task raises to speak of itself is not of it."""
    assert issubclass(LeaseLost, VTQueueError)
    assert issubclass(PayloadTooLarge, ValueError)
    assert not issubclass(Retry, VTQueueError)
    assert str(Retry("later", delay=5)) == "later"


def held(attempts: int, max_attempts: int) -> HeldJob:
    return HeldJob("0" * 32, "q", "", 0, 100, 1, attempts, max_attempts, "w", 60, 0, 5, "1", "[]", 0)


@given(st.integers(1, 50), st.integers(0, 50), st.none() | st.integers(0, 10**9))
def test_a_failed_attempt_is_retried_or_ends_the_job(attempts: int, max_attempts: int, delay: int | None) -> None:
    """A further attempt, if one is left and wanted: then and only then the job stays in the queue."""
    failure = failures.recorded(LeaseExpired, "x")
    ending = settlement.failed(held(attempts, max_attempts), history.FAILED, failure, 1000, delay)
    left = max_attempts == 0 or attempts < max_attempts
    if left and delay is not None:
        assert (ending.state, ending.due_at, ending.finished_at) == (states.READY, 1000 + delay, None)
    else:
        assert (ending.state, ending.due_at, ending.finished_at) == (states.FAILED, None, 1000)
    assert ending.attempts == attempts
    assert len(history.read(ending.history or "")) == 1


def test_a_dead_letters_words_fit_their_columns() -> None:
    """The class and the message of a failure are indexed columns of 255 characters."""
    failure = failures.Failure("x" * 999, "m" * 999, "t", "f")
    ending = settlement.failed(held(1, 1), history.FAILED, failure, 1000, 0)
    assert ending.failure is not None
    assert (len(ending.failure.exception_class), len(ending.failure.message)) == (255, 255)
    assert history.read(ending.history or "")[0]["message"] == "m" * 999
