"""Pausing a queue and resuming it."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone, translation
from pytest_django import Settings

from django_vtqueue import Queue
from django_vtqueue.core.clock import from_instant
from django_vtqueue.models import QueueState
from django_vtqueue.queue import arguments, pauses
from django_vtqueue.queue.pauses import pause, paused, resume, sentence
from tests.fake_clock import FakeClock, at
from tests.pending import run_pending
from tests.project import tasks

from ..waiting import PATIENCE, wait_until

pytestmark = pytest.mark.django_db
LATER = datetime(2027, 1, 15, 15, tzinfo=UTC)


@pytest.fixture(autouse=True)
def plain_words() -> Iterator[None]:
    """Say everything in English, and the times in UTC."""
    with translation.override("en"), timezone.override(UTC):
        yield


def test_a_paused_queue_gives_no_job() -> None:
    """Neither one nor many, until it is resumed; other queues do."""
    queue, other = Queue("a"), Queue("b")
    queue.publish_many([1, 2])
    other.publish(3)
    queue.pause(reason="SMTP down")
    assert queue.claim() is None
    assert queue.claim_many(10) == []
    assert len(other.claim_many(10)) == 1
    assert len(queue) == 2
    assert queue.resume()
    assert [job.payload for job in queue.claim_many(10)] == [1, 2]


def test_a_pause_ends_at_its_time(time: FakeClock) -> None:
    """By itself, whether or not its row is still there."""
    queue = Queue("a")
    queue.publish(1)
    queue.pause(until=timedelta(minutes=5))
    time.advance(299)
    assert queue.claim() is None
    assert list(paused("default", time())) == ["a"]
    time.advance(1)
    assert paused("default", time()) == {}
    assert queue.claim()
    assert QueueState.objects.exists()


@pytest.mark.parametrize("until", [LATER, 7 * 3600, 7.0 * 3600, timedelta(hours=7)])
def test_the_end_of_a_pause(time: FakeClock, until: Any) -> None:
    """A moment, or a duration from now in seconds or as a timedelta."""
    pause("a", until=until)
    assert QueueState.objects.get().paused_until == LATER


def test_what_is_known_of_a_pause(time: FakeClock) -> None:
    """Since when, until when, by whom and why; pausing again replaces it."""
    Queue("a").pause("SMTP down", LATER, by="anna")
    time.advance(60)
    pause("b")
    assert list(paused("default", time())) == ["a", "b"]
    state = paused("default", time())["a"]
    assert (state.paused_by, state.reason, state.paused_until) == ("anna", "SMTP down", LATER)
    assert state.paused_at == from_instant(at(0))
    Queue("a").pause("disk full", by="ben")
    state = paused("default", time())["a"]
    assert (state.paused_by, state.reason, state.paused_until) == ("ben", "disk full", None)
    assert state.paused_at == from_instant(at(60))


def test_resume_says_whether_it_was_paused(time: FakeClock) -> None:
    """Not if it never was, was resumed before, or its pause has ended by itself."""
    assert not resume("a")
    pause("a")
    assert resume("a")
    assert not resume("a")
    pause("a", until=1)
    time.advance(1)
    assert not resume("a")


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (
            {"until": 0},
            ValueError,
            "until is 0, which is over: it is .*Give a later moment, a duration above 0, or none",
        ),
        ({"until": -1.5}, ValueError, "until is -1.5, which is over"),
        ({"until": datetime(2027, 1, 15, 8, tzinfo=UTC)}, ValueError, "which is over: it is "),
        ({"until": datetime(2030, 1, 1)}, ValueError, "until is a naive datetime while USE_TZ is on"),
        ({"until": "15:00"}, ValueError, "A duration is a number of seconds .* or a timedelta, not '15:00'"),
        ({"reason": "x" * 256}, ValueError, "reason has 256 characters, but at most 255 are kept"),
        ({"by": "x" * 151}, ValueError, "by has 151 characters, but at most 150"),
        ({"reason": None}, TypeError, "reason is None, but must be a text"),
    ],
)
def test_what_is_not_allowed(time: FakeClock, values: dict[str, Any], error: type[Exception], message: str) -> None:
    """What was found, what is allowed; and nothing is paused."""
    with pytest.raises(error, match=message):
        pause("a", **values)
    assert not QueueState.objects.exists()


@pytest.mark.parametrize("name", ["", "x" * 256, None])
def test_names_that_no_queue_has(name: Any) -> None:
    """They are refused by both."""
    for using in (None, "default"):
        with pytest.raises(ValueError, match="A queue's name is a text of 1 to 255 characters"):
            pause(name, using=using)
        with pytest.raises(ValueError, match="A queue's name is a text of 1 to 255 characters"):
            resume(name, using=using)


def test_without_time_zones(settings: Settings, time: FakeClock) -> None:
    """With USE_TZ off a pause takes naive datetimes, in TIME_ZONE, and knows one that is over."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    pause("a", until=datetime(2027, 1, 15, 9, 0, 1))
    assert QueueState.objects.filter(paused_until=datetime(2027, 1, 15, 9, 0, 1)).exists()
    with pytest.raises(ValueError, match="which is over: it is 09:00:00"):
        pause("a", until=datetime(2027, 1, 15, 9))


