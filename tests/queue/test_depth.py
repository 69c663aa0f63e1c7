"""Back-pressure: what a queue with a ``max_depth`` takes, refuses, and waits for."""

import asyncio
import pickle
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections, transaction
from django.test import TestCase, override_settings
from django.test.utils import CaptureQueriesContext

from django_vtqueue import ClaimedJob, Queue, QueueFull, VTQueueError, enqueue_many, requeue
from django_vtqueue.core.counts import MINUTE, minute_of
from django_vtqueue.engines import engine_for
from django_vtqueue.models import DeadLetter, Job, Throughput
from django_vtqueue.queue.max_depth import DEFAULT, LATEST, SOONEST, allowance, full_for, gate_of, retry_after
from django_vtqueue.queue.pauses import paused
from django_vtqueue.tasks.compat import task_enqueued, task_finished
from tests.fake_clock import FakeClock
from tests.project import tasks

from ..conftest import claimed
from ..pending import run_pending
from ..waiting import PATIENCE, wait_until

Policies = dict[str, dict[str, Any]]


@contextmanager
def policies(alias: str | None = None, **queues: dict[str, Any]) -> Iterator[None]:
    """Give queues these options, in a database."""
    entries = deepcopy(settings.TASKS)
    entries["default"]["OPTIONS"] = {"database": alias, "queue_options": queues}
    with override_settings(TASKS=entries):
        yield


@pytest.fixture
def small(alias: str) -> Iterator[Queue]:
    """Return a queue, in a file, with room for three."""
    with policies(alias, small={"max_depth": 3}):
        yield Queue("small")


def fill(queue: Queue) -> None:
    """Publish until it is full."""
    with suppress(QueueFull):
        while queue.publish("more"):
            pass


def waiting(queue: Queue) -> int:
    return Job.objects.using(queue.database).filter(queue_name=queue.name, lease_until=None, finished_at=None).count()


def run(call: Callable[[], Awaitable[Any]], alias: str) -> None:
    """Await a call; the thread of synchronous code has a connection of its own to the file of this test."""

    def forget() -> None:
        connections[alias].close()
        del connections[alias]

    async def awaited() -> None:
        try:
            await call()
        finally:
            await sync_to_async(forget)()

    asyncio.run(awaited())


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_full_queue_refuses(small: Queue) -> None:
    """The first that is too many, and all after it, until a job has gone; the error says how it stands."""
    small.publish_many([1, 2, 3])
    for _ in range(2):
        with pytest.raises(QueueFull, match="Queue 'small' is full: its depth is 3, and its max_depth 3") as refused:
            small.publish(4)
        assert (refused.value.queue_name, refused.value.depth) == ("small", 3)
    job = claimed(small)
    small.publish(4)
    with pytest.raises(QueueFull):
        small.publish(5)
    job.ack()
    with pytest.raises(QueueFull):
        small.publish(5)
    small.purge()
    small.publish(5)


@pytest.mark.parametrize("until", [None, 3600, 0.001])
def test_a_full_queue_that_is_paused(small: Queue, until: float | None) -> None:
    """The error says that no room will be made, and until when; a pause that has ended is none."""
    small.pause(until=until)
    wait_until(lambda: until != 0.001 or not paused(small.database, engine_for(small.database).now()))
    small.publish_many([1, 2, 3])
    told = {None: "The queue is paused, so", 3600: r"The queue is paused until [\d:\- ]+, so workers make no room"}
    with pytest.raises(QueueFull, match=told.get(until, r"Try again in")) as refused:
        small.publish(4)
    assert ("paused" in str(refused.value)) is (until != 0.001)


def test_what_counts(small: Queue) -> None:
    """What waits: due, scheduled and retried jobs, payloads and tasks; not what is held, nor other queues."""
    small.publish(1, delay=60)
    tasks.thread_id.using(queue_name="small").enqueue()
    small.publish(2, priority=9)
    claimed(small).nack(delay=60)
    Queue("other").publish_many([1] * 9)
    with pytest.raises(QueueFull):
        small.publish(3)
    assert waiting(small) == 3


def test_all_or_nothing(small: Queue) -> None:
    """Many at once are stored all or not at all; more than ever fit are told so."""
    small.publish(1)
    with pytest.raises(QueueFull, match="has no room for 3 jobs: its depth is 1, and its max_depth 3"):
        small.publish_many([2, 3, 4])
    with pytest.raises(QueueFull, match=r"never has room for 4 jobs at once.* in smaller parts") as never:
        small.publish_many([2, 3, 4, 5], timeout=60)
    assert (never.value.depth, never.value.retry_after) == (1, LATEST)
    assert waiting(small) == 1
    small.publish_many([2, 3])
    assert waiting(small) == 3


