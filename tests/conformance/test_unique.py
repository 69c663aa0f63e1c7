"""Unique keys on each engine: the database's own constraint decides, whoever publishes."""

import threading
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest
from django.db import connections, transaction

from django_vtqueue import ClaimedJob, DuplicateJob, Queue, control, requeue
from django_vtqueue.models import DeadLetter, Job
from tests.conftest import claimed
from tests.fake_clock import FakeClock

from .bench import SECOND, Bench, held_of, interruption, payloads_of, release, suspension


@pytest.fixture
def queue(alias: str, time: FakeClock) -> Queue:
    return Queue("q", using=alias, max_attempts=2)


def payloads(queue: Queue) -> list[Any]:
    """Return what waits, in the order of insertion."""
    jobs = Job.objects.using(queue.database).filter(finished_at=None, worker_id="")
    return [job.payload for job in jobs.order_by("pk")]


# -- which job has a key ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [[], ["b", None, None]], ids=["one", "several"])
def test_the_engine_says_which_job_has_the_key(bench: Bench, others: list[str | None]) -> None:
    """Of each job that is not stored: the id of the job that has its key, and the path of that one's task."""
    first, said = bench.publish_with_keys("a", *others, task="app.one")
    assert said == {}
    _, said = bench.publish_with_keys("a", *others, task="app.two")
    assert said == {index: (first[index], "app.one") for index, key in enumerate(["a", *others]) if key}


def test_many_keys_in_one_call(bench: Bench) -> None:
    """More than one statement takes, with repeats in another slice."""
    keys = [f"k{number % 6000}" for number in range(7000)]
    ids, said = bench.publish_with_keys(*keys)
    assert said == {index: (ids[index - 6000], "") for index in range(6000, 7000)}
    assert bench.jobs.count() == 6000


# -- keep, replace, error ---------------------------------------------------------------------------------------------


def test_keep(queue: Queue) -> None:
    """A second one is not stored: the id is that of the job that is there, waiting or held, until it is done."""
    first = queue.publish(1, unique_key="k")
    assert queue.publish(2, unique_key="k") == first
    job = claimed(queue)
    assert queue.publish(3, unique_key="k") == first
    job.nack()
    assert queue.publish(4, unique_key="k") == first
    job = claimed(queue)
    assert job.payload == 1
    job.ack()
    assert queue.publish(5, unique_key="k") != first


def test_keys_are_those_of_one_queue(queue: Queue, alias: str) -> None:
    """Another queue, another key, and no key are other jobs; a dead letter has given its key up."""
    other = Queue("other", using=alias)
    ids = {queue.publish(1, unique_key="k"), other.publish(1, unique_key="k"), queue.publish(1, unique_key="K")}
    ids |= {queue.publish(1), queue.publish(1)}
    assert len(ids) == 5
    control.cancel(queue.publish(1, unique_key="dead"), using=alias)
    queue.publish(2, unique_key="dead")
    assert len(queue) == 5


def test_replace(queue: Queue, alias: str, time: FakeClock) -> None:
    """One that waits becomes the new one, with a fresh budget, under its old id; that is a debounce."""
    first = queue.publish("old", unique_key="k", priority=3, expires=1000)
    claimed(queue).nack(delay=5, error="no luck")
    assert queue.publish("new", unique_key="k", on_duplicate="replace", delay=60, max_attempts=7, expires=90) == first
    row = Job.objects.using(alias).get()
    assert (row.payload, row.priority, row.attempts, row.max_attempts) == ("new", 0, 0, 7)
    assert [time.instant + seconds * SECOND for seconds in (0, 60, 90)] == [
        round(moment.timestamp() * SECOND) for moment in (row.enqueued_at, row.due_at, row.start_by) if moment
    ]
    assert queue.claim() is None
    time.advance(60)
    job = claimed(queue)
    assert (job.id, job.payload, job.attempt, job.claim_number) == (first, "new", 1, 2)


def test_replace_leaves_a_held_one_alone(queue: Queue, alias: str) -> None:
    """What runs is what was claimed; the new payload is not stored anywhere, so a debounce goes "until start"."""
    first = queue.publish("old", unique_key="k")
    job = claimed(queue)
    before = Job.objects.using(alias).values().get()
    assert queue.publish("new", unique_key="k", on_duplicate="replace") == first
    assert Job.objects.using(alias).values().get() == before
    job.ack()


def test_replace_of_one_that_a_stopping_worker_gave_back(queue: Queue, bench: Bench, time: FakeClock) -> None:
    """As long as its code may still run it is kept; then it waits as any other, also before a claim has unhidden it."""
    first = queue.publish("old", unique_key="k")
    bench.settle(interruption(held_of(claimed(queue)), 0, 1))
    time.advance(0.9)
    assert queue.publish("too soon", unique_key="k", on_duplicate="replace") == first
    assert payloads(queue) == ["old"]
    time.advance(0.1)
    assert queue.publish("new", unique_key="k", on_duplicate="replace") == first
    job = claimed(queue)
    assert (job.id, job.payload, job.attempt) == (first, "new", 1)


