"""The primitive, behaviour by behaviour."""

import asyncio
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections, transaction
from pytest_django import Settings

from django_vtqueue import ClaimedJob, LeaseLost, PayloadTooLarge, Queue
from django_vtqueue.core import history
from django_vtqueue.fields import StoredText
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.queue import consumer
from django_vtqueue.queue.dead_letters import requeue
from django_vtqueue.queue.limits import Limits

from ..conftest import claimed
from ..fake_clock import FakeClock
from ..waiting import wait_until


def rows(queue: Queue) -> list[Any]:
    """Return all rows of both tables, to be compared."""
    found: list[Any] = list(Job.objects.using(queue.database).values())
    found.extend(DeadLetter.objects.using(queue.database).values())
    return found


def letter(queue: Queue) -> DeadLetter:
    return DeadLetter.objects.using(queue.database).get()


def configure(settings: Settings, alias: str, **options: Any) -> None:
    settings.TASKS = {
        "default": {
            "BACKEND": "django_vtqueue.backend.VTQueueBackend",
            "QUEUES": [],
            "OPTIONS": {"database": alias, **options},
        }
    }


# -- publish and claim ------------------------------------------------------------------------------------------------


def test_publish_then_claim(queue: Queue, time: FakeClock) -> None:
    """What is published can be claimed, with all that is known of it."""
    job_id = queue.publish({"id": 7, "celsius": [21.5, None]}, priority=3)
    assert isinstance(job_id, UUID)
    time.advance(1)
    job = claimed(queue)
    assert (job.id, job.payload, job.priority) == (job_id, {"id": 7, "celsius": [21.5, None]}, 3)
    assert (job.attempt, job.claim_number) == (1, 1)
    assert job.enqueued_at == datetime(2027, 1, 15, 8, 0, 0, tzinfo=UTC)
    assert job.visible_at == datetime(2027, 1, 15, 8, 1, 1, tzinfo=UTC)
    assert repr(job) == f"<ClaimedJob {job_id} of 'sensors', claim 1>"


def test_claim_of_an_empty_queue(queue: Queue) -> None:
    """None, and an empty list: nothing is due."""
    assert queue.claim() is None
    assert queue.claim_many(5) == []


def test_claim_many_with_fewer_than_asked(queue: Queue) -> None:
    """It returns what there is."""
    queue.publish_many(["a", "b", "c"])
    assert [job.payload for job in queue.claim_many(2)] == ["a", "b"]
    assert [job.payload for job in queue.claim_many(10)] == ["c"]
    assert queue.claim_many(10) == []


@pytest.mark.parametrize("limit", [0, -1, 1.0, "1", None, True])
def test_claim_many_takes_a_number(queue: Queue, limit: Any) -> None:
    """Anything but a whole number above 0 is refused, with what was given."""
    with pytest.raises(ValueError, match=rf"1 or more, not {limit!r}"):
        queue.claim_many(limit)
    assert queue.claim_many(10**30) == []


def test_publish_many(queue: Queue) -> None:
    """Many in one transaction, in order; none is nothing."""
    ids = queue.publish_many(({"n": n} for n in range(3)), priority=1)
    jobs = queue.claim_many(3)
    assert [job.id for job in jobs] == ids
    assert [(job.payload["n"], job.priority) for job in jobs] == [(0, 1), (1, 1), (2, 1)]
    assert queue.publish_many([]) == []


@pytest.mark.parametrize("wrong", ["abc", b"abc", {"celsius": 21.5}, None, 7, Queue])
def test_publish_many_takes_a_list(queue: Queue, wrong: Any) -> None:
    """One payload in the place of many is an error in words; its letters, or its keys, are no payloads."""
    refused = pytest.raises(TypeError, match=r"publish_many takes a list of payloads, not .*: publish takes one")
    with refused:
        queue.publish_many(wrong)
    with refused:
        async_to_sync(queue.apublish_many)(wrong)
    assert len(queue) == 0


def test_publish_many_is_all_or_none(queue: Queue) -> None:
    """One payload that is refused keeps the others out as well."""
    with pytest.raises(TypeError):
        queue.publish_many(["good", object()])
    with pytest.raises(PayloadTooLarge):
        queue.publish_many(["good", "x" * 1_000_001])
    assert len(queue) == 0


