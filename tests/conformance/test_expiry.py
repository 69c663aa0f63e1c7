"""Expiry on each engine: a job that has not started by then is never run; it becomes a dead letter."""

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_vtqueue import Queue, control, requeue
from django_vtqueue.models import DeadLetter
from tests.conftest import claimed
from tests.fake_clock import FakeClock, at

from .bench import MOST_BURIED, SECOND, Bench, Taken, held_of, interruption, moment, put_off, release


@pytest.fixture
def queue(alias: str, time: FakeClock) -> Queue:
    return Queue("q", using=alias, max_attempts=2)


def taken(bench: Bench, now: float, limit: int = 1, **options: Any) -> tuple[Taken, list[str]]:
    """Claim; return what was taken, and the payloads that are handed out."""
    took = bench.take(now, limit, **options)
    return took, [job.payload.strip('"') for job in took.collect()]


# -- the moment -------------------------------------------------------------------------------------------------------


def test_to_the_moment(queue: Queue, time: FakeClock) -> None:
    """A microsecond before it the job is handed out, at it no more."""
    for early in (1, 0):
        queue.publish(early, expires=10)
        time.advance(10 - early / SECOND)
        job = queue.claim()
        assert (job and job.payload) == (1 if early else None)


def test_the_letter(queue: Queue, alias: str, time: FakeClock) -> None:
    """It says what became of the job: not an attempt, nobody's failure; a requeue sends it round without a time."""
    job_id = queue.publish({"id": 7}, expires=timedelta(seconds=10), priority=3)
    time.advance(60)
    assert queue.claim() is None
    letter = DeadLetter.objects.using(alias).get()
    assert (letter.pk, letter.payload, letter.priority, letter.attempts) == (job_id, {"id": 7}, 3, 0)
    assert letter.exception_class == "django_vtqueue.exceptions.JobExpired"
    assert letter.message == "It had not started by 2027-01-15 08:00:10+00:00."
    assert letter.died_at == moment(60)
    [entry] = letter.history
    assert (entry["outcome"], entry["number"]) == ("expired", 0)
    assert requeue(job_id, using=alias) == [job_id]
    time.advance(100_000)
    job = claimed(queue)
    assert (job.id, job.attempt, job.claim_number) == (job_id, 1, 1)


@pytest.mark.parametrize(
    ("expires", "options", "problem"),
    [
        (-1, {}, "is over"),
        (0, {}, "is over"),
        (timedelta(seconds=-1), {}, "is over"),
        (moment(-1), {}, "is over"),
        (10, {"delay": 10}, "not after the moment at which the job is due"),
        (10, {"publish_at": moment(11)}, "not after the moment at which the job is due"),
        (moment(0).replace(tzinfo=None), {}, "naive"),
        (True, {}, "A duration is"),
        (float("nan"), {}, "A duration is"),
    ],
)
def test_what_no_job_can_keep(queue: Queue, expires: Any, options: dict[str, Any], problem: str) -> None:
    """A time that is over, or comes before the job is due, is refused, and nothing is stored."""
    with pytest.raises(ValueError, match=problem):
        queue.publish(1, expires=expires, **options)
    with pytest.raises(TypeError, match="expires is 'soon', but must be a datetime, or a duration"):
        queue.publish(1, expires="soon")  # type: ignore[arg-type]
    assert len(queue) == 0


# -- what has started, and what has not -------------------------------------------------------------------------------


def test_a_retry_goes_on(queue: Queue, alias: str, time: FakeClock) -> None:
    """A job that has started in time is tried again after it: failed, or its lease ended."""
    queue.publish(1, expires=10)
    claimed(queue).nack(delay=30)
    time.advance(30)
    assert claimed(queue).attempt == 2
    queue.publish(2, expires=10)
    lost = claimed(queue)
    time.advance(1000)
    assert [job.payload for job in queue.claim_many(5)] == [2]
    assert lost.payload == 2
    assert [letter.payload for letter in DeadLetter.objects.using(alias)] == [1]  # its attempts were used up


@pytest.mark.parametrize(
    "verb",
    [release, lambda job: interruption(job, 1, 2), lambda job: put_off(job, 5, 1)],
    ids=["release", "worker stops", "put off"],
)
def test_what_was_given_back_without_an_attempt_has_not_started(bench: Bench, verb: Any) -> None:
    """A claim that used no attempt is as if it had not been: the time still counts."""
    bench.publish("x", start_by=10)
    bench.settle(verb(bench.one(0)))
    took, found = taken(bench, 10)
    assert (found, len(took.buried)) == ([], 1)


@pytest.mark.parametrize("verb", [release, lambda job: put_off(job, 60, 1)], ids=["release", "put off"])
def test_what_has_begun_and_is_given_back(bench: Bench, verb: Any) -> None:
    """A job that has used an attempt, or made a step, does not expire any more."""
    fresh, tried, stepped = (bench.publish("x", start_by=10, task="app.task")[0] for _ in range(3))
    held = {job.id: job for job in bench.claim(0, raw=False)}
    bench.nack(held[tried])
    held[tried] = bench.one(1, raw=False)
    assert bench.note_steps(held[stepped], [{"kind": "step", "name": "a", "value": 1}])
    bench.settle(*map(verb, held.values()))
    assert [row.pk.hex for row in bench.jobs.filter(start_by__lte=at(10))] == [fresh]


def test_what_expires_is_not_claimed_ahead(bench: Bench) -> None:
    """It would start later than it was claimed; what stands behind it has to wait too, for the order is kept."""
    bench.publish("now", start_by=100)
    bench.publish("next", start_by=100)
    bench.publish("then")
    assert taken(bench, 1, limit=1, ahead=5)[1] == ["now"]