def test_error(queue: Queue) -> None:
    """DuplicateJob has the id of the job that is there, and nothing is stored."""
    first = queue.publish(1, unique_key="k")
    with pytest.raises(DuplicateJob, match="has the unique key 'k'") as caught:
        queue.publish(2, unique_key="k", on_duplicate="error")
    assert (caught.value.job_id, caught.value.unique_key) == (first, "k")
    assert payloads(queue) == [1]


# -- in bulk ----------------------------------------------------------------------------------------------------------


def test_keep_in_bulk(queue: Queue) -> None:
    """Of two in one call the first stays; None stands for no key."""
    first = queue.publish("there", unique_key="b")
    found = queue.publish_many(["a1", "b2", "a3", "", ""], unique_key=lambda payload: payload[:1] or None)
    assert [found[1], found[2]] == [first, found[0]]
    assert len(set(found)) == 4
    assert payloads(queue) == ["there", "a1", "", ""]


def test_replace_in_bulk(queue: Queue) -> None:
    """Of two in one call the last wins."""
    first = queue.publish("there", unique_key="b")
    found = queue.publish_many(["a1", "b2", "a3"], unique_key=["a", "b", "a"], on_duplicate="replace")
    assert found == [found[0], first, found[0]]
    assert payloads(queue) == ["b2", "a3"]


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in atomic"])
@pytest.mark.parametrize("keys", [["new", "there"], ["new", "new"]], ids=["there", "twice in the call"])
def test_error_in_bulk(queue: Queue, alias: str, keys: list[str], inside: bool) -> None:
    """Nothing of the call is stored; the caller's transaction goes on, with what else it has written."""
    there = queue.publish("there", unique_key="there")
    with transaction.atomic(using=alias) if inside else nullcontext():
        queue.publish("before")
        with pytest.raises(DuplicateJob) as caught:
            queue.publish_many(["x", "y"], unique_key=keys, on_duplicate="error")
        queue.publish("after")
    assert payloads(queue) == ["there", "before", "after"]
    assert caught.value.job_id == (there if "there" in keys else None)


# -- another task's key -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_duplicate", ["keep", "replace", "error"])
def test_the_key_of_another_task(queue: Queue, bench: Bench, on_duplicate: Any) -> None:
    """Its job is never handed out as this one's, nor replaced: an error says what to do, and nothing is stored."""
    [job_id], _ = bench.publish_with_keys("k", task="app.send")
    before = bench.everything()
    for publish in (
        lambda: queue.publish(1, unique_key="k", on_duplicate=on_duplicate),
        lambda: queue.publish_many([1, 2], unique_key=["j", "k"], on_duplicate=on_duplicate),
    ):
        with pytest.raises(DuplicateJob, match=r"one of app\.send, not of a raw payload.*task into the key") as caught:
            publish()
        assert caught.value.job_id == UUID(job_id)
        assert bench.everything() == before


# -- until the start --------------------------------------------------------------------------------------------------


def test_until_start(queue: Queue) -> None:
    """While one runs one more may wait, and no third; the one that runs has given its key up, also for its retry."""
    first = queue.publish(1, unique_key="k", unique_until="start")
    assert queue.publish(2, unique_key="k", unique_until="start") == first
    running = claimed(queue)
    second = queue.publish(3, unique_key="k", unique_until="start")
    assert second != first
    assert queue.publish(4, unique_key="k", unique_until="start") == second
    running.nack()
    assert queue.publish(5, unique_key="k", unique_until="start") == second
    assert [claimed(queue).payload for _ in range(2)] == [1, 3]
    assert len(queue) == 2


@pytest.mark.parametrize("until", [None, 60], ids=["release", "put off"])
def test_until_start_as_if_it_had_not_started(queue: Queue, bench: Bench, until: float | None) -> None:
    """A job that is given back without an attempt has its key again, if it is free; so calls do not pile up."""
    first = queue.publish(1, unique_key="k", unique_until="start")
    claimed(queue).release(until)
    assert queue.publish(2, unique_key="k", unique_until="start") == first
    control.run_now([first], using=queue.database)
    running = claimed(queue)
    second = queue.publish(3, unique_key="k", unique_until="start")
    running.release(until)
    assert queue.publish(4, unique_key="k", unique_until="start") == second != first
    control.run_now([first], using=queue.database)
    both = [claimed(queue), claimed(queue)]
    bench.settle(*(release(held_of(job)) for job in both))
    assert queue.publish(5, unique_key="k", unique_until="start") in (first, second)
    assert len(queue) == 2


def test_until_start_of_a_durable_task_that_has_begun(bench: Bench) -> None:
    """It does not start anew, so it does not stand for later calls when it waits, or is given back."""
    for steps in ("", "{}"):
        bench.publish(1, task="a.t", unique_keys=["a"], unique_until="start")
        job = bench.one(raw=False)
        bench.jobs.update(steps={} if steps else None)
        bench.settle(release(job) if steps else suspension(job, "sleep", "nap", 50, now=0))
        assert bench.jobs.get().unique_until == "started"
        bench.jobs.all().delete()