def test_apublish(queue: Queue) -> None:
    """Producers are often async views."""

    @async_to_sync
    async def produce() -> list[UUID]:
        return [await queue.apublish("a", priority=1), *await queue.apublish_many(["b", "c"], priority=0)]

    ids = produce()
    assert [job.id for job in queue.claim_many(5)] == ids


# -- time -------------------------------------------------------------------------------------------------------------


def test_delay_and_publish_at(queue: Queue, time: FakeClock) -> None:
    """A job cannot be claimed a microsecond too soon, and can be from its instant on."""
    queue.publish("1s", delay=1)
    queue.publish("2s", delay=timedelta(seconds=2))
    queue.publish("3s", publish_at=datetime(2027, 1, 15, 8, 0, 3, tzinfo=UTC))
    queue.publish("4s", publish_at=datetime(2027, 1, 15, 13, 0, 4, tzinfo=tz(5)))
    for payload in ("1s", "2s", "3s", "4s"):
        time.advance(0.999999)
        assert queue.claim() is None
        time.advance(0.000001)
        assert claimed(queue).payload == payload


def tz(hours: int) -> Any:
    from datetime import timezone

    return timezone(timedelta(hours=hours))


def test_publish_at_is_kept(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """In real time, by a consumer that waits for it: it needs no look at the queue for that."""
    monkeypatch.setattr(consumer, "LOOK", 3600)
    begun = datetime.now(UTC)
    due = [begun + timedelta(seconds=seconds) for seconds in (0.3, 0.5, 0.7)]
    for moment in due:
        queue.publish("x", publish_at=moment)
    stop, late = threading.Event(), []

    def handler(job: ClaimedJob) -> None:
        late.append(datetime.now(UTC) - due[len(late)])
        if len(late) == len(due):
            stop.set()

    queue.run(handler, stop=stop)
    assert all(seconds >= timedelta() for seconds in late)


def test_what_becomes_due_just_after_a_claim(queue: Queue, time: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that has claimed in vain a moment ago claims again, and waits for nothing."""
    monkeypatch.setattr(consumer, "LOOK", 3600)
    for seconds in (1, 2, 3):
        queue.publish("x", delay=seconds)
    earliest, stop, handled = Limits.earliest, threading.Event(), 0

    def a_second_later(self: Limits, *args: Any) -> int | None:
        time.advance(1)
        return earliest(self, *args)

    def handle(job: ClaimedJob) -> None:
        nonlocal handled
        handled += 1
        if handled == 3:
            stop.set()

    monkeypatch.setattr(Limits, "earliest", a_second_later)
    queue.run(handle, stop=stop)
    assert queue.claim() is None


@pytest.mark.parametrize("database", ["sqlite_file", "postgresql_database"])
def test_a_consumer_inside_a_transaction(request: pytest.FixtureRequest, database: str) -> None:
    """``Queue.run`` works in that of a TestCase, whose connection it leaves open."""
    alias = request.getfixturevalue(database)
    queue, stop = Queue("sensors", using=alias), threading.Event()
    with transaction.atomic(using=alias):
        queue.publish("x")
        queue.run(lambda job: stop.set(), stop=stop)
        assert not Job.objects.using(alias).filter(finished_at=None).exists()


def test_a_time_in_the_past_is_now(queue: Queue, time: FakeClock) -> None:
    """A job does not jump the queue by a date of long ago."""
    queue.publish("first")
    queue.publish("second", publish_at=datetime(1999, 1, 1, tzinfo=UTC))
    queue.publish("third", delay=-100)
    assert [job.payload for job in queue.claim_many(3)] == ["first", "second", "third"]


@pytest.mark.parametrize("timeout", [5, 0.25, timedelta(minutes=2)])
def test_visibility_timeout_of_the_queue(alias: str, time: FakeClock, timeout: Any) -> None:
    """In seconds or as a timedelta; it also holds for what was published with another."""
    Queue("sensors", using=alias, visibility_timeout=33).publish("x")
    queue = Queue("sensors", using=alias, visibility_timeout=timeout)
    job = claimed(queue)
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    assert (job.visible_at - job.enqueued_at).total_seconds() == seconds
    time.advance(seconds - 0.000001)
    assert queue.claim() is None
    time.advance(0.000001)
    assert queue.claim() is not None


def test_without_a_timeout_of_its_own_the_settings_hold(alias: str, settings: Settings, time: FakeClock) -> None:
    """queue_options before OPTIONS; the publisher's queue decides."""
    configure(settings, alias, visibility_timeout=30, queue_options={"slow": {"visibility_timeout": 300}})
    for name, seconds in (("sensors", 30), ("slow", 300)):
        queue = Queue(name)
        assert queue.database == alias
        queue.publish("x")
        job = claimed(queue)
        assert (job.visible_at - job.enqueued_at).total_seconds() == seconds


# -- ack, nack, release -----------------------------------------------------------------------------------------------


def test_ack_removes_from_the_queue(queue: Queue, time: FakeClock) -> None:
    """Done is done: it does not come back, and does not count."""
    queue.publish("x")
    queue.ack(claimed(queue), result={"ok": True})
    time.advance(1e6)
    assert queue.claim() is None
    assert len(queue) == 0
    assert Job.objects.using(queue.database).get().result == {"ok": True}


def test_ack_of_a_result_that_is_not_json(queue: Queue) -> None:
    """TypeError, and the job is still held."""
    queue.publish("x")
    job = claimed(queue)
    with pytest.raises(TypeError):
        job.ack(object())
    job.ack()


def test_result_ttl_0_removes_the_row(alias: str, settings: Settings) -> None:
    """With ``result_ttl`` 0 nothing is left of a success."""
    configure(settings, alias, result_ttl=0)
    queue = Queue("sensors")
    queue.publish("x")
    claimed(queue).ack()
    assert rows(queue) == []


def test_nack_with_a_delay(queue: Queue, time: FakeClock) -> None:
    """Visible again so many seconds later."""
    queue.publish("x")
    claimed(queue).nack(delay=5)
    time.advance(4.999999)
    assert queue.claim() is None
    time.advance(0.000001)
    claimed(queue).nack(timedelta(seconds=2))
    time.advance(2)
    assert claimed(queue).attempt == 3


def test_release_gives_the_attempt_back(alias: str) -> None:
    """As if it had not been claimed, but for the claim number."""
    queue = Queue("sensors", using=alias, max_attempts=1)
    queue.publish("x")
    for number in range(1, 5):
        job = claimed(queue)
        assert (job.attempt, job.claim_number) == (1, number)
        queue.release(job)


def test_max_attempts_then_dead_letter_with_full_history(queue: Queue, alias: str, time: FakeClock) -> None:
    """After the last attempt it moves to the dead letters, with what happened each time."""
    job_id = queue.publish("x", max_attempts=3)
    try:
        raise ConnectionError("refused by 10.0.0.7")
    except ConnectionError as error:
        claimed(queue).nack(error=error)
    claimed(queue).nack(error="sensor is offline")
    claimed(queue)
    time.advance(60)
    assert queue.claim() is None

    assert len(queue) == 0
    dead = letter(queue)
    assert (dead.pk, dead.queue_name, dead.payload, dead.attempts) == (job_id, "sensors", "x", 3)
    assert (dead.exception_class, dead.kept_until) == ("django_vtqueue.exceptions.LeaseExpired", None)
    first, second, third = history.read(dead.history)
    assert (first["exception_class"], first["message"]) == ("builtins.ConnectionError", "refused by 10.0.0.7")
    assert "test_max_attempts_then_dead_letter" in first["traceback"]
    assert (second["outcome"], second["message"]) == ("failed", "sensor is offline")
    assert (third["outcome"], third["ended"]) == ("lease expired", time())

    assert requeue([dead], using=alias) == [job_id]
    again = claimed(queue)
    assert (again.id, again.attempt, again.claim_number) == (job_id, 1, 4)


def test_max_attempts_of_call_queue_and_settings(alias: str, settings: Settings) -> None:
    """The call before the queue before its options before the backend's; 0 is unlimited."""
    configure(settings, alias, max_attempts=4, queue_options={"few": {"max_attempts": 2}})

    def attempts(queue: Queue, **options: Any) -> int:
        job = Job.objects.using(alias).get(pk=queue.publish("x", **options))
        return job.max_attempts

    assert attempts(Queue("any")) == 4
    assert attempts(Queue("few")) == 2
    assert attempts(Queue("few", max_attempts=3)) == 3
    assert attempts(Queue("few", max_attempts=3), max_attempts=1) == 1
    assert attempts(Queue("few", max_attempts=0)) == 0


def test_dead_letter_ttl(alias: str, settings: Settings, time: FakeClock) -> None:
    """Dead letters are kept for as long as the queue says."""
    configure(settings, alias, queue_options={"sensors": {"dead_letter_ttl": timedelta(days=1), "max_attempts": 1}})
    queue = Queue("sensors")
    queue.publish("x")
    claimed(queue).nack()
    assert letter(queue).kept_until - letter(queue).died_at == timedelta(days=1)


# -- who may settle ---------------------------------------------------------------------------------------------------


Verb = Callable[[ClaimedJob], None]


def put_off(job: ClaimedJob) -> None:
    job.release(5)


ENDS = [ClaimedJob.ack, ClaimedJob.nack, ClaimedJob.release, put_off]
verbs = pytest.mark.parametrize("verb", [*ENDS, ClaimedJob.extend], ids=lambda verb: verb.__name__)


@verbs
def test_a_stale_holder_is_refused_and_the_new_holder_unharmed(queue: Queue, time: FakeClock, verb: Verb) -> None:
    """LeaseLost, and nothing has changed."""
    queue.publish("x")
    stale = claimed(queue)
    time.advance(60)
    holder = claimed(queue)
    before = rows(queue)
    with pytest.raises(LeaseLost, match=f"{stale.id} is not held under claim 1 any more"):
        verb(stale)
    assert rows(queue) == before
    holder.ack()


@verbs
@pytest.mark.parametrize("first", ENDS, ids=lambda verb: verb.__name__)
def test_a_job_is_settled_once(queue: Queue, time: FakeClock, first: Verb, verb: Verb) -> None:
    """A holder that has settled its job cannot change it any more, also before another claim takes it."""
    queue.publish("x")
    job = claimed(queue)
    first(job)
    before = rows(queue)
    time.advance(1)
    with pytest.raises(LeaseLost):
        verb(job)
    assert rows(queue) == before


def test_extend(queue: Queue, time: FakeClock) -> None:
    """Hidden until now + seconds, not added up; without seconds, for the visibility timeout."""
    queue.publish("x")
    job = claimed(queue)
    began = job.visible_at - timedelta(seconds=60)
    time.advance(10)
    queue.extend(job, 30)
    assert job.visible_at == began + timedelta(seconds=40)
    job.extend()
    assert job.visible_at == began + timedelta(seconds=70)
    job.extend(timedelta(seconds=5))
    time.advance(4.999999)
    assert queue.claim() is None
    time.advance(0.000001)
    assert claimed(queue).claim_number == 2


def test_extend_after_expiry_is_refused(queue: Queue, time: FakeClock) -> None:
    """A lease that has ended cannot be extended, though no other claim has taken the job yet."""
    queue.publish("x")
    job = claimed(queue)
    time.advance(60)
    before = rows(queue)
    with pytest.raises(LeaseLost, match="its lease has ended"):
        job.extend()
    assert rows(queue) == before


def test_ack_after_expiry_counts_until_another_claim(queue: Queue, time: FakeClock) -> None:
    """The work is done: it would be a waste to do it again."""
    queue.publish("x")
    job = claimed(queue)
    time.advance(61)
    job.ack()
    assert queue.claim() is None


# -- what else a queue can say ----------------------------------------------------------------------------------------


def test_len_and_bool(queue: Queue) -> None:
    """The length counts the unfinished; a queue is true, also an empty one."""
    assert len(queue) == 0
    assert bool(queue) is True
    queue.publish_many(["a", "b"])
    queue.publish("later", delay=100)
    claimed(queue)
    assert len(queue) == 3


def test_repr(queue: Queue) -> None:
    """A queue shows its name and its database."""
    assert repr(queue) == "Queue('sensors', using='file')"


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"priority": 101}, ValueError, r"priority is 101, but must be a whole number from -100 to 100"),
        ({"priority": -101}, ValueError, r"priority is -101"),
        ({"priority": 1.0}, ValueError, r"priority is 1\.0"),
        ({"priority": True}, ValueError, r"priority is True"),
        ({"priority": None}, ValueError, r"priority is None"),
        ({"publish_at": datetime(2030, 1, 1)}, ValueError, r"naive datetime while USE_TZ is on; use .*make_aware"),
        ({"publish_at": date(2030, 1, 1)}, TypeError, r"publish_at is .*date.*, but must be a datetime or a timedelta"),
        ({"publish_at": "2030-01-01"}, TypeError, r"publish_at is '2030-01-01', but must be a datetime or"),
        ({"publish_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, ValueError, r"publish_at or delay, not both"),
        ({"delay": "5"}, ValueError, r"number of seconds .* or a timedelta, not '5'"),
        ({"delay": float("nan")}, ValueError, r"number of seconds .*, not nan"),
        ({"delay": float("inf")}, ValueError, r"number of seconds .*, not inf"),
        ({"delay": 1e300}, ValueError, r"number of seconds .*, not 1e\+300"),
        ({"max_attempts": -1}, ValueError, r"max_attempts is -1, but must be a whole number, 0 for unlimited"),
        ({"max_attempts": 1.5}, ValueError, r"max_attempts is 1\.5"),
    ],
    ids=str,
)
def test_arguments_of_publish(queue: Queue, options: Any, error: Any, words: str) -> None:
    """Each error says what was found and what is allowed; nothing is stored."""
    with pytest.raises(error, match=words):
        queue.publish("x", **options)
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": ""}, r"1 to 255 characters, without NUL .* not ''"),
        ({"name": "x" * 256}, r"1 to 255 characters"),
        ({"name": "a\0b"}, r"without NUL .* not 'a\\x00b'"),
        ({"name": 7}, r"not 7"),
        ({"name": None}, r"not None"),
        ({"visibility_timeout": 0}, r"Queue\('q'\): visibility_timeout is 0, but must be .* above 0"),
        ({"visibility_timeout": -5}, r"visibility_timeout is -5"),
        ({"visibility_timeout": "60"}, r"visibility_timeout is '60'"),
        ({"visibility_timeout": float("nan")}, r"visibility_timeout is nan"),
        ({"max_attempts": -1}, r"Queue\('q'\): max_attempts is -1"),
        ({"max_attempts": True}, r"max_attempts is True"),
    ],
    ids=str,
)
def test_arguments_of_a_queue(arguments: Any, words: str) -> None:
    """What is wrong with a queue is said where it is made."""
    with pytest.raises(ValueError, match=words):
        Queue(**{"name": "q", **arguments})