@pytest.mark.parametrize(("now", "begins"), [(9.999999, True), (10, False)])
def test_a_job_that_waits_for_its_turn(bench: Bench, now: float, begins: bool) -> None:
    """One that was claimed in time, but whose turn comes too late, is given back, and buried by the next claim."""
    bench.publish("x", start_by=10, task="app.task")
    with bench.transaction():
        [job] = bench.take(5, raw=False, begins_later=True).read()
        assert bench.begin_in_turn(job, now) is begins
    if not begins:
        assert bench.release(job)
        assert [late.id for late in bench.take(now, raw=False).buried] == [job.id]


# -- among others -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", [("q",), ("q", "other"), None], ids=["one", "named", "all"])
def test_a_claim_gets_as_many_as_without_them(bench: Bench, queues: tuple[str, ...] | None) -> None:
    """What has expired in front and between is buried, and as many others are handed out, in order."""
    for number in range(30):
        bench.publish(f"x{number}", f"y{number}", start_by=5)
        bench.publish(str(number))
    assert bench.payloads(5, limit=20, queues=queues) == [str(number) for number in range(20)]
    assert bench.payloads(5, limit=20, queues=queues) == [str(number) for number in range(20, 30)]
    assert (bench.letters.count(), bench.jobs.filter(state="READY").count()) == (60, 0)


def test_a_claim_buries_a_few_at_a_time(bench: Bench) -> None:
    """However many have expired in front: other writers wait meanwhile. The claim says that there is more."""
    bench.publish(*range(3 * MOST_BURIED), start_by=5)
    bench.publish("behind")
    for _ in range(2):
        took, found = taken(bench, 5, limit=3)
        assert (len(took.buried), found, took.everything) == (MOST_BURIED, [], False)
    took, found = taken(bench, 5, limit=3)
    assert (len(took.buried), found, took.everything) == (MOST_BURIED, ["behind"], True)


def test_a_queue_goes_on_until_it_finds_one(queue: Queue, alias: str, time: FakeClock) -> None:
    """``claim`` returns the job behind very many that have expired; None only if nothing is due."""
    queue.publish_many(range(3 * MOST_BURIED + 1), expires=5)
    behind = queue.publish("behind")
    time.advance(5)
    assert claimed(queue).id == behind
    assert queue.claim() is None
    assert DeadLetter.objects.using(alias).count() == 3 * MOST_BURIED + 1


def test_more_others_than_asked_for(bench: Bench) -> None:
    """Looking behind what has expired does not make a claim take more than it was asked for, nor think it took all."""
    bench.publish("late", start_by=5)
    bench.publish(*range(10))
    took, found = taken(bench, 5, limit=3)
    assert (found, took.everything) == (["0", "1", "2"], False)
    took, found = taken(bench, 5, limit=3, ahead=2)
    assert (found, took.everything) == (["3", "4", "5", "6", "7"], False)


def test_a_damaged_row_is_buried_too(bench: Bench) -> None:
    """One that cannot be read as it is stored is in no claim's way for ever."""
    bench.publish("x", start_by=5)
    bench.publish("behind")
    bench.damage("UPDATE vtqueue_job SET history = CAST(x'5bff5d' AS TEXT) WHERE start_by IS NOT NULL")
    assert taken(bench, 5)[1] == ["behind"]
    assert (bench.letters.count(), bench.jobs.count()) == (1, 1)


# -- what no claim comes across ---------------------------------------------------------------------------------------


def test_the_most_overdue_first(bench: Bench) -> None:
    """Of every queue, paused ones too; not what is held, nor what has started in time, nor what is not over yet."""
    [late], [later], [held] = (bench.publish("x", start_by=start_by) for start_by in (5, 4, 3))
    bench.publish("x", start_by=11)
    bench.publish("x")
    for priority, job_id in enumerate((later, late, held)):
        bench.jobs.filter(pk=job_id).update(priority=priority)
    retried, other = bench.publish("x", "x", start_by=2, priority=5)
    assert bench.nack(bench.one(0, limit=1), 1)
    assert bench.one(0, limit=1).id == other
    assert bench.one(0, limit=1).id == held
    control.pause("q", using=bench.alias)
    assert bench.overdue(9, now=10) == [later, late]
    assert bench.overdue(1, now=10) == [later]
    assert bench.found(retried).attempts == 1


# -- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_duplicate", ["keep", "replace", "error"])
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in atomic"])
@pytest.mark.parametrize("given_back", [False, True], ids=["never begun", "given back"])
def test_what_has_expired_keeps_no_key(
    queue: Queue, bench: Bench, alias: str, time: FakeClock, on_duplicate: Any, inside: bool, given_back: bool
) -> None:
    """A job that will never run is no reason not to store another one, even before it was buried."""
    old = queue.publish_many(["a", "b"], unique_key=str, expires=10)
    for job in queue.claim_many(2) if given_back else ():
        bench.settle(interruption(held_of(job), 0, 1))
    time.advance(10)
    with transaction.atomic(using=alias) if inside else nullcontext():
        one = queue.publish("a", unique_key="a", on_duplicate=on_duplicate, expires=10)
        many = queue.publish_many(["c", "b"], unique_key=str, on_duplicate=on_duplicate)
    assert {*many, one}.isdisjoint(old) is (on_duplicate != "replace")
    assert sorted(job.payload for job in queue.claim_many(9)) == ["a", "b", "c"]