def test_until_start_is_not_claimed_ahead(bench: Bench) -> None:
    """What is claimed ahead may be given back without having begun: then it still has its key."""
    bench.publish(1, 2, unique_keys=["a", "b"], unique_until="start")
    bench.publish(3, unique_keys=["c"])
    assert bench.claimable_ahead(payloads_of("q"), now=1) == [False, False, True]


# -- requeue, move ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", ["done", "start"])
def test_requeue(queue: Queue, alias: str, until: Any) -> None:
    """A dead letter takes its key back; where that is taken it stays a letter."""
    first = queue.publish(1, unique_key="k", unique_until=until, max_attempts=1)
    claimed(queue).nack()
    second = queue.publish(2, unique_key="k", unique_until=until)
    assert requeue(first, using=alias) == []
    claimed(queue).ack()
    assert requeue(first, using=alias) == [first]
    assert queue.publish(3, unique_key="k", unique_until=until) == first != second
    assert DeadLetter.objects.using(alias).count() == 0


def test_move_of_one_that_has_started(queue: Queue, alias: str) -> None:
    """A job that has given its key up takes none in another queue, and is in no other's way."""
    started = queue.publish(1, unique_key="k", unique_until="start")
    claimed(queue).nack(delay=100)
    Queue("other", using=alias).publish(2, unique_key="k")
    waiting = queue.publish(3, unique_key="k")
    assert control.move([waiting], "other", using=alias) == []
    assert control.move([started], "other", using=alias) == [started]
    assert control.move([started], "q", using=alias) == [started]


# -- at the same instant ----------------------------------------------------------------------------------------------


def test_in_a_transaction_that_is_rolled_back(queue: Queue, alias: str) -> None:
    """The key is free again, and what was replaced is as it was."""
    queue.publish("old", unique_key="there")
    with transaction.atomic(using=alias):
        queue.publish("x", unique_key="new")
        queue.publish("changed", unique_key="there", on_duplicate="replace")
        transaction.set_rollback(True, using=alias)
    assert payloads(queue) == ["old"]
    queue.publish("y", unique_key="new")
    assert payloads(queue) == ["old", "y"]


def test_threads_that_publish_the_same_keys(alias: str) -> None:
    """One at a time, in bulk, and inside transactions: one job a key, and each publisher learns its id."""
    queue, found = Queue("q", using=alias), [dict[str, UUID]() for _ in range(6)]
    keys, start = [f"k{number}" for number in range(40)], threading.Barrier(len(found))

    def publish(number: int) -> None:
        start.wait()
        try:
            if number % 3 == 0:
                found[number] = dict(zip(keys, queue.publish_many(keys, unique_key=str), strict=True))
            for key in keys if number % 3 else ():
                if number % 3 == 1:
                    found[number][key] = queue.publish(key, unique_key=key)
                else:
                    with transaction.atomic(using=alias):
                        found[number][key] = queue.publish(key, unique_key=key, on_duplicate="replace")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=publish, args=[number]) for number in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = {job.unique_key: job.id for job in Job.objects.using(alias)}
    assert len(stored) == len(queue) == 40
    assert found == [stored] * 6


def test_many_duplicates_beside_expired_ones(queue: Queue, alias: str) -> None:
    """However many ids there are to be looked for, no statement has more of them than any database takes."""
    keys, most = [f"k{number}" for number in range(10_000)], 0

    def counted(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal most
        most = max(most, len(params or ()))
        return execute(sql, params, many, context)

    first = queue.publish_many(keys, unique_key=keys, expires=60)
    Job.objects.using(alias).filter(unique_key__in=keys[::5_000]).update(start_by=1)
    with connections[alias].execute_wrapper(counted):
        again = queue.publish_many(keys, unique_key=keys)
    assert [number for number, pair in enumerate(zip(first, again, strict=True)) if len(set(pair)) > 1] == [0, 5_000]
    assert 0 < most < 1000


def test_replace_against_a_claim_at_the_same_instant(alias: str) -> None:
    """Whichever comes first: what is handed out is what the row says, and the last payload is never lost."""
    queue = Queue("q", using=alias)
    stop, seen = threading.Event(), list[ClaimedJob]()

    def claim() -> None:
        try:
            while not stop.is_set() or len(queue):
                if job := queue.claim():
                    seen.append(job)
                    job.ack()
        finally:
            connections.close_all()

    thread = threading.Thread(target=claim)
    thread.start()
    for number in range(300):
        queue.publish(number, unique_key="k", unique_until="start", on_duplicate="replace")
    stop.set()
    thread.join()
    handed_out = [job.payload for job in seen]
    assert handed_out == sorted(set(handed_out))
    assert handed_out[-1] == 299
