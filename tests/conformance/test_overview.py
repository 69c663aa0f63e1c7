"""What the overview counts: how much lies in each queue, and which worker runs what."""

from typing import Any

import pytest
from django.db import connections

from django_vtqueue.core import states
from django_vtqueue.core.ids import new_uuid
from django_vtqueue.core.job import MOST_CLAIMS
from django_vtqueue.engines import Engine
from django_vtqueue.engines.inspection import Backlog, HeldCount
from django_vtqueue.fields import FAR
from django_vtqueue.models import DeadLetter, Job, Throughput

from ..columns import in_columns

NOW = 1_800_000_000_000_000
PAST, FUTURE = NOW - 5, NOW + 5
MINUTE = 60_000_000
LAST = NOW - NOW % MINUTE


def stored(engine: Engine, queue_name: str, visible_at: int = PAST, **values: Any) -> Job:
    """Store a job; with a ``worker_id`` it is held."""
    row: dict[str, Any] = {"task_path": "shop.tasks.welcome", "max_attempts": 1, "lease_us": 1, "payload": "{}"}
    row |= {"queue_name": queue_name, "visible_at": visible_at, "enqueued_at": PAST}
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
    assert engine.inspection.sizes(100, 3) == {"a": 2, "ä'%s": 1, "z": 3}
    assert engine.inspection.sizes(2, 3) == {"a": 2, "z": 3}


def test_queues_with_dead_letters(engine: Engine) -> None:
    """Each queue that has one is found, with how many it has, counted as far as was asked for."""
    for queue_name in ("a", "a", "b", "c", "c", "c", "c"):
        buried(engine, queue_name)
    assert engine.inspection.letters(100, 3) == {"a": 2, "b": 1, "c": 3}
    assert engine.inspection.letters(1, 100) == {"a": 2}


def test_no_queues(engine: Engine) -> None:
    """In an empty database there are none."""
    done(engine, "a")
    assert engine.inspection.sizes(10, 10) == engine.inspection.letters(10, 10) == {}
    assert engine.inspection.held(10, NOW) == []


def test_backlogs(engine: Engine) -> None:
    """Tasks and payloads of a queue are told apart, and what is due from what waits for later.

    The oldest is that of all priorities; what is held or finished, and what lies in other queues, is in no number.
    """
    for priority, visible_at in ((0, PAST), (5, PAST - 7), (-5, NOW), (0, FUTURE), (5, FUTURE)):
        stored(engine, "a", visible_at, priority=priority)
    stored(engine, "a", PAST - 1, task_path="")
    stored(engine, "a", PAST - 100, worker_id="w")
    stored(engine, "other")
    done(engine, "a")
    assert engine.inspection.backlogs(["a", "none"], NOW, 100) == [
        Backlog("a", raw=False, due=3, later=2, oldest=PAST - 7, read=2, retrying=0),
        Backlog("a", raw=True, due=1, later=0, oldest=PAST - 1, read=0, retrying=0),
        Backlog("none", raw=False, due=0, later=0, oldest=None, read=0, retrying=0),
        Backlog("none", raw=True, due=0, later=0, oldest=None, read=0, retrying=0),
    ]
    assert engine.inspection.backlogs(["a"], NOW, 1)[0] == Backlog(
        "a", raw=False, due=1, later=1, oldest=PAST - 7, read=1, retrying=0
    )


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
    assert engine.inspection.held(most, NOW) == [
        HeldCount("a", "w1", running=2, expired=1, begun=1),
        HeldCount("b", "w2", running=1, expired=0, begun=1),
    ]
    assert sum(part.running + part.expired for part in engine.inspection.held(2, NOW)) == 2


def test_running(engine: Engine) -> None:
    """The jobs that workers have begun, a few of each; others hold theirs, or have not begun them."""
    for _ in range(3):
        stored(engine, "a", FUTURE, worker_id="w1", started_at=PAST)
    job = stored(engine, "b", PAST, worker_id="w2", progress=0.5, progress_text="half", cancelled_at=PAST)
    stored(engine, "b", FUTURE, worker_id="w2", attempts=0, started_at=None)
    stored(engine, "b", FUTURE, worker_id="w3")
    found = engine.inspection.running(["w1", "w2", "gone"], 2)
    assert [(each.worker_id, each.queue_name, each.started_at) for each in found[:-1]] == [("w1", "a", PAST)] * 2
    assert found[-1] == (job.pk.hex, "b", "shop.tasks.welcome", "w2", PAST, PAST, 0.5, "half", 1)


