"""What the overview counts: how much lies in each queue, and which worker runs what."""

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from django.db import DatabaseError

from django_vtqueue.core import states
from django_vtqueue.core.clock import LAST_INSTANT, from_instant, to_instant
from django_vtqueue.core.counts import hour_of
from django_vtqueue.core.histograms import Percentiles, middle_of
from django_vtqueue.core.ids import new_uuid
from django_vtqueue.core.job import MOST_CLAIMS
from django_vtqueue.engines import Engine
from django_vtqueue.fields import StoredText
from django_vtqueue.inspection import throughput
from django_vtqueue.inspection.overview import Backlog, Held, backlogs, begun, held, letters, sizes
from django_vtqueue.inspection.throughput import Flow
from django_vtqueue.models import DeadLetter, HourlyThroughput, Job, Throughput
from tests.columns import in_columns
from tests.conformance import conftest as both

alias, traced, bench, engine = both.alias, both.traced, both.bench, both.engine  # of each engine

NOW = 1_800_000_000_000_000
PAST, FUTURE = NOW - 5, NOW + 5
MINUTE = 60_000_000
LAST = NOW - NOW % MINUTE
FAR = 1 << 62  # further than any datetime


def stored(engine: Engine, queue_name: str, visible_at: int = PAST, **values: Any) -> Job:
    """Store a job; with a ``worker_id`` it is held."""
    row: dict[str, Any] = {"task_path": "shop.tasks.welcome", "max_attempts": 1, "lease_us": 1, "payload": "{}"}
    row |= {"queue_name": queue_name, "visible_at": visible_at, "enqueued_at": PAST}
    row |= {"state": states.SCHEDULED if visible_at > NOW else states.READY}
    if "worker_id" in values:
        row |= {"state": states.RUNNING, "attempts": 1, "started_at": PAST}
    return Job.objects.using(engine.alias).create(id=new_uuid(), **in_columns(row | values))


def done(engine: Engine, queue_name: str) -> None:
    stored(engine, queue_name, worker_id="w", state=states.SUCCESSFUL, finished_at=PAST)


def buried(engine: Engine, queue_name: str) -> None:
    values = {"max_attempts": 1, "lease_us": 1, "enqueued_at": PAST, "died_at": PAST, "payload": "{}"}
    DeadLetter.objects.using(engine.alias).create(id=new_uuid(), queue_name=queue_name, **values)


def test_queues_with_unfinished_jobs(engine: Engine) -> None:
    """Each queue that holds one is found, whatever it is called, with how many it holds; finished ones do not count."""
    for queue_name, count in {"a": 2, "ä'%s": 1, "z": 5}.items():
        for number in range(count):
            stored(engine, queue_name, FUTURE, priority=number, task_path="" if number % 2 else "t")
    done(engine, "b")
    assert sizes(engine.alias, 100, 3) == {"a": 2, "ä'%s": 1, "z": 3}
    assert sizes(engine.alias, 2, 3) == {"a": 2, "z": 3}


def test_queues_beside_many_leases(engine: Engine) -> None:
    """Reserved queues do not count among the first ones that are asked for."""
    for name in ("lease:a", "lease:b", "lease:c", "mail", "move:x", "slots:a", "zeta"):
        stored(engine, name, FUTURE)
        stored(engine, name, FAR, worker_id="w")
    assert engine.queue_names(1) == ["mail"]
    assert engine.queue_names(2) == engine.queue_names() == ["mail", "zeta"]
    assert sizes(engine.alias, 1, 10) == {"mail": 2}
    assert sizes(engine.alias, 2, 1) == {"mail": 1, "zeta": 1}


def test_queues_with_dead_letters(engine: Engine) -> None:
    """Each queue that has one is found, with how many it has, counted as far as was asked for."""
    for queue_name in ("a", "a", "b", "c", "c", "c", "c"):
        buried(engine, queue_name)
    assert letters(engine.alias, 100, 3) == {"a": 2, "b": 1, "c": 3}
    assert letters(engine.alias, 1, 100) == {"a": 2}


def test_no_queues(engine: Engine) -> None:
    """In an empty database there are none."""
    done(engine, "a")
    assert sizes(engine.alias, 10, 10) == letters(engine.alias, 10, 10) == {}
    assert held(engine.alias, 10, NOW) == Held(Counter(), Counter())