@pytest.mark.parametrize("seconds", [0, -1, "5", float("nan"), float("inf"), timedelta(0)], ids=str)
def test_arguments_of_extend(queue: Queue, seconds: Any) -> None:
    """A lease cannot be extended by nothing, nor for ever; the job is still held."""
    queue.publish("x")
    job = claimed(queue)
    before = rows(queue)
    with pytest.raises(ValueError, match="seconds"):
        job.extend(seconds)
    assert rows(queue) == before


@pytest.mark.parametrize("delay", ["5", None, float("nan"), float("inf"), 1e300, timedelta.max], ids=str)
def test_arguments_of_nack(queue: Queue, delay: Any) -> None:
    """A delay that is none is refused with its value; the job is still held."""
    queue.publish("x")
    job = claimed(queue)
    with pytest.raises(ValueError, match="number of seconds"):
        job.nack(delay)
    job.ack()


@pytest.mark.parametrize(
    "payload", [object(), {1, 2}, float("nan"), {1: "a"}, UUID(int=1), b"\xff"], ids=lambda value: type(value).__name__
)
def test_a_payload_that_is_not_json(queue: Queue, payload: Any) -> None:
    """TypeError, in the caller."""
    with pytest.raises(TypeError):
        queue.publish(payload)
    assert len(queue) == 0


