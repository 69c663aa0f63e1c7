"""Paused queues: nothing of theirs is found, whatever the shape of the question; all else is found as before."""

import pytest

from django_vtqueue import control
from django_vtqueue.models import QueueState

from .bench import Bench, Served, payloads_of

Names = tuple[str, ...] | None

MANY = tuple(f"q{number}" for number in range(150))
SHAPES = {"all": None, "named": ("a", "b", "c"), "many": ("a", "b", "c", *MANY)}
shapes = pytest.mark.parametrize("queues", SHAPES.values(), ids=SHAPES)


@shapes
@pytest.mark.parametrize("task", ["", "app.tasks.one"], ids=["raw", "task"])
def test_a_claim_takes_nothing_of_a_paused_queue(bench: Bench, queues: Names, task: str) -> None:
    """Neither payloads nor tasks, however high their priority; the others come in their order."""
    bench.publish("a1", "a2", queue="a", priority=9, task=task)
    bench.publish("b1", "b2", queue="b", task=task)
    bench.publish("c1", queue="c", priority=5, task=task)
    bench.pause("a")
    assert bench.payloads(limit=2, queues=queues, raw=not task) == ["c1", "b1"]
    assert bench.payloads(queues=queues, raw=not task) == ["b2"]
    control.resume("a", using=bench.alias)
    assert bench.payloads(queues=queues, raw=not task) == ["a1", "a2"]


@shapes
def test_a_pause_ends_by_itself(bench: Bench, queues: Names) -> None:
    """At its end, to the microsecond, and though its row is still there."""
    bench.publish("x", queue="a")
    bench.pause("a", until=5)
    assert bench.payloads(4.999999, queues=queues) == []
    assert bench.payloads(5, queues=queues) == ["x"]


@shapes
def test_expired_jobs_of_a_paused_queue_wait(bench: Bench, queues: Names) -> None:
    """One whose holder died is neither taken nor, without attempts left, moved to the dead letters, until it ends."""
    bench.publish("x", queue="a", lease=1, max_attempts=1)
    bench.one(queues=("a",))
    bench.pause("a", until=5)
    assert bench.claim(4, queues=queues) == []
    assert bench.letters.count() == 0
    assert bench.claim(5, queues=queues) == []
    assert bench.letters.count() == 1


def test_what_is_held_of_a_paused_queue_is_its_holders(bench: Bench) -> None:
    """The holder of a job whose queue is paused keeps its lease up and settles it as usual."""
    bench.publish("x", "y", queue="a", lease=1)
    first, second = bench.claim(queues=("a",))
    bench.pause("a")
    assert bench.renew(first, 2)
    assert bench.extend(first, 2)
    assert bench.ack(first, 3)
    assert bench.nack(second, 3)


@shapes
def test_earliest_is_the_end_of_the_pause(bench: Bench, queues: Names) -> None:
    """From when on something may be claimed: not before the end of its pause; never, if that has none."""
    mine = Served(queues, raw=True)
    bench.publish("x", queue="a", due=-5)
    bench.pause("a")
    assert bench.earliest(mine) is None
    bench.publish("x", queue="b", due=300)
    assert bench.earliest(mine) == 300
    bench.pause("a", until=20)
    assert bench.earliest(mine) == 20
    bench.publish("x", queue="c", due=10)
    assert bench.earliest(mine) == 10
    bench.pause("a", until=-20)
    assert bench.earliest(mine) == -5


def test_earliest_of_a_job_scheduled_beyond_the_pause(bench: Bench) -> None:
    """A pause brings nothing forward."""
    bench.publish("x", queue="a", due=30)
    bench.pause("a", until=20)
    assert bench.earliest(payloads_of()) == 30


@shapes
def test_the_backlog_is_that_of_the_others(bench: Bench, queues: Names) -> None:
    """Due jobs of a paused queue are not counted until the pause ends."""
    bench.publish("x", "y", queue="a")
    bench.publish("x", queue="b")
    bench.pause("a", until=5)
    assert bench.backlog(Served(queues, raw=True), now=4) == 1
    assert bench.backlog(Served(queues, raw=True), now=5) == 3


def test_claims_beside_a_pause_in_order(bench: Bench) -> None:
    """With something paused, what is left of all queues comes by priority, time and insertion as without."""
    for number in range(60):
        bench.publish(number, queue=f"q{number % 7}", priority=number % 3, due=-(number % 4))
    for name in ("q1", "q4", "nothing"):
        bench.pause(name)
    expected = bench.line(bench.jobs.exclude(queue_name__in=["q1", "q4"]))
    assert [job.id for job in bench.claim(queues=None)] == [row.pk.hex for row in expected]


def test_names_of_queues(bench: Bench) -> None:
    """Those with unfinished jobs, scheduled or held, of tasks or payloads; each once; the first ones, if not all."""
    assert bench.queue_names() == []
    bench.publish("x", "y", queue="b", due=50)
    bench.publish("x", queue="a", task="app.tasks.one")
    bench.publish("x", queue="done")
    bench.ack(bench.one(queues=("done",)))
    bench.claim(queues=("b",))
    assert bench.queue_names() == ["a", "b"]
    assert bench.queue_names(1) == ["a"]


def test_pauses_that_have_ended_are_pruned(bench: Bench) -> None:
    """So that they do not pile up; a pause in effect stays."""
    for name, until in {"ended": 5, "on": 6, "for good": None}.items():
        bench.pause(name, until)
    assert [bench.prune(now, 100) for now in (4, 5, 5)] == [0, 1, 0]
    assert set(QueueState.objects.using(bench.alias).values_list("pk", flat=True)) == {"on", "for good"}
