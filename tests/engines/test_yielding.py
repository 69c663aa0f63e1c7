"""Changes of many rows beside turns that lock the same rows in another order, on PostgreSQL: no deadlock.

``VTQUEUE_RACES``: how often each race is run, times ten.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Event
from typing import Any

import pytest
from django.db import connections, transaction

from django_vtqueue import Queue, control
from django_vtqueue.conf import parse
from django_vtqueue.core import history
from django_vtqueue.core.clock import LAST_INSTANT
from django_vtqueue.core.failures import recorded
from django_vtqueue.core.job import HeldJob, Scope
from django_vtqueue.core.settlement import Settlement, failed, released, succeeded, suspended
from django_vtqueue.core.steps import GATHER, Waiting
from django_vtqueue.engines import Engine, engine_for
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.queue.claims import Claims, collect
from django_vtqueue.queue.limits import Limits
from django_vtqueue.queue.settling import settle
from tests.fake_clock import at
from tests.waiting import PATIENCE, PROMPT, wait_until

from .test_postgresql import RACES, at_once, claim, note_children, publish, threads

ROUNDS = max(RACES // 10, 10)
FAILURE = recorded(ValueError, "x")
WAITS = "SELECT 1 FROM pg_locks WHERE NOT granted"
WAITS_LONG = f"{WAITS} AND waitstart < clock_timestamp() - interval '300 ms'"  # longer than somebody who yields


@pytest.fixture
def engine(postgresql_database: str) -> Engine:
    return engine_for(postgresql_database)


@pytest.fixture
def held(engine: Engine) -> list[HeldJob]:
    """Return two jobs that run."""
    Queue("q", engine.alias).publish_many([1, 2], unique_key=["a", "b"])
    return claimed(engine, "w", 2)


def claimed(engine: Engine, worker: str, limit: int) -> list[HeldJob]:
    with engine.transaction():
        taken = Claims(engine, Limits(parse({}))).claim([Scope(None, raw=True)], limit, worker, at(1))
    return sorted(collect(engine, taken), key=lambda job: job.id)


def done(job: HeldJob) -> Settlement:
    return succeeded(job, "null", at(2), None)


def until_it_waits(engine: Engine, act: "Future[Any]", waits: str = WAITS) -> None:
    with connections[engine.alias].cursor() as cursor:
        wait_until(lambda: cursor.execute(waits).fetchall() or act.done(), PROMPT)
    assert not act.done()


def cancels(engine: Engine) -> Any:
    return control.cancel(Job.objects.using(engine.alias).values_list("pk", flat=True), using=engine.alias)


def publishes(engine: Engine) -> Any:
    return Queue("q", engine.alias).publish_many([3, 4, 5], unique_key=["a", "b", "c"])


@pytest.mark.parametrize("act", [cancels, publishes])
def test_a_turn_that_has_locked_the_last_row(engine: Engine, held: list[HeldJob], act: Callable[[Engine], Any]) -> None:
    """It gets the first row, too, from whoever waits for the last one."""
    with threads(1) as pool, engine.transaction():
        assert settle(engine, [done(held[1])]) == set()
        acting = pool.submit(act, engine)
        until_it_waits(engine, acting)
        assert settle(engine, [done(held[0])]) == set()
    assert len(acting.result(PATIENCE)) == (3 if act is publishes else 0)
    assert Job.objects.using(engine.alias).filter(state="SUCCESSFUL").count() == 2


def test_a_row_that_is_locked_for_long(engine: Engine, held: list[HeldJob]) -> None:
    """It is waited for, however long that takes, and nothing is left out."""
    with threads(1) as pool, transaction.atomic(using=engine.alias):
        engine.renew([held[1]], at(2))
        acting = pool.submit(cancels, engine)
        until_it_waits(engine, acting, WAITS_LONG)
    assert len(acting.result(PATIENCE)) == 2


def test_in_a_transaction_of_the_caller(engine: Engine, held: list[HeldJob]) -> None:
    """Its own lock_timeout holds again afterwards; what it has written before is kept."""
    begun = Event()

    def turn() -> None:
        with engine.transaction(), connections[engine.alias].cursor() as cursor:
            settle(engine, [done(held[1])])
            begun.set()
            wait_until(lambda: cursor.execute(WAITS).fetchall(), PROMPT)
            settle(engine, [done(held[0])])

    with threads(1) as pool, transaction.atomic(using=engine.alias), connections[engine.alias].cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '77s'")
        Queue("other", engine.alias).publish(1)
        turning = pool.submit(turn)
        assert begun.wait(PATIENCE)
        assert len(cancels(engine)) == 1  # what it has published: the others have succeeded
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("77s",)
        turning.result(PATIENCE)
    assert DeadLetter.objects.using(engine.alias).get().queue_name == "other"


# -- hard rounds -------------------------------------------------------------------------------------------------------


def fate(job: HeldJob, chance: random.Random) -> Settlement:
    """Return any end of an attempt."""
    kind = chance.randrange(4)
    if kind < 2:
        return done(job) if kind else released(job)
    return failed(job, history.FAILED, FAILURE, at(2), None if kind == 2 else 0)


def take_turns(engine: Engine, batches: Sequence[Sequence[Settlement]]) -> None:
    """Settle each batch in a transaction, one after the other."""
    for batch in batches:
        with engine.transaction():
            settle(engine, batch)


def empty(engine: Engine) -> None:
    for model in (Job, DeadLetter):
        model.objects.using(engine.alias).all().delete()


@pytest.mark.parametrize("size", [7, 40])
def test_cancellations_beside_turns(engine: Engine, size: int) -> None:
    """Each running job is settled by its holder, or asked to stop and settled; nobody is refused as a deadlock."""
    with threads(3) as pool:
        for number in range(ROUNDS):
            empty(engine)
            publish(engine, 200)
            jobs, chance = claim(engine, Limits(parse({})), "w", 200), random.Random(number)
            chance.shuffle(jobs)
            settlements = [fate(job, chance) for job in jobs]
            batches = [settlements[start : start + size] for start in range(0, 200, size)]
            turns = [partial(take_turns, engine, batches[first::2]) for first in (0, 1)]
            at_once(pool, *turns, partial(cancels, engine))
            assert not Job.objects.using(engine.alias).filter(state="RUNNING").exists()


@pytest.mark.parametrize("on_duplicate", ["keep", "replace"])
def test_bulks_of_keys_beside_turns(engine: Engine, on_duplicate: Any) -> None:
    """Each key has one unfinished job at the end; nobody is refused as a deadlock."""
    queue, keys = Queue("q", engine.alias), [f"k{number:03}" for number in range(200)]

    def work(worker: str) -> None:
        chance = random.Random(worker)
        for _ in range(15):
            jobs = claimed(engine, worker, 20)
            chance.shuffle(jobs)
            take_turns(engine, [[fate(job, chance) for job in jobs]])

    def publish_all() -> None:
        for _ in range(5):
            queue.publish_many(keys, unique_key=keys, on_duplicate=on_duplicate)

    with threads(3) as pool:
        for number in range(ROUNDS):
            empty(engine)
            shuffled = random.Random(number).sample(keys, len(keys))
            queue.publish_many(shuffled, unique_key=shuffled)
            at_once(pool, partial(work, "v"), partial(work, "w"), publish_all)
            publish_all()
            unfinished = Job.objects.using(engine.alias).filter(finished_at=None)
            assert sorted(unfinished.values_list("unique_key", flat=True)) == keys


@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled"])
def test_parents_that_begin_to_wait_while_children_end(engine: Engine, cancelled: bool) -> None:
    """Turns that settle some parents, and children of others, do not wait for each other; each parent is woken."""
    with threads(2 + cancelled) as pool:
        for number in range(ROUNDS):
            empty(engine)
            children = {parent: publish(engine, 4, parent_id=parent) for parent in publish(engine, 20)}
            jobs = claim(engine, Limits(parse({})), "w", 100)
            for job in jobs:
                if job.id in children:
                    note_children(engine, job, children[job.id])
            until = Waiting(GATHER, "all", LAST_INSTANT, at(2))
            settlements = [done(job) if job.parent_id else suspended(job, until) for job in jobs]
            random.Random(number).shuffle(settlements)
            batches = [settlements[start : start + 10] for start in range(0, 100, 10)]
            turns = [partial(take_turns, engine, batches[first::2]) for first in (0, 1)]
            at_once(pool, *turns, *[partial(control.cancel, [*children], using=engine.alias)] * cancelled)
            jobs_now = Job.objects.using(engine.alias)
            assert not jobs_now.filter(state="WAITING").exists()
            assert cancelled or jobs_now.filter(state="READY").count() == 20