def test_a_payload_that_is_too_large(alias: str, settings: Settings) -> None:
    """The limit is in bytes as stored; the error says how many there were, and what to do."""
    configure(settings, alias, max_payload_bytes=100, queue_options={"wide": {"max_payload_bytes": 1000}})
    queue = Queue("sensors")
    queue.publish("x" * 98)
    queue.publish("é" * 49)
    for payload in ("x" * 99, "é" * 50):
        with pytest.raises(PayloadTooLarge, match=r"'sensors' has 10[12] bytes; max_payload_bytes allows 100\. Store"):
            queue.publish(payload)
    assert len(queue) == 2
    assert issubclass(PayloadTooLarge, ValueError)
    Queue("wide").publish("x" * 998)


# -- damaged rows -----------------------------------------------------------------------------------------------------


def test_a_damaged_payload_becomes_a_dead_letter_and_the_next_is_handed_out(queue: Queue) -> None:
    """A row that was edited by hand must not be in the way of the others."""
    broken = queue.publish("broken")
    queue.publish("next")
    Job.objects.using(queue.database).filter(pk=broken).update(payload=StoredText('{"half'))
    assert claimed(queue).payload == "next"
    assert letter(queue).pk == broken
    assert letter(queue).exception_class == "json.decoder.JSONDecodeError"
    assert letter(queue).payload == StoredText('{"half')