def test_tasks_are_refused_as_payloads_are(small: Queue) -> None:
    """By enqueue and enqueue_many, also in async code."""
    task = tasks.thread_id.using(queue_name="small")
    with pytest.raises(QueueFull):
        enqueue_many(task, [((), {})] * 4)
    enqueue_many(task, [((), {})] * 2)
    task.enqueue()
    with pytest.raises(QueueFull):
        task.enqueue()
    for call in (task.aenqueue, partial(small.apublish, 1), partial(small.apublish_many, [1])):
        with pytest.raises(QueueFull):
            run(call, small.database)
    assert waiting(small) == 3


def test_what_waits_already_goes_on(small: Queue) -> None:
    """A retry, a release and a requeue come back into a full queue."""
    small.publish_many([1, 2, 3])
    first, second, third = small.claim_many(3)
    third.nack()
    for job in small.claim_many(1):
        job.nack(error="again")
    Job.objects.using(small.database).filter(pk=third.id).update(max_attempts=1)
    fill(small)
    first.release()
    second.nack(delay=60)
    claimed(small)
    assert waiting(small) > 3


def test_a_dead_letter_comes_back(small: Queue) -> None:
    """Requeueing is never refused."""
    mortal = Queue("small", max_attempts=1)
    mortal.publish(1)
    claimed(mortal).nack()
    fill(small)
    assert len(requeue(DeadLetter.objects.using(small.database).all(), using=small.database)) == 1
    assert waiting(small) == 4


# -- the error ---------------------------------------------------------------------------------------------------------


def test_the_error_is_a_value() -> None:
    """It is one of this package's, is made without a text, and survives pickling with all it says."""
    error = QueueFull("small", 3, 1.5, 12.0)
    assert isinstance(error, VTQueueError)
    copied = pickle.loads(pickle.dumps(error))
    assert vars(copied) == vars(error)
    assert str(copied) == str(error) == "Queue 'small' is full: 3 jobs wait."


@pytest.mark.django_db
def test_the_age_of_the_oldest(time: FakeClock) -> None:
    """That is how long the first of the jobs has been due; 0 if none is."""
    with policies(small={"max_depth": 2}):
        queue = Queue("small")
        queue.publish(1, delay=3600)
        queue.publish(2, delay=100)
        for seconds, age in ((0, 0.0), (90, 0.0), (40, 30.0)):
            time.advance(seconds)
            with pytest.raises(QueueFull) as refused:
                queue.publish(3)
            assert refused.value.oldest_age == age


@pytest.mark.django_db
def test_when_to_try_again_is_measured(time: FakeClock) -> None:
    """It comes from what workers have ended lately; without that it is a default."""
    with policies(busy={"max_depth": 100}, idle={"max_depth": 100}):
        found = {}
        minute = minute_of(time()) - MINUTE
        for worker in "ab":
            Throughput.objects.create(starts_at=minute, queue_name="busy", worker_id=worker, succeeded=100, dead=20)
        seconds = (time() - minute + MINUTE) / 1_000_000
        for name in ("busy", "idle"):
            Queue(name).publish_many(range(100))
            with pytest.raises(QueueFull) as refused:
                Queue(name).publish(1)
            found[name] = refused.value.retry_after
        assert found == {"busy": pytest.approx(11 / (240 / seconds)), "idle": DEFAULT}


def test_the_arithmetic_of_trying_again() -> None:
    """The time in which workers end what is too much and a tenth of the queue, within bounds."""
    assert retry_after(10, 1000, rate=10) == 11
    assert retry_after(1, 10, rate=1000) == SOONEST
    assert retry_after(1, 1_000_000, rate=0.1) == LATEST
    assert retry_after(1, 1_000_000, rate=0) == DEFAULT


def test_how_long_a_full_queue_is_not_counted() -> None:
    """Some 20 times as long as the count takes, where that takes long; else it is counted each time."""
    assert full_for(5000) == 0
    assert full_for(105_000) == pytest.approx(0.2)