def counted(engine: Engine, queue_name: str, ago: int, worker_id: str = "w", **values: Any) -> None:
    """Store what a worker did in the minute so many minutes before the last one."""
    Throughput.objects.using(engine.alias).create(
        minute=LAST - ago * MINUTE, queue_name=queue_name, worker_id=worker_id, **values
    )


def test_active(engine: Engine) -> None:
    """The queues that did something in a time, and in how many of its minutes; the latest, if not all is looked at."""
    for queue_name, ago in (("a", 0), ("b", 0), ("a", 1), ("ä", 1), ("a", 4), ("c", 9), ("d", 10), ("e", -1)):
        counted(engine, queue_name, ago)
    counted(engine, "a", 0, "other")
    assert engine.inspection.active(LAST - 9 * MINUTE, LAST, 100) == {"a": 3, "b": 1, "c": 1, "ä": 1}
    assert engine.inspection.active(LAST - 9 * MINUTE, LAST, 2) == {"a": 1, "b": 1}
    assert engine.inspection.active(LAST - 20 * MINUTE, LAST - 11 * MINUTE, 100) == {}


def test_flow(engine: Engine) -> None:
    """What some queues did each minute, by all workers; minutes in which they did nothing are left out."""
    counted(engine, "a", 0, "w1", succeeded=1, failed=2, dead=3)
    counted(engine, "a", 0, "w2", succeeded=10, failed=20, dead=30)
    counted(engine, "a", 2, succeeded=7)
    counted(engine, "b", 1, dead=1)
    for queue_name, ago in (("a", 3), ("a", -1), ("other", 0)):
        counted(engine, queue_name, ago, succeeded=1)
    assert engine.inspection.flow(["a", "b", "none"], LAST - 2 * MINUTE, LAST) == [
        ("a", LAST - 2 * MINUTE, 7, 0, 0),
        ("a", LAST, 11, 22, 33),
        ("b", LAST - MINUTE, 0, 0, 1),
    ]


def test_times(engine: Engine) -> None:
    """The latest histograms of each queue, as many as are asked for, not those of other minutes."""
    for ago in range(5):
        counted(engine, "a", ago, run_times=f'{{"{ago}":1}}', wait_times="{}")
    counted(engine, "b", 1)
    found = engine.inspection.times(["a", "b"], LAST - 3 * MINUTE, LAST, 2)
    assert sorted(found) == [("a", '{"0":1}', "{}"), ("a", '{"1":1}', "{}"), ("b", "{}", "{}")]
    assert len(engine.inspection.times(["a"], LAST - 3 * MINUTE, LAST, 100)) == 4


def test_damaged_rows(engine: Engine) -> None:
    """A row whose values somebody damaged does not keep the others from being counted."""
    stored(engine, "a", FAR, worker_id="w1")
    job = Job.objects.using(engine.alias)
    job.update(started_at=-FAR, attempts=MOST_CLAIMS, progress=float("inf"))
    assert engine.inspection.sizes(10, 10) == {"a": 1}
    assert engine.inspection.backlogs(["a"], NOW, 10)[0].later == 0
    assert engine.inspection.held(10, NOW) == [HeldCount("a", "w1", running=1, expired=0, begun=1)]
    assert len(engine.inspection.running(["w1"], 10)) == 1


def test_damaged_counts(engine: Engine) -> None:
    """Numbers and histograms that are none of that kind keep nothing else from being read."""
    counted(engine, "a", 0, succeeded=3)
    counted(engine, "a", 1, run_times="{oops")
    rows = Throughput.objects.using(engine.alias)
    rows.filter(minute=LAST).update(failed=2**62)
    with connections[engine.alias].cursor() as cursor:
        cursor.execute("UPDATE vtqueue_throughput SET dead = 'many' WHERE minute = %s", [LAST - MINUTE])
    assert [numbers[2] for numbers in engine.inspection.flow(["a"], LAST - MINUTE, LAST)] == [0, 3]
    assert ("a", "{oops", "{}") in engine.inspection.times(["a"], LAST - MINUTE, LAST, 10)