def test_an_exhausted_job_does_not_end_a_loop_over_the_queue(alias: str, time: FakeClock) -> None:
    """``while job := queue.claim()`` sees every due job, also after one that the claim had to bury."""
    queue = Queue("sensors", using=alias, max_attempts=1)
    queue.publish("killer", priority=1)
    claimed(queue)
    time.advance(60)
    queue.publish("next")
    assert claimed(queue).payload == "next"
    assert letter(queue).payload == "killer"
    assert queue.claim() is None


# -- transactions -----------------------------------------------------------------------------------------------------


@contextmanager
def undone(alias: str) -> Iterator[None]:
    """Run the block in a transaction, or a savepoint, that is rolled back."""
    with transaction.atomic(using=alias):
        yield
        transaction.set_rollback(True, using=alias)


def others(alias: str) -> int:
    """Return how many jobs another connection sees."""
    with closing(sqlite3.connect(connections[alias].settings_dict["NAME"])) as other:
        return int(other.execute("SELECT count(*) FROM vtqueue_job").fetchone()[0])


def test_publishing_commits_with_the_transaction_around_it(queue: Queue, alias: str) -> None:
    """Others see the job when the transaction commits, not before."""
    with transaction.atomic(using=alias):
        queue.publish("x")
        queue.publish_many(["y", "z"])
        assert len(queue) == 3
        assert others(alias) == 0
    assert others(alias) == 3