# -- counting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_depth", [1, 3, 10, 100, 1000, 100_000])
def test_the_share_of_a_process(max_depth: int) -> None:
    """No more than the room; a hundredth of the queue or ten jobs at the most; of little room no more than a quarter,
    or a thousandth of the queue.
    """
    for room in {0, 1, 2, 3, 4, 7, 40, max_depth // 2, max_depth} - {max_depth + 1}:
        if room <= max_depth:
            most = allowance(room, max_depth)
            assert 0 <= most <= min(room, max(max_depth // 100, 10))
            assert most <= max(room // 4, max_depth // 1000)


@pytest.mark.django_db
def test_a_publish_stays_one_insert() -> None:
    """Between two counts; each count is one statement more, and what a transaction takes."""
    with policies(large={"max_depth": 1000}):
        queue = Queue("large")
        queue.publish(0)
        with CaptureQueriesContext(connections["default"]) as captured:
            for number in range(10):
                queue.publish(number)
        assert [query["sql"].split()[0] for query in captured] == ["INSERT"] * 10


def test_the_depth_is_exact_where_one_process_publishes(alias: str) -> None:
    """However its publishes are counted, the last one that fits is taken and the first one that does not is not."""
    for max_depth in (1, 2, 9, 41, 150):
        with policies(alias, full={"max_depth": max_depth}):
            queue = Queue("full")
            fill(queue)
            assert waiting(queue) == max_depth
            queue.purge()


def test_threads_of_one_process(alias: str) -> None:
    """They share what the process has counted."""
    with policies(alias, full={"max_depth": 60}):

        def publish() -> None:
            try:
                fill(Queue("full"))
            finally:
                connections[alias].close()

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 60 <= waiting(Queue("full")) < 60 + len(threads)


def test_a_refusal_asks_for_no_lock(small: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another connection has it, a full queue refuses at once, and the lock is not waited for."""
    monkeypatch.setattr("django_vtqueue.queue.max_depth.KEPT_FOR", 600)
    small.publish_many([1, 2, 3])
    fill(small)
    other = connections[small.database].copy()
    other.ensure_connection()
    other.connection.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(QueueFull):
            small.publish(4)
    finally:
        other.close()


def test_a_large_full_queue_is_not_counted_each_time(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is kept for a while that grows with what a count costs."""
    monkeypatch.setattr("django_vtqueue.queue.max_depth.full_for", float)
    with policies(alias, full={"max_depth": 20}):
        queue = Queue("full")
        fill(queue)
        with CaptureQueriesContext(connections[alias]) as captured, pytest.raises(QueueFull):
            queue.publish(1)
        assert len(captured) == 0
        with CaptureQueriesContext(connections[alias]) as captured, pytest.raises(QueueFull):
            queue.publish_many([1] * 21)
        assert len(captured) > 0


# -- transactions and tests --------------------------------------------------------------------------------------------


def test_a_transaction_goes_on_after_a_refusal(small: Queue) -> None:
    """What was refused leaves nothing behind, and what the transaction has written is committed."""
    with transaction.atomic(using=small.database):
        small.publish_many([1, 2])
        with pytest.raises(QueueFull):
            small.publish_many([3, 4])
        small.publish(3)
        with pytest.raises(QueueFull):
            small.publish(4)
    assert waiting(small) == 3


def test_what_was_rolled_back_takes_no_room(small: Queue) -> None:
    """A full queue that was emptied by a rollback has room again."""
    with transaction.atomic(using=small.database):
        small.publish_many([1, 2, 3])
        transaction.set_rollback(True, using=small.database)
    small.publish_many([1, 2, 3])


def test_the_insert_comes_before_the_count(small: Queue) -> None:
    """To count first would make a deferred transaction a reader: SQLite lets it write no more if another one has."""
    with transaction.atomic(using=small.database), CaptureQueriesContext(connections[small.database]) as captured:
        small.publish(1)
    assert [query["sql"].split()[0] for query in captured] == ["SAVEPOINT", "INSERT", "SELECT", "RELEASE"]


@override_settings(
    TASKS={
        "default": {
            "BACKEND": "django_vtqueue.backend.VTQueueBackend",
            "QUEUES": [],
            "OPTIONS": {"queue_options": {"tiny": {"max_depth": 20}}},
        }
    }
)
class TestInATestCase(TestCase):
    """What the process has counted in one test does not hold in the next one: the test was rolled back."""

    def look(self) -> None:
        queue = Queue("tiny")
        fields = {"queue_name": "tiny", "max_attempts": 1, "lease_us": 1, "enqueued_at": 1, "due_at": 1, "payload": 1}
        Job.objects.bulk_create(Job(**fields) for _ in range(20))
        with pytest.raises(QueueFull):
            queue.publish(3)
        Job.objects.all().delete()
        queue.publish(1)  # now the process knows that there is room

    def test_first(self) -> None:
        self.look()

    def test_second(self) -> None:
        self.look()

    def test_third_publishes_one_by_one(self) -> None:
        for number in range(20):
            Queue("tiny").publish(number)
        with pytest.raises(QueueFull, match="is full"):
            Queue("tiny").publish(21, timeout=60)  # inside a transaction it is not waited for

    def test_tasks_may_publish(self) -> None:
        """What run_pending runs is exempt, and what the test publishes afterwards is not."""
        tasks.again.using(queue_name="tiny").enqueue(2)
        for number in range(19):
            Queue("tiny").publish(number)
        assert len(run_pending()) == 3
        Queue("tiny").publish(1)
        with pytest.raises(QueueFull):
            Queue("tiny").publish(21)


# -- waiting for room --------------------------------------------------------------------------------------------------


def claimed_soon(queue: Queue) -> threading.Thread:
    """Claim a job of a full queue in another thread, when a publisher has begun to wait."""

    def claim() -> None:
        try:
            wait_until(lambda: gate._full is not None)
            claimed(queue)
        finally:
            connections[queue.database].close()

    gate = gate_of(queue.database, queue.name, 3)
    thread = threading.Thread(target=claim)
    thread.start()
    return thread


@pytest.mark.parametrize("given", [{"on_full": "wait"}, {"on_full": "raise"}])
def test_room_is_waited_for(alias: str, given: dict[str, Any]) -> None:
    """As the settings say, or as the call says."""
    with policies(alias, small={"max_depth": 3, **given}):
        queue = Queue("small")
        queue.publish_many([1, 2, 3])
        thread = claimed_soon(queue)
        queue.publish(4, **({} if given["on_full"] == "wait" else {"timeout": timedelta(seconds=30)}))
        thread.join()
        assert waiting(queue) == 3


def test_room_is_seen_beside_an_open_cursor(small: Queue) -> None:
    """A connection that reads goes on seeing the queue as it was; its publish waits no longer for that."""
    small.publish_many([1, 2, 3])
    fill(small)
    rows = Job.objects.using(small.database).iterator(chunk_size=1)
    next(rows)
    thread = claimed_soon(small)
    small.publish(4, timeout=PATIENCE)
    thread.join()
    rows.close()  # type: ignore[attr-defined]
    assert waiting(small) == 3


def test_the_wait_ends(alias: str) -> None:
    """After the time of the call, else of the settings; not at all with 0."""
    with policies(alias, small={"max_depth": 1, "on_full": "wait", "full_timeout": 0.05}):
        queue = Queue("small")
        queue.publish(1)
        with pytest.raises(QueueFull, match=r"The publisher has waited for 0\.1 s\."):
            queue.publish(2, timeout=0.1)
        with pytest.raises(QueueFull, match=r"The publisher has waited for 0\.05 s\."):
            tasks.thread_id.using(queue_name="small").enqueue()
        with pytest.raises(QueueFull) as refused:
            queue.publish(2, timeout=0)
        assert "waited" not in str(refused.value)
        with pytest.raises(ValueError, match="timeout is -1, but must be a number of seconds"):
            queue.publish(2, timeout=-1)


def test_nothing_waits_inside_a_transaction(alias: str) -> None:
    """It raises at once and says why: the caller's lock would keep the workers from making room."""
    with policies(alias, small={"max_depth": 1, "on_full": "wait", "full_timeout": 600}):
        queue = Queue("small")
        queue.publish(1)
        with pytest.raises(QueueFull, match="not waited for inside a transaction"), transaction.atomic(using=alias):
            queue.publish(2)
        with pytest.raises(QueueFull, match="not waited for inside a transaction"), transaction.atomic(using=alias):
            queue.publish(2, timeout=60)


def test_the_event_loop_goes_on(alias: str) -> None:
    """While apublish and aenqueue wait, other coroutines run, and other synchronous code in its one thread too."""
    with policies(alias, small={"max_depth": 3, "on_full": "wait", "full_timeout": 30}):
        queue, task = Queue("small"), tasks.thread_id.using(queue_name="small")
        queue.publish_many([1, 2, 3])
        beats: list[int] = []

        async def beat() -> None:
            while gate_of(alias, "small", 3)._full is None or len(beats) < 3:
                beats.append(await sync_to_async(lambda: waiting(queue))())
            await sync_to_async(lambda: queue.claim_many(2))()

        run(lambda: asyncio.gather(queue.apublish(4), task.aenqueue(), beat()), alias)
        assert len(beats) >= 3
        assert waiting(queue) == 3


def test_an_async_wait_ends(alias: str) -> None:
    """In the same way, with the same text."""
    with policies(alias, small={"max_depth": 1, "on_full": "wait", "full_timeout": 0.05}):
        queue = Queue("small")
        queue.publish(1)
        for call in (partial(queue.apublish, 2), tasks.thread_id.using(queue_name="small").aenqueue):
            with pytest.raises(QueueFull, match=r"The publisher has waited for 0\.05 s\."):
                run(call, alias)
        with pytest.raises(QueueFull, match=r"The publisher has waited for 0\.1 s\."):
            run(lambda: queue.apublish_many(iter([2]), timeout=0.1), alias)
        for name in ("unique_key", "concurrency_key"):  # they, too, are for each try
            with pytest.raises(QueueFull, match=r"The publisher has waited for 0\.1 s\."):
                run(lambda: queue.apublish_many([2], timeout=0.1, **{name: iter(["k"])}), alias)  # noqa: B023


def test_what_a_receiver_publishes_is_no_part_of_an_async_publish(alias: str) -> None:
    """It is full for the receiver: the job whose signal it has got is stored, and is stored once."""
    with policies(alias, small={"max_depth": 1}):
        queue, task = Queue("small"), tasks.thread_id.using(queue_name="large")
        queue.publish(1)

        refusals = []

        def receive(**given: Any) -> None:
            with pytest.raises(QueueFull, match="'small' is full") as refused:
                queue.publish(2, timeout=0.05)
            refusals.append(str(refused.value))

        task_enqueued.connect(receive)
        try:
            run(task.aenqueue, alias)
        finally:
            task_enqueued.disconnect(receive)
        [refusal] = refusals
        assert refusal.count("waited") == 1
        assert waiting(Queue("large")) == 1


# -- what runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exempt", [True, False])
def test_a_handler_publishes_into_its_own_full_queue(alias: str, exempt: bool) -> None:
    """What Queue.run calls is exempt, unless the settings say otherwise; an async one too."""
    with policies(alias, small={"max_depth": 3, "exempt_workers": exempt}):
        queue, stop = Queue("small"), threading.Event()
        found: list[type[BaseException]] = []
        queue.publish_many([1, 2, 3])

        async def handler(job: ClaimedJob) -> None:
            stop.set()
            await queue.apublish(4)
            try:
                await queue.apublish(5)
            except QueueFull as error:
                found.append(type(error))

        queue.run(handler, stop=stop)
        assert found == ([] if exempt else [QueueFull])
        assert waiting(queue) == (4 if exempt else 3)
        run(lambda: sync_to_async(waiting)(queue), alias)


# -- several databases -------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_each_database_has_its_own_room(alias: str) -> None:
    """A queue of the same name in another database is another queue."""
    with policies(alias, small={"max_depth": 2}):
        here, there = Queue("small", using=alias), Queue("small", using="default")
        here.publish_many([1, 2])
        there.publish_many([1] * 9)  # no backend uses that database: the defaults hold
        with pytest.raises(QueueFull):
            here.publish(3)


# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_receiver_of_the_end_of_a_task_is_exempt() -> None:
    """What it publishes goes into the full queue as well."""
    with policies(small={"max_depth": 1}):
        queue = Queue("small")

        def publish(**kwargs: Any) -> None:
            queue.publish_many([1, 2])

        task_finished.connect(publish)
        try:
            tasks.thread_id.using(queue_name="small").enqueue()
            assert len(run_pending()) == 1
        finally:
            task_finished.disconnect(publish)
        assert waiting(queue) == 2


def test_a_duplicate_needs_no_room(small: Queue) -> None:
    """A full queue, also one that is known to be full, hands out the id of the job that has the key."""
    first = small.publish(1, unique_key="a")
    small.publish_many([2, 3])
    for _ in range(2):
        with pytest.raises(QueueFull):
            small.publish(4)
        assert small.publish(5, unique_key="a") == first
    with pytest.raises(QueueFull) as full:
        small.publish_many([6, 7], unique_key=["a", "b"])
    assert (full.value.depth, waiting(small)) == (3, 3)


def test_room_is_not_waited_for_beyond_the_expiry(small: Queue) -> None:
    """What could not start in time any more is refused, not stored."""
    small.publish_many([1, 2, 3])
    with pytest.raises(QueueFull):
        small.publish(4, timeout=60, expires=0.1)
    assert waiting(small) == 3