def test_backlogs(engine: Engine) -> None:
    """What is due of a queue is told apart from what waits for later, and how much of it are raw payloads.

    The oldest is that of all priorities; what is held or finished, and what lies in other queues, is in no number.
    """
    for priority, visible_at in ((0, PAST), (5, PAST - 7), (-5, NOW), (0, FUTURE), (5, FUTURE)):
        stored(engine, "a", visible_at, priority=priority)
    stored(engine, "a", FUTURE, attempts=1)
    stored(engine, "a", PAST - 1, task_path="", state=states.SCHEDULED)  # its time has come
    stored(engine, "a", PAST - 100, worker_id="w")
    stored(engine, "other")
    done(engine, "a")
    assert backlogs(engine.alias, ["a", "none"], NOW, 100) == {
        "a": Backlog(due=4, payloads=1, later=3, read=3, retrying=1, oldest=from_instant(PAST - 7)),
        "none": Backlog(),
    }


def test_what_a_worker_gave_back_is_due(engine: Engine) -> None:
    """It counts as due before a claim has put it into the line, since when it was due; until its moment it does not."""
    for visible_at, task_path in ((PAST, "app.task"), (PAST, ""), (FUTURE, "")):
        stored(engine, "a", visible_at, worker_id="w", task_path=task_path)
    Job.objects.using(engine.alias).update(worker_id="", due_at=from_instant(PAST - 7))
    stored(engine, "a", PAST - 3)
    expected = Backlog(due=3, payloads=1, oldest=from_instant(PAST - 7))
    assert backlogs(engine.alias, ["a"], NOW, 100) == {"a": expected}
    assert held(engine.alias, 10, NOW) == Held(Counter(), Counter())


def test_backlogs_of_what_waits_and_what_is_parked(engine: Engine) -> None:
    """They are told apart from what is scheduled or retried, each up to a limit; a wait that is stored still of a job
    that is retried does not count.
    """
    limited = {"state": states.BLOCKED, "concurrency_key": "k"}
    stored(engine, "a", FUTURE)
    for until in (FUTURE, None):
        for failed in (0, 1):
            steps = {"waiting": {"kind": "event", "name": "paid", "until": until, "since": PAST}}
            job = stored(engine, "a", FUTURE if until else LAST_INSTANT, attempts=failed, state=states.WAITING)
            Job.objects.using(engine.alias).filter(pk=job.pk).update(steps=steps)
            stored(engine, "a", LAST_INSTANT, attempts=failed, **limited)
    odd = stored(engine, "a", FUTURE + 1, attempts=1)
    Job.objects.using(engine.alias).filter(pk=odd.pk).update(steps=steps)
    for stored_steps in ("{", '"waiting"', '{"waiting": 7}', '{"waiting": {}, "done": 3}'):
        job = stored(engine, "a", FUTURE)
        with suppress(DatabaseError):  # some databases refuse what is no object
            Job.objects.using(engine.alias).filter(pk=job.pk).update(steps=StoredText(stored_steps))
    [found] = backlogs(engine.alias, ["a"], NOW, 100).values()
    assert found == Backlog(later=14, read=14, retrying=1, waiting=4, parked=4)
    assert found.scheduled == 5
    assert backlogs(engine.alias, ["a"], NOW, 2)["a"].read == 4


def test_backlogs_are_counted_up_to_a_limit(engine: Engine) -> None:
    """Of each priority no more is counted than was asked for."""
    for _ in range(3):
        stored(engine, "a", PAST), stored(engine, "a", FUTURE, attempts=1)
    assert backlogs(engine.alias, ["a"], NOW, 2) == {
        "a": Backlog(due=2, later=2, read=2, retrying=2, oldest=from_instant(PAST))
    }


@pytest.mark.parametrize("most", [100, 4])
def test_held(engine: Engine, most: int) -> None:
    """What each worker holds of each queue: running, expired, and of the running ones those that it has begun."""
    for queue_name, visible_at, values in (
        ("a", FUTURE, {"worker_id": "w1"}),
        ("a", FUTURE, {"worker_id": "w1", "attempts": 0, "started_at": None}),
        ("a", NOW, {"worker_id": "w1"}),
        ("b", FUTURE, {"worker_id": "w2"}),
        ("a", FUTURE, {}),
        ("a", PAST, {}),
    ):
        stored(engine, queue_name, visible_at, **values)
    done(engine, "a")
    found = held(engine.alias, most, NOW)
    assert found.queues == {("a", "running"): 2, ("a", "expired"): 1, ("b", "running"): 1}
    assert found.workers == {("w1", "begun"): 1, ("w1", "ahead"): 1, ("w2", "begun"): 1}
    assert held(engine.alias, 2, NOW).queues.total() == 2