def test_publishing_rolls_back_with_the_transaction_around_it(queue: Queue, alias: str) -> None:
    """The job was never there; also from inside a savepoint of a transaction that rolls back."""
    with undone(alias):
        queue.publish("x")
        with transaction.atomic(using=alias):
            queue.publish("inner")
    assert len(queue) == others(alias) == 0


def test_publishing_rolls_back_with_its_savepoint(queue: Queue, alias: str) -> None:
    """The rest of the transaction stays."""
    with transaction.atomic(using=alias):
        queue.publish("before")
        with undone(alias):
            queue.publish("inside")
        queue.publish("after")
    assert [job.payload for job in queue.claim_many(5)] == ["before", "after"]


def test_work_and_ack_in_one_transaction(queue: Queue, alias: str) -> None:
    """An acknowledgement inside a transaction that rolls back has not happened."""
    queue.publish("x")
    job = claimed(queue)
    with undone(alias):
        job.ack()
    assert len(queue) == 1
    with transaction.atomic(using=alias):
        job.ack()
    assert len(queue) == 0


def test_without_autocommit_the_caller_commits(queue: Queue, alias: str) -> None:
    """Code that manages its transactions by itself goes on doing so."""
    connection = connections[alias]
    transaction.set_autocommit(False, using=alias)
    try:
        queue.publish("x")
        connection.rollback()
        queue.publish("y")
        connection.commit()
    finally:
        transaction.set_autocommit(True, using=alias)
    assert [job.payload for job in queue.claim_many(5)] == ["y"]


# -- run --------------------------------------------------------------------------------------------------------------


