"""What a clock that was ahead has stamped, once the clock is right again."""

from collections.abc import Callable

import pytest

from django_vtqueue.jobs import Place
from tests.fake_clock import at

from .bench import Bench

HOUR, YEARS = 3600, 10 * 365 * 86_400


def repair(bench: Bench, now: float, limit: int = 3) -> int:
    """Walk over all jobs, as a worker does; return how many were set right."""
    place: Place | None = Place()
    changed = 0
    while place:
        found, place = bench.engine.stamped_ahead(place, at(now), limit)
        with bench.engine.transaction():
            changed += bench.engine.set_right(found, at(now))
    return changed


@pytest.mark.parametrize("ahead", [HOUR, YEARS])
def test_what_was_published_by_a_clock_ahead_is_due_at_once(bench: Bench, ahead: float) -> None:
    """Jobs of every kind, queue and priority; they do not wait for the clock to get there again."""
    ids = [
        bench.publish("x", now=ahead, queue=queue, task=task, priority=priority)[0]
        for queue in ("q", "other")
        for task in ("", "app.tasks.one")
        for priority in (-100, 0, 100)
    ]
    assert repair(bench, now=0) == len(ids)
    assert {bench.found(job_id).visible_at for job_id in ids} == {at(0)}
    assert len(bench.claim(now=0, queues=None)) + len(bench.claim(now=0, queues=None, raw=False)) == len(ids)


def test_scheduled_jobs_stay_as_they_were_asked_for(bench: Bench) -> None:
    """A time that somebody asked for is kept, also where the clock of that moment was ahead."""
    [by_right_clock] = bench.publish("x", now=0, due=HOUR)
    [by_wrong_clock] = bench.publish("x", now=HOUR, due=2 * HOUR)
    assert repair(bench, now=1) == 0
    assert [bench.found(job_id).visible_at for job_id in (by_right_clock, by_wrong_clock)] == [at(HOUR), at(2 * HOUR)]


@pytest.mark.parametrize("ahead", [HOUR, YEARS])
def test_a_lease_of_a_clock_ahead_ends_one_lease_from_now(bench: Bench, ahead: float) -> None:
    """Its dead holder's job comes back after a visibility timeout; a living one still holds it, and renews it."""
    bench.publish("x", lease=60)
    held = bench.one(now=ahead)
    assert repair(bench, now=0) == 1
    assert bench.found(held.id).visible_at == at(60)
    assert bench.renew(held, now=20)
    assert repair(bench, now=20) == 0
    assert bench.found(held.id).visible_at == at(80)
    assert bench.claim(now=79) == []
    assert bench.one(now=80).claims == 2


def test_a_lease_that_was_extended_far_is_left_alone(bench: Bench) -> None:
    """A holder may ask for a long lease; that is no mistake of a clock."""
    bench.publish("x", lease=60)
    held = bench.one(now=0)
    assert bench.engine.extend(held, at(1), HOUR * 1_000_000)
    assert repair(bench, now=1) == 0
    assert bench.found(held.id).visible_at == at(1 + HOUR)


def give_back(bench: Bench, ahead: float) -> None:
    assert bench.release(bench.one(now=ahead), now=ahead)


def give_back_after_a_failure(bench: Bench, ahead: float) -> None:
    assert bench.nack(bench.one(now=0), now=0)
    assert bench.release(bench.one(now=0.5), now=ahead)


def fail(bench: Bench, ahead: float) -> None:
    assert bench.nack(bench.one(now=ahead), now=ahead, delay=30)


def fail_after_the_step(bench: Bench, ahead: float) -> None:
    assert bench.nack(bench.one(now=0), now=ahead, delay=30)


def requeue(bench: Bench, ahead: float) -> None:
    job = bench.one(now=0)
    assert bench.bury(job, now=0)
    assert bench.engine.requeue([job.id], at(ahead)) == {job.id}


def fail_damaged(bench: Bench, ahead: float) -> None:
    fail(bench, ahead)
    bench.jobs.update(history="{not json")


@pytest.mark.parametrize("ahead", [HOUR, YEARS])
@pytest.mark.parametrize(
    "put_off", [give_back, give_back_after_a_failure, fail, fail_after_the_step, requeue, fail_damaged]
)
def test_a_job_put_off_by_a_clock_ahead_is_due_at_once(
    bench: Bench, put_off: Callable[[Bench, float], None], ahead: float
) -> None:
    """However it came back into the queue while the clock was wrong, and whenever its attempt had begun."""
    bench.publish("x")
    put_off(bench, ahead)
    assert bench.claim(now=1) == []
    assert repair(bench, now=1) == 1
    assert bench.one(now=1)


@pytest.mark.parametrize("delay", [30, YEARS])
def test_a_retry_waits_as_long_as_it_should(bench: Bench, delay: float) -> None:
    """A retry of a right clock is left alone, however long its delay is, and where its attempt began ahead."""
    bench.publish("began right", "began ahead")
    [right, ahead] = [bench.one(now=0, limit=1), bench.one(now=HOUR, limit=1)]
    assert bench.nack(right, now=1, delay=delay)
    assert bench.nack(ahead, now=1, delay=delay)
    assert repair(bench, now=2) == 0
    assert bench.claim(now=delay) == []


def test_the_second_of_what_is_given_back_is_kept(bench: Bench) -> None:
    """A job whose code may still be running is not shown before its process must have ended."""
    [job_id] = bench.publish("x")
    assert bench.release(bench.one(now=0), now=1)
    assert repair(bench, now=0) == 0
    assert bench.found(job_id).visible_at == at(1)


def test_a_clock_that_comes_back_in_two_steps(bench: Bench) -> None:
    """What was set right by a clock still ahead is set right again."""
    [fresh, failed] = bench.publish("fresh", "failed", now=YEARS)
    assert bench.nack(bench.one(now=YEARS, limit=1), now=YEARS, delay=30)
    for now in (HOUR, 0):
        assert repair(bench, now=now) == 2
        assert [bench.found(job_id).visible_at for job_id in (fresh, failed)] == [at(now), at(now)]


def test_many_jobs_of_one_instant_are_walked_over_once(bench: Bench) -> None:
    """The walk comes to an end, sees each job, and does not depend on where its slices end."""
    bench.publish(*range(20), now=0, due=HOUR)
    bench.publish(*range(20), now=HOUR)
    bench.publish(*range(7), now=HOUR, priority=5)
    assert repair(bench, now=0, limit=5) == 27
    assert repair(bench, now=0, limit=5) == 0


def test_a_job_renewed_between_the_look_and_the_change_is_left_alone(bench: Bench) -> None:
    """What was found by a read is looked at once more under the lock."""
    bench.publish("x")
    held = bench.one(now=HOUR)
    found: list[int] = []
    place: Place | None = Place()
    while place:
        more, place = bench.engine.stamped_ahead(place, at(0), 10)
        found += more
    assert len(found) == 1
    assert bench.renew(held, now=0)
    with bench.engine.transaction():
        assert bench.engine.set_right(found, at(0)) == 0
    assert bench.found(held.id).visible_at == at(60)