def test_run_pending_leaves_paused_queues(time: FakeClock) -> None:
    """As a worker would; with ``until`` beyond the end of the pause they run when that has come."""
    tasks.add.using(queue_name="emails").enqueue(1, 2)
    tasks.add.using(queue_name="default").enqueue(3, 4)
    pause("emails", until=60)
    assert [result.return_value for result in run_pending()] == [7]
    assert run_pending("emails") == []
    assert run_pending(until=timedelta(seconds=59)) == []
    assert [result.return_value for result in run_pending(until=timedelta(seconds=60))] == [3]


@pytest.mark.django_db(transaction=True)
def test_a_consumer_goes_on_when_its_queue_is_resumed(sqlite_file: str) -> None:
    """``Queue.run`` handles nothing of a paused queue, and what was published meanwhile once it is resumed."""
    queue, handled, stop = Queue("a", using=sqlite_file), [], threading.Event()
    queue.publish("first")

    def consume() -> None:
        try:
            queue.run(lambda job: handled.append(job.payload), stop=stop)
        finally:
            connections.close_all()

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    try:
        wait_until(lambda: handled == ["first"])
        queue.pause()
        queue.publish("second")
        Queue("other", using=sqlite_file).publish("x")
        assert handled == ["first"]
        queue.resume()
        wait_until(lambda: handled == ["first", "second"])
    finally:
        stop.set()
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "paused"),
        ({"until": LATER}, "paused, until 2027-01-15 15:00:00"),
        ({"reason": "SMTP\ndown"}, "paused: SMTP down"),
        ({"reason": "SMTP down", "until": LATER}, "paused: SMTP down, until 2027-01-15 15:00:00"),
        ({"by": "anna"}, "paused by anna"),
        ({"by": "anna", "until": LATER}, "paused by anna, until 2027-01-15 15:00:00"),
        ({"by": "anna", "reason": "SMTP down"}, "paused by anna: SMTP down"),
        (
            {"by": "anna", "reason": "SMTP down", "until": LATER},
            "paused by anna: SMTP down, until 2027-01-15 15:00:00",
        ),
    ],
)
def test_a_pause_in_words(values: dict[str, Any], said: str) -> None:
    """One sentence, with as much as is known."""
    state = QueueState(
        queue_name="a",
        paused_until=values.get("until"),
        reason=values.get("reason", ""),
        paused_by=values.get("by", ""),
    )
    assert sentence(state) == said


def test_limits_are_those_of_the_table() -> None:
    """What is allowed fits, on a database that looks at lengths too."""
    fields = QueueState._meta
    assert fields.get_field("reason").max_length == pauses.LONGEST_REASON
    assert fields.get_field("paused_by").max_length == arguments.LONGEST_BY
