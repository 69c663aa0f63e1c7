"""What goes and what stays, in which order, and what becomes of rows that are on both sides."""

import itertools
import random
import sqlite3
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections, transaction

from django_vtqueue import Lease, Queue
from django_vtqueue.core import clock
from django_vtqueue.engines import engine_for
from django_vtqueue.models import DeadLetter, Job, QueueState, Rate, Requeue, Schedule, Throughput
from django_vtqueue.moving.move import Move
from django_vtqueue.moving.parts import MOST_ROWS
from django_vtqueue.queue import pauses

from .conftest import Pair
from .rows import HAS_ENDED, HOUR_AGO, RUNS, held, job, letter, unsaved_job

LATER = clock.now() + 10**12
WAITS: dict[str, Any] = {"state": "WAITING", "due_at": LATER, "wake_at": LATER}


def moved(pair: Pair, *, wait: bool = False) -> Move:
    move = Move(*pair)
    move.go(wait=wait, every=0.05)
    return move


def ids(alias: str) -> set[str]:
    """Return the ids of jobs and dead letters."""
    return {str(key) for model in (Job, DeadLetter) for key in model.objects.using(alias).values_list("pk", flat=True)}


def test_what_runs_stays_with_its_family(pair: Pair) -> None:
    """A job that runs stays, and so do its parents, its brothers, and their dead letters; all go when it has ended."""
    other = job(pair.source)
    grandparent = job(pair.source, **WAITS)
    parent = job(pair.source, parent_id=grandparent.pk, **WAITS)
    child = job(pair.source, parent_id=parent.pk, **RUNS, lease_until=LATER)
    brother, dead = job(pair.source, parent_id=parent.pk), letter(pair.source, parent_id=parent.pk)
    family = {str(row.pk) for row in (grandparent, parent, child, brother, dead)}
    moved(pair)
    assert (ids(pair.source), ids(pair.target)) == (family, {str(other.pk)})
    Job.objects.using(pair.source).filter(pk=child.pk).update(**HAS_ENDED, lease_until=None)
    moved(pair)
    assert (ids(pair.source), ids(pair.target)) == (set(), {*family, str(other.pk)})


def test_many_refused_rows(pair: Pair) -> None:
    """However many rows the target has refused, what stays is counted: SQLite takes no number of variables."""
    job(pair.source, queue_name="lease:nightly", task_path="", unique_key="nightly", **RUNS, lease_until=1)
    move = Move(*pair)
    connections[pair.source].ensure_connection()
    if isinstance(raw := connections[pair.source].connection, sqlite3.Connection):
        raw.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)  # as SQLite itself has it; Debian's takes more
    move.refusals.update(dict.fromkeys((f"{number:032x}" for number in range(33_000)), "its unique key is taken there"))
    assert move.parts.staying() == (0, 0, 0, 1)
    assert move.parts.to_go() == 0


def test_a_large_family_is_one_batch(pair: Pair) -> None:
    """However many children a job has, they arrive together with it."""
    parent = job(pair.source, **WAITS)
    children = Job.objects.using(pair.source).bulk_create(unsaved_job(parent_id=parent.pk) for _ in range(1200))
    batches: list[int] = []
    move = Move(*pair, arrived=batches.append)
    move.go()
    assert batches == [1201]
    assert len(ids(pair.target)) == len(children) + 1


def line(alias: str, keys: Sequence[str]) -> list[list[Any]]:
    """Return the jobs of ordered keys as they would run, by their payloads; it has them end."""
    engine = engine_for(alias)
    found: list[list[Any]] = [[] for _ in keys]
    with transaction.atomic(using=alias):
        while first := {key: handle for key, handle in engine.look_up(first=keys).first.items() if handle}:
            for key, handle in first.items():
                rows = Job.objects.using(alias).annotate(place=engine.handle()).filter(place=handle)
                found[keys.index(key)].append(rows.get().payload)
                rows.update(**HAS_ENDED)
        transaction.set_rollback(True, using=alias)
    return found