def stopping(stop: threading.Event, after: int, handle: Callable[[ClaimedJob], Any]) -> Callable[[ClaimedJob], None]:
    """Return a handler that asks its consumer to stop after so many jobs."""
    seen = []

    def handler(job: ClaimedJob) -> None:
        seen.append(job)
        if len(seen) == after:
            stop.set()
        handle(job)

    return handler


def test_run(queue: Queue) -> None:
    """Each job is handled and acknowledged, in order, until it is told to stop: looked at between jobs."""
    queue.publish_many(["a", "b", "c", "left"])
    stop, payloads = threading.Event(), list[str]()
    queue.run(stopping(stop, 3, lambda job: payloads.append(job.payload)), stop=stop)
    assert payloads == ["a", "b", "c"]
    assert [job.payload for job in queue.claim_many(5)] == ["left"]


def test_run_with_a_failing_handler(alias: str, settings: Settings) -> None:
    """The attempt has failed: tried again after the queue's backoff, a dead letter in the end; others go on."""
    configure(settings, alias, backoff=0.01, max_attempts=2)
    queue = Queue("sensors")
    queue.publish("bad", priority=1)
    queue.publish("good")
    stop, attempts = threading.Event(), list[tuple[str, int]]()

    def handle(job: ClaimedJob) -> None:
        attempts.append((job.payload, job.attempt))
        if job.payload == "bad":
            raise ValueError("no such sensor")

    queue.run(stopping(stop, 3, handle), stop=stop)
    assert attempts == [("bad", 1), ("good", 1), ("bad", 2)] or attempts == [("bad", 1), ("bad", 2), ("good", 1)]
    assert (letter(queue).payload, letter(queue).exception_class) == ("bad", "builtins.ValueError")
    assert len(history.read(letter(queue).history)) == 2
    assert len(queue) == 0


def test_run_with_a_handler_that_exits(queue: Queue) -> None:
    """``sys.exit()`` in a handler is a failure of the job, not the end of the consumer."""
    queue.publish_many(["exit", "next"])
    stop, payloads = threading.Event(), list[str]()

    def handle(job: ClaimedJob) -> None:
        payloads.append(job.payload)
        if job.payload == "exit":
            raise SystemExit(3)

    queue.run(stopping(stop, 2, handle), stop=stop)
    assert payloads == ["exit", "next"]
    assert len(queue) == 1


def test_run_gives_the_job_back_on_ctrl_c(queue: Queue) -> None:
    """KeyboardInterrupt ends the loop, and the attempt does not count."""
    queue.publish("x")

    def handle(job: ClaimedJob) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.run(handle)
    assert claimed(queue).attempt == 1


class Asynchronous:
    """Handlers that are to be awaited; ``handled``: the payloads of which they came to the end."""

    def __init__(self) -> None:
        self.handled: list[str] = []

    async def method(self, job: ClaimedJob) -> None:
        await asyncio.sleep(0.001)
        if job.payload == "bad":
            raise ValueError("no such sensor")
        await sync_to_async(self.handled.append)(job.payload)

    async def __call__(self, job: ClaimedJob) -> None:
        await self.method(job)

    async def of_two(self, job: ClaimedJob, number: int) -> None:
        await self.method(job)


@pytest.mark.parametrize(
    "handler_of",
    [
        lambda these: these.method,
        lambda these: these,
        lambda these: partial(these.of_two, number=2),
        lambda these: partial(these),
        lambda these: lambda job: these(job),
    ],
    ids=["method", "object", "partial", "partial of an object", "function"],
)
def test_run_with_a_handler_that_is_awaited(queue: Queue, handler_of: Callable[[Asynchronous], Any]) -> None:
    """What a handler returns to be awaited is awaited before its job is acknowledged, or has failed."""
    queue.publish_many(["good", "bad", "last"])
    stop, these = threading.Event(), Asynchronous()
    handler = handler_of(these)
    queue.run(lambda job: (job.payload == "last" and stop.set()) or handler(job), stop=stop)
    assert these.handled == ["good", "last"]
    [bad] = Job.objects.using(queue.database).filter(state="SCHEDULED")
    assert (bad.payload, history.read(bad.history)[0]["message"]) == ("bad", "no such sensor")