def test_running(engine: Engine) -> None:
    """The jobs that workers have begun, a few of each; others hold theirs, or have not begun them."""
    for _ in range(3):
        stored(engine, "a", FUTURE, worker_id="w1", started_at=PAST)
    job = stored(engine, "b", PAST, worker_id="w2", progress=0.5, progress_text="half", cancelled_at=PAST)
    stored(engine, "b", FUTURE, worker_id="w2", attempts=0, started_at=None)
    stored(engine, "b", FUTURE, worker_id="w3")
    found = begun(engine.alias, ["w1", "w2", "gone"], 2, 100, NOW)
    assert Counter(each.worker_id for each in found) == {"w1": 2, "w2": 1}
    [other] = [each for each in found if each.worker_id == "w2"]
    assert other == job
    assert other.get_deferred_fields() == {"payload", "history", "result"}


def test_copies(engine: Engine) -> None:
    """A job that several run is one in its queue, and counts for each of its workers, since that began its copy."""
    runs = {"1": ["w1", PAST - 3, FUTURE, 2], "2": ["w2", PAST, FUTURE, 2], "0": ["w3", PAST, PAST, 2]}
    stored(engine, "a", PAST, worker_id="w2", copies=runs)
    stored(engine, "a", FUTURE, worker_id="w4", copies={"1": ["w4", PAST, FUTURE, 2]})
    found = held(engine.alias, 10, NOW)
    assert found.queues == {("a", "expired"): 1, ("a", "running"): 1}
    assert found.workers == {("w1", "begun"): 1, ("w2", "begun"): 1, ("w4", "begun"): 1}
    workers = begun(engine.alias, ["w1", "w2", "w3"], 5, 100, NOW)
    since = {each.worker_id: to_instant(each.started_at) for each in workers if each.started_at}
    assert since == {"w1": PAST - 3, "w2": PAST}


def counted(engine: Engine, queue_name: str, ago: int, worker_id: str = "w", **values: Any) -> None:
    """Store what a worker did in the minute so many minutes before the last one."""
    Throughput.objects.using(engine.alias).create(
        starts_at=LAST - ago * MINUTE, queue_name=queue_name, worker_id=worker_id, **values
    )


def test_active(engine: Engine) -> None:
    """The queues that did something in a time, and in how many of its minutes; the latest, if not all is looked at."""
    for queue_name, ago in (("a", 0), ("b", 0), ("a", 1), ("ä", 1), ("a", 4), ("c", 9), ("d", 10), ("e", -1)):
        counted(engine, queue_name, ago)
    counted(engine, "a", 0, "other")
    assert throughput.active(engine.alias, NOW, 10, 100) == {"a": 3, "b": 1, "c": 1, "ä": 1}
    assert throughput.active(engine.alias, NOW, 10, 2) == {"a": 1, "b": 1}
    assert throughput.active(engine.alias, NOW + 60 * MINUTE, 10, 100) == {}


def test_the_flow_of_some_queues(engine: Engine) -> None:
    """What some queues did each minute, by all workers, and how long it took by the hour."""
    counted(engine, "a", 0, "w1", succeeded=1, failed=2, dead=3)
    counted(engine, "a", 0, "w2", succeeded=10, failed=20, dead=30)
    counted(engine, "a", 2, succeeded=7)
    counted(engine, "b", 1, dead=1)
    for queue_name, ago in (("a", 3), ("a", -1), ("other", 0)):
        counted(engine, queue_name, ago, succeeded=1)
    for model, at in ((Throughput, LAST), (HourlyThroughput, hour_of(LAST))):
        rows = model.objects.using(engine.alias)
        rows.create(starts_at=at, queue_name="b", worker_id=model.__name__, run_times=f'{{"{len(model.__name__)}":1}}')
    flows = throughput.lately(engine.alias, ["a", "b", "none"], NOW, 3)
    assert flows == {
        "a": Flow([7, 0, 11], [0, 0, 22], [0, 0, 33]),
        "b": Flow([0, 0, 0], [0, 0, 0], [0, 1, 0], run=Percentiles(*[middle_of(len("HourlyThroughput"))] * 3)),
    }


def test_damaged_rows(engine: Engine) -> None:
    """A row whose values somebody damaged does not keep the others from being counted."""
    stored(engine, "a", FAR, worker_id="w1")
    job = Job.objects.using(engine.alias)
    job.update(started_at=-FAR, attempts=MOST_CLAIMS, progress=float("inf"))
    assert sizes(engine.alias, 10, 10) == {"a": 1}
    assert backlogs(engine.alias, ["a"], NOW, 10)["a"].later == 0
    assert held(engine.alias, 10, NOW).workers == {("w1", "begun"): 1}
    assert len(begun(engine.alias, ["w1"], 10, 100, NOW)) == 1