def test_the_order_of_a_key_is_kept(pair: Pair) -> None:
    """There and back, however the clocks of those who have enqueued them differ, and in more than one batch."""
    keys, number = ["a", "b"], itertools.count()
    ahead = random.Random(7)
    for each in range(MOST_ROWS // 2 + 20):
        for key in keys:
            moment = HOUR_AGO + 1000 * each + ahead.choice((0, 0, 7_000))
            job(pair.source, pk=uuid4(), concurrency_key=key, ordered=True, enqueued_at=moment, payload=next(number))
    job(pair.source, pk=uuid4(), concurrency_key="a", enqueued_at=HOUR_AGO - 7)
    expected = line(pair.source, keys)
    assert list(map(len, expected)) == [MOST_ROWS // 2 + 20] * 2
    moved(pair)
    assert line(pair.target, keys) == expected
    moved(pair.back)
    assert line(pair.source, keys) == expected
    assert not ids(pair.target)


def test_a_job_in_order_that_stays(pair: Pair) -> None:
    """One that runs stays, and the others of its key go, each once."""
    given = {"concurrency_key": "a", "ordered": True}
    stays = job(pair.source, **given, **RUNS, lease_until=LATER)
    others = {str(job(pair.source, **given).pk) for _ in range(3)}
    moved(pair)
    assert (ids(pair.source), ids(pair.target)) == ({str(stays.pk)}, others)


def test_the_order_is_kept(pair: Pair) -> None:
    """Jobs due at one instant are claimed there in the order in which they were published here."""
    queue = Queue("sensors", using=pair.source)
    published = queue.publish_many(range(1100), publish_at=clock.from_instant(HOUR_AGO))
    moved(pair)
    claimed = Queue("sensors", using=pair.target).claim_many(1100)
    assert [job.id for job in claimed] == published


def test_a_large_payload_is_no_large_batch(pair: Pair) -> None:
    """A batch ends at two megabytes, so neither database is locked for long; one job may have more."""
    queue = Queue("sensors", using=pair.source)
    queue.publish_many(["x" * 900_000] * 5)
    job(pair.source, payload="x" * 3_000_000)
    batches: list[int] = []
    Move(*pair, arrived=batches.append).go()
    assert batches == [2, 2, 1, 1]


def test_a_pause_goes_with_the_jobs(pair: Pair) -> None:
    """A queue that is paused here is paused there before its first job is there, and here until its last job has gone.

    One that was resumed here meanwhile is not paused again there.
    """
    pauses.pause("emails", using=pair.source)
    runs = job(pair.source, **RUNS, lease_until=LATER)
    job(pair.source)
    moved(pair)
    assert [QueueState.objects.using(alias).count() for alias in pair] == [1, 1]
    pauses.resume("emails", using=pair.target)
    pauses.resume("emails", using=pair.source)
    Job.objects.using(pair.source).filter(pk=runs.pk).update(state="READY", worker_id="", lease_until=None)
    moved(pair)
    assert [QueueState.objects.using(alias).count() for alias in pair] == [0, 0]


@pytest.mark.parametrize("there", [60, -60, None], ids=["sooner", "over", "later"])
def test_of_two_pauses_the_one_that_ends_later_holds(pair: Pair, there: int | None) -> None:
    """None of them is lost: not one without an end to one that a 429 has made there, nor to one that is over."""
    pauses.pause("emails", using=pair.source, until=None if there else 60, reason="here")
    QueueState.objects.using(pair.target).create(
        queue_name="emails", paused_at=clock.now(), paused_until=there and clock.now() + there * 10**6, reason="there"
    )
    job(pair.source)
    moved(pair)
    paused = QueueState.objects.using(pair.target).get()
    assert (paused.paused_until, paused.reason) == (None, "here" if there else "there")
    assert not QueueState.objects.using(pair.source).exists()


def test_a_key_that_is_taken_there(pair: Pair) -> None:
    """A job whose unique key another one has there stays, with its key, and goes when that one has ended."""
    waits, there = job(pair.source, unique_key="order:7"), job(pair.target, unique_key="order:7")
    free = job(pair.source, unique_key="order:8")
    move = moved(pair)
    assert move.refusals == {waits.pk.hex: "another job there has its unique key"}
    assert ids(pair.source) == {str(waits.pk)}
    assert Job.objects.using(pair.source).get().unique_until == "done"
    assert ids(pair.target) == {str(there.pk), str(free.pk)}
    Job.objects.using(pair.target).filter(pk=there.pk).delete()
    assert moved(pair).refusals == {}
    assert ids(pair.target) == {str(waits.pk), str(free.pk)}


def test_an_id_that_is_there(pair: Pair) -> None:
    """A job of which the target has a copy, as a job or a dead letter, stays, with its family: it would run twice."""
    one, two, three = job(pair.source), job(pair.source), job(pair.source)
    child = job(pair.source, parent_id=two.pk)
    job(pair.target, pk=one.pk)
    letter(pair.target, pk=two.pk)
    assert set(moved(pair).refusals) == {one.pk.hex, two.pk.hex, child.pk.hex}
    assert ids(pair.source) == {str(one.pk), str(two.pk), str(child.pk)}
    assert str(three.pk) in ids(pair.target)


@pytest.mark.parametrize("pair", [("sqlite", "postgresql")], indirect=True)
def test_what_the_target_refuses(pair: Pair) -> None:
    """What PostgreSQL cannot store, as a NUL or a number that is too large, stays with the reason; all else goes."""
    nul = job(pair.source, queue_name="a\0b")
    large, dead = job(pair.source, max_attempts=2**40), letter(pair.source, message="a\0b")
    good, steps = job(pair.source), job(pair.source, steps={"done": ["\0"]})
    QueueState(queue_name="c", paused_at=HOUR_AGO, reason="a\0b").save(using=pair.source)
    refusals = moved(pair, wait=True).refusals
    assert set(refusals) == {nul.pk.hex, large.pk.hex, dead.pk.hex, steps.pk.hex}
    assert "NUL" in refusals[nul.pk.hex]
    assert ids(pair.source) == {str(nul.pk), str(large.pk), str(dead.pk), str(steps.pk)}
    assert ids(pair.target) == {str(good.pk)}


@pytest.mark.parametrize("pair", [("sqlite", "sqlite"), ("sqlite", "postgresql")], indirect=True)
def test_more_counts_than_a_batch_that_the_target_refuses(pair: Pair) -> None:
    """They stay with their numbers, by which they are named, and the move ends."""
    for number in range(MOST_ROWS + 1):
        Throughput(starts_at=HOUR_AGO, queue_name=f"q{number}", worker_id="w").save(using=pair.source)
    numbers = sorted(Throughput.objects.using(pair.source).values_list("pk", flat=True))
    with connections[pair.source].cursor() as cursor:
        cursor.execute("PRAGMA ignore_check_constraints = ON")  # of this connection, which puts them back
        cursor.execute("UPDATE vtqueue_throughput SET succeeded = -1")
    refusals = moved(pair).refusals
    assert set(refusals) == {f"Throughput {number}" for number in numbers}
    assert sorted(Throughput.objects.using(pair.source).values_list("pk", flat=True)) == numbers


@pytest.mark.parametrize("pair", [("sqlite", "sqlite"), ("sqlite", "postgresql")], indirect=True)
def test_a_damaged_row(pair: Pair) -> None:
    """A row whose text is not UTF-8 stays, with its family, and is named; the others of its batch go."""
    damaged, good = job(pair.source), job(pair.source)
    child = job(pair.source, parent_id=damaged.pk)
    for queue in ("a", "b"):
        Throughput(starts_at=HOUR_AGO, queue_name=queue, worker_id="w").save(using=pair.source)
    with connections[pair.source].cursor() as cursor:
        cursor.execute("UPDATE vtqueue_job SET payload = CAST(x'ff' AS TEXT) WHERE id = %s", [damaged.pk.hex])
        cursor.execute("UPDATE vtqueue_throughput SET run_times = CAST(x'ff' AS TEXT) WHERE queue_name = 'b'")
    [counts] = Throughput.objects.using(pair.source).filter(queue_name="b").values_list("pk", flat=True)
    unreadable = "it cannot be read as it is stored"
    assert moved(pair).refusals == {damaged.pk.hex: unreadable, f"Throughput {counts}": unreadable}
    assert ids(pair.target) == {str(good.pk)}
    assert set(Job.objects.using(pair.source).values_list("pk", flat=True)) == {damaged.pk, child.pk}
    assert [Throughput.objects.using(alias).count() for alias in pair] == [1, 1]


def test_what_a_requeue_goes_through(pair: Pair) -> None:
    """While a requeue in the background goes on, dead letters stay, and so do its own job and its canary."""
    canary, dead = job(pair.source), letter(pair.source)
    step = job(pair.source, task_path="django_vtqueue.requeueing.step")
    run = Requeue(criteria="{}", queue_name="emails", state="canary", created_at=HOUR_AGO, canary=canary.pk)
    run.save(using=pair.source)
    moved(pair)
    assert ids(pair.target) == set()
    Requeue.objects.using(pair.source).update(ended_at=HOUR_AGO)
    moved(pair)
    assert ids(pair.target) == {str(canary.pk), str(dead.pk), str(step.pk)}
    assert Requeue.objects.using(pair.target).get().pk == run.pk


def test_leases(pair: Pair) -> None:
    """The row of a leader goes when it is free and no job is left; the tokens go on there."""
    first = Lease("nightly", using=pair.source, ttl=30)
    first.acquire()
    job(pair.source)
    moved(pair)
    assert Job.objects.using(pair.source).filter(queue_name="lease:nightly").count() == 1
    token = first.token
    first.release()
    moved(pair)
    assert not Job.objects.using(pair.source).exists()
    with Lease("nightly", using=pair.target, ttl=30) as second:
        assert second.token == token + 1


@pytest.mark.parametrize(("queue", "key"), [("lease:nightly", "leader"), ("slots:farm", "1")])
def test_a_lease_whose_holder_is_gone(pair: Pair, queue: str, key: str) -> None:
    """It is freed when it was seen unchanged for its length, as an instance would take it, and goes: tokens go on.

    One pass does not know that yet. A row that is renewed meanwhile stays.
    """
    given = {**RUNS, "claims": 5, "unique_key": key, "task_path": "", "max_attempts": 0, "started_at": 1}
    row = job(pair.source, queue_name=queue, **given, lease_us=200_000, lease_until=HOUR_AGO)
    with Lease("weekly", using=pair.source) as weekly:
        assert moved(pair).parts.staying() == (0, 0, 1, 1)
        assert moved(pair, wait=True).parts.staying() == (0, 0, 1, 0)
        weekly.renew()
        assert Job.objects.using(pair.source).get().queue_name == "lease:weekly"
    there = Job.objects.using(pair.target).get()
    assert (there.pk, there.queue_name, there.state, there.claims) == (row.pk, queue, "READY", 5)
    assert [entry["outcome"] for entry in there.history] == ["lease expired"]


def test_a_lease_that_is_renewed_late(pair: Pair) -> None:
    """A row whose lease has ended by the clock, and that still changes, has a holder: it is not freed."""
    given = {**RUNS, "unique_key": "leader", "task_path": "", "max_attempts": 0}
    job(pair.source, queue_name="lease:nightly", **given, lease_us=200_000, lease_until=HOUR_AGO)
    later, over = itertools.count(HOUR_AGO + 1), time.monotonic() + 0.5
    while time.monotonic() < over:
        assert moved(pair).parts.staying() == (0, 0, 0, 1)
        Job.objects.using(pair.source).update(lease_until=next(later))


def test_a_lease_of_which_both_sides_have_a_row(pair: Pair) -> None:
    """They become one, whose tokens go on from the higher one; one that is held there stays here until it is free."""
    for _ in range(3):
        held(pair.source).release()
    there = held(pair.target)
    [reason] = moved(pair, wait=True).refusals.values()
    assert reason == "an instance there has 'lease:nightly'"
    assert (there.token, there.held) == (1, True)
    there.release()
    assert moved(pair, wait=True).refusals == {}
    assert not Job.objects.using(pair.source).exists()
    with Lease("nightly", using=pair.target, ttl=30) as lease:
        assert lease.token == 4


@pytest.mark.parametrize("unique_key", ["schedule:often", "key-of-its-task"])
def test_schedules(pair: Pair, unique_key: str) -> None:
    """A schedule without overlap goes when its last job has ended, whatever its key; the later next tick holds."""
    last = job(pair.source, unique_key=unique_key, **RUNS, lease_until=LATER)
    given: dict[str, Any] = {"task_path": "t.t", "expression": "every 300", "overlap": False, "declared": True}
    Schedule(name="often", **given, next_at=clock.now(), recent=[{"id": last.pk.hex, "at": 5}]).save(using=pair.source)
    Schedule(name="often", **given, next_at=LATER).save(using=pair.target)
    moved(pair)
    assert Schedule.objects.using(pair.source).get().paused_at is None
    Job.objects.using(pair.source).filter(pk=last.pk).update(**HAS_ENDED, lease_until=None)
    moved(pair)
    here, there = (Schedule.objects.using(alias).get() for alias in pair)
    assert (here.paused_by, there.paused_by) == ("vtqueue move to target", "")
    assert there.next_at == clock.from_instant(LATER)


def test_rates(pair: Pair) -> None:
    """The later of two states of a rate holds, and it goes only when no job is left that goes by it."""
    for alias, next_at in zip(pair, (LATER, LATER + 5), strict=True):
        Rate(key="api", next_at=next_at, interval_us=1).save(using=alias)
    Rate(key="other", next_at=LATER, interval_us=1).save(using=pair.source)
    runs = job(pair.source, **RUNS, lease_until=LATER)
    moved(pair)
    assert Rate.objects.using(pair.source).count() == 2
    Job.objects.using(pair.source).filter(pk=runs.pk).update(**HAS_ENDED, lease_until=None)
    moved(pair)
    assert not Rate.objects.using(pair.source).exists()
    rates = {rate.key: rate.next_at for rate in Rate.objects.using(pair.target)}
    assert rates == {"api": clock.from_instant(LATER + 5), "other": clock.from_instant(LATER)}


def test_what_a_dead_worker_has_held(pair: Pair) -> None:
    """With ``wait`` a job whose holder is gone becomes due as after any ended lease, and goes; its holder is stale."""
    now = engine_for(pair.source).now()
    held = job(pair.source, **RUNS, lease_until=now - 10**6, lease_us=10**6, started_at=now - 2 * 10**6)
    moved(pair)
    assert ids(pair.target) == set()  # nobody knows yet whether its holder could have renewed it
    moved(pair, wait=True)
    there = Job.objects.using(pair.target).get()
    assert (there.pk, there.state, there.claims, there.attempts) == (held.pk, "READY", 1, 1)
    assert [entry["outcome"] for entry in there.history] == ["lease expired"]


@pytest.mark.parametrize("pair", [("sqlite", "postgresql")], indirect=True)
def test_a_row_whose_holder_cannot_be_read(pair: Pair) -> None:
    """When its lease has ended it is buried, as a claim would do it, and goes as a dead letter."""
    now = engine_for(pair.source).now()
    held = job(pair.source, **RUNS, lease_until=now - 10**6, lease_us=10**6, started_at=now - 2 * 10**6)
    with connections[pair.source].cursor() as cursor:
        cursor.execute("UPDATE vtqueue_job SET worker_id = CAST(x'ff' AS TEXT)")
    moved(pair, wait=True)
    there = DeadLetter.objects.using(pair.target).get()
    assert (there.pk, there.exception_class) == (held.pk, "django_vtqueue.exceptions.DamagedJob")


@pytest.mark.parametrize("pair", [("sqlite", "sqlite")], indirect=True)
@pytest.mark.parametrize(("name", "stays"), [("unique_key", 2), ("queue_name", 1)])
def test_a_held_lease_that_cannot_be_read(pair: Pair, name: str, stays: int) -> None:
    """It stays and is named, and so do rows of the same cycle; all else goes, and ``wait`` ends."""
    given = {**RUNS, "task_path": "", "max_attempts": 0, "lease_us": 200_000, "lease_until": HOUR_AGO}
    for queue, key in [("slots:farm", "1"), ("slots:farm", "2"), ("lease:nightly", "leader")]:
        job(pair.source, queue_name=queue, unique_key=key, **given)
        if key == "1":
            with connections[pair.source].cursor() as cursor:
                cursor.execute(f"UPDATE vtqueue_job SET {name} = CAST({name} || x'ff' AS TEXT)")
    letter(pair.source)
    move = moved(pair, wait=True)
    assert len(move.refusals) == Job.objects.using(pair.source).count() == stays
    assert set(move.refusals.values()) == {"it cannot be read as it is stored"}
    assert Job.objects.using(pair.target).count() == 3 - stays
    assert DeadLetter.objects.using(pair.target).count() == 1