def test_run_gives_no_job_back_while_it_is_awaited(queue: Queue) -> None:
    """KeyboardInterrupt cancels what is awaited, and the job is given back when that has ended."""
    queue.publish("x")
    seen = []

    async def handle(job: ClaimedJob) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            seen.append(await sync_to_async(rivals)())

    def rivals() -> int:
        return len(queue.claim_many(1))

    with pytest.raises(KeyboardInterrupt):
        queue.run(handle)
    assert (seen, claimed(queue).attempt) == ([0], 1)


def test_run_with_a_handler_that_settles_by_itself(queue: Queue) -> None:
    """What the handler has settled stays as it said."""
    queue.publish_many(["ack", "nack", "release"])
    stop = threading.Event()

    def handle(job: ClaimedJob) -> None:
        {"ack": job.ack, "nack": lambda: job.nack(delay=100), "release": job.release}[job.payload]()

    queue.run(stopping(stop, 3, handle), stop=stop)
    states = {job.payload: (job.state, job.attempts) for job in Job.objects.using(queue.database)}
    assert states == {"ack": ("SUCCESSFUL", 1), "nack": ("SCHEDULED", 1), "release": ("READY", 0)}


def test_run_keeps_the_lease_up(alias: str) -> None:
    """A handler may take longer than the visibility timeout: no other claim gets its job."""
    queue = Queue("sensors", using=alias, visibility_timeout=4)
    queue.publish("x")
    stop = threading.Event()

    def handle(job: ClaimedJob) -> None:
        end = job.visible_at
        wait_until(lambda: datetime.now(UTC) > end + timedelta(seconds=0.2))
        assert queue.claim() is None

    queue.run(stopping(stop, 1, handle), stop=stop)
    job = Job.objects.using(alias).get()
    assert (job.state, job.claims, history.read(job.history)) == ("SUCCESSFUL", 1, [])


def test_run_without_heartbeat_lets_the_lease_end(alias: str, settings: Settings) -> None:
    """With ``heartbeat`` off the job reappears under a slow handler, whose late end changes nothing."""
    configure(settings, alias, heartbeat=False)
    queue = Queue("sensors", visibility_timeout=0.2)
    queue.publish("x")
    stop = threading.Event()
    taken: list[ClaimedJob] = []
    queue.run(stopping(stop, 1, lambda job: taken.append(wait_until(queue.claim))), stop=stop)
    assert Job.objects.using(alias).get().state == "RUNNING"
    taken[0].ack()


@pytest.mark.parametrize("keys", [b"a", {"a": "b"}, 7, True])
def test_what_is_no_list_of_keys(queue: Queue, keys: Any) -> None:
    """The letters of a key, or the keys of a dictionary, are none of payloads."""
    for name in ("unique_key", "concurrency_key"):
        with pytest.raises(TypeError, match=f"{name} is .*, but must be a callable, or a list with a key for each"):
            queue.publish_many(["x"], **{name: keys})
    assert len(queue) == 0


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "extend"])
def test_what_was_not_claimed_is_not_settled(queue: Queue, verb: str) -> None:
    """Nothing, for claim may return None, an id, or a payload in the place of a job is an error in words."""
    for wrong in (queue.claim(), queue.publish("x"), {"id": 7}):
        with pytest.raises(TypeError, match=rf"{verb} takes a job that claim has returned, not "):
            getattr(queue, verb)(wrong)


def test_run_wakes_for_what_is_published_meanwhile(queue: Queue) -> None:
    """A consumer that waits notices a job of another thread."""
    stop = threading.Event()

    def produce() -> None:
        try:
            queue.publish("x")
        finally:
            connections.close_all()

    producer = threading.Timer(0.05, produce)
    producer.start()
    queue.run(stopping(stop, 1, lambda job: None), stop=stop)
    producer.join()
    assert len(queue) == 0


@pytest.mark.parametrize("handler", [None, "shop.sensors.on_sensor"])
def test_run_refuses_what_cannot_be_called(queue: Queue, handler: Any) -> None:
    """What is no function is an error at once; no job is claimed for it, and none uses an attempt up."""
    queue.publish("x")
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(TypeError, match="run takes a function that is called with each job, not"):
        queue.run(handler, stop=stopped)
