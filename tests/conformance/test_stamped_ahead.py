"""What a clock that was ahead has stamped, once the clock is right again."""

from collections.abc import Callable

import pytest

from tests.fake_clock import at

from .bench import EVENT, Bench, StoredText, interruption, payloads_of, suspension

HOUR, YEARS = 3600, 10 * 365 * 86_400


@pytest.mark.parametrize("ahead", [HOUR, YEARS])
def test_what_was_published_by_a_clock_ahead_is_due_at_once(bench: Bench, ahead: float) -> None:
    """Jobs of every kind, queue and priority; they do not wait for the clock to get there again."""
    ids = [
        bench.publish("x", now=ahead, queue=queue, task=task, priority=priority)[0]
        for queue in ("q", "other")
        for task in ("", "app.tasks.one")
        for priority in (-100, 0, 100)
    ]
    assert bench.repair(now=0) == len(ids)
    assert {bench.found(job_id).visible_at for job_id in ids} == {at(0)}
    assert len(bench.claim(now=0, queues=None)) + len(bench.claim(now=0, queues=None, raw=False)) == len(ids)


def test_scheduled_jobs_stay_as_they_were_asked_for(bench: Bench) -> None:
    """A time that was asked for is kept, also if the clock was ahead at that moment."""
    [by_right_clock] = bench.publish("x", now=0, due=HOUR)
    [by_wrong_clock] = bench.publish("x", now=HOUR, due=2 * HOUR)
    assert bench.repair(now=1) == 0
    assert [bench.found(job_id).visible_at for job_id in (by_right_clock, by_wrong_clock)] == [at(HOUR), at(2 * HOUR)]


@pytest.mark.parametrize("ahead", [HOUR, YEARS])
def test_a_lease_of_a_clock_ahead_ends_one_lease_from_now(bench: Bench, ahead: float) -> None:
    """Its dead holder's job comes back after a visibility timeout; a living one still holds it, and renews it."""
    bench.publish("x", lease=60)
    held = bench.one(now=ahead)
    assert bench.repair(now=0) == 1
    assert bench.found(held.id).visible_at == at(60)
    assert bench.renew(held, now=20)
    assert bench.repair(now=20) == 0
    assert bench.found(held.id).visible_at == at(80)
    assert bench.claim(now=79) == []
    assert bench.one(now=80).claims == 2


def test_the_place_of_what_is_held_is_set_right(bench: Bench) -> None:
    """Also if its lease is right, renewed since: else it would wait when it is given back, or when its holder dies."""
    bench.publish("x", now=HOUR)
    held = bench.one(now=HOUR)
    assert bench.renew(held, now=0, afresh=True)
    assert bench.repair(now=0) == 1
    assert bench.found(held.id).visible_at == at(60)
    assert bench.repair(now=1) == 0
    assert bench.one(now=61).claims == 2


def test_the_place_of_what_is_hidden_is_set_right_with_it(bench: Bench) -> None:
    """What was given back by a clock ahead, while its code may run, is due when it is visible."""
    bench.publish("x", now=HOUR)
    held = bench.one(now=HOUR)
    assert bench.settle(interruption(held, HOUR, HOUR + 1)) == set()
    assert bench.repair(now=0) == 1
    assert bench.one(now=1).claims == 2


def test_a_lease_that_was_extended_far_is_left_alone(bench: Bench) -> None:
    """A holder may ask for a long lease; that is no mistake of a clock."""
    bench.publish("x", lease=60)
    held = bench.one(now=0)
    assert bench.extend(held, 1, until=1 + HOUR)
    assert bench.repair(now=1) == 0
    assert bench.found(held.id).visible_at == at(1 + HOUR)


def fail(bench: Bench, ahead: float) -> None:
    assert bench.nack(bench.one(now=ahead), now=ahead, delay=30)


def fail_after_the_step(bench: Bench, ahead: float) -> None:
    assert bench.nack(bench.one(now=0), now=ahead, delay=30)


def requeue(bench: Bench, ahead: float) -> None:
    job = bench.one(now=0)
    assert bench.bury(job, now=0)
    assert bench.requeue(job.id, now=ahead) == {job.id}


def fail_damaged(bench: Bench, ahead: float) -> None:
    fail(bench, ahead)
    bench.jobs.update(history=StoredText("{not json"))


@pytest.mark.parametrize("ahead", [HOUR, YEARS])
@pytest.mark.parametrize("put_off", [fail, fail_after_the_step, requeue, fail_damaged])
def test_a_job_put_off_by_a_clock_ahead_is_due_at_once(
    bench: Bench, put_off: Callable[[Bench, float], None], ahead: float
) -> None:
    """However it came back into the queue while the clock was wrong, and whenever its attempt had begun."""
    bench.publish("x")
    put_off(bench, ahead)
    assert bench.claim(now=1) == []
    assert bench.repair(now=1) == 1
    assert bench.one(now=1)


@pytest.mark.parametrize("delay", [30, YEARS])
def test_a_retry_waits_as_long_as_it_should(bench: Bench, delay: float) -> None:
    """A retry of a right clock is left alone, however long its delay is, and where its attempt began ahead."""
    bench.publish("began right", "began ahead", lease=2 * HOUR)
    [right, ahead] = [bench.one(now=0, limit=1), bench.one(now=HOUR, limit=1)]
    assert bench.nack(right, now=1, delay=delay)
    assert bench.nack(ahead, now=1, delay=delay)
    assert bench.repair(now=2) == 0
    assert bench.claim(now=delay) == []


@pytest.mark.parametrize("claimed_ahead", [False, True])
def test_a_delay_survives_a_walk_whenever_its_thread_began(bench: Bench, claimed_ahead: bool) -> None:
    """What was claimed ahead began later than its row says: no two stamps of a row are compared with each other."""
    bench.publish("x")
    job = bench.one(limit=1 - claimed_ahead, ahead=claimed_ahead)
    job.attempts, job.started_at = 1, at(0.5)
    assert bench.nack(job, now=1, delay=HOUR)
    assert bench.repair(now=2) == 0
    assert bench.found(job.id).due_at == at(1 + HOUR)


def test_a_time_that_was_asked_for_survives_a_release_by_a_clock_ahead(bench: Bench) -> None:
    """A job that ran early because the clock was ahead, and was given back, waits for its own time again."""
    [job_id] = bench.publish("x", now=0, due=HOUR)
    held = bench.one(now=2 * HOUR)
    assert not bench.settle(interruption(held, 2 * HOUR, 2 * HOUR + 1))
    bench.end_leases(payloads_of("q"), now=2 * HOUR + 2)
    assert bench.repair(now=1) == 1
    assert (bench.found(job_id).state, bench.found(job_id).visible_at) == ("SCHEDULED", at(HOUR))


def test_a_wait_that_a_clock_ahead_has_ended(bench: Bench) -> None:
    """A durable task that a claim has put into the line too early waits again: its event wakes it."""
    [job_id] = bench.publish("x", task="app.tasks.one")
    assert not bench.settle(suspension(bench.one(raw=False), EVENT, "paid", 5 * HOUR, now=1))
    bench.publish("other", task="app.tasks.one", priority=5)
    assert bench.one(now=6 * HOUR, limit=1, raw=False).id != job_id
    assert bench.found(job_id).state == "READY"
    bench.repair(now=2)
    assert (bench.found(job_id).state, bench.found(job_id).visible_at) == ("WAITING", at(5 * HOUR))
    assert bench.send_event(job_id, "paid", 1, now=3)
    assert bench.one(now=3, raw=False).id == job_id


def test_a_clock_that_comes_back_in_two_steps(bench: Bench) -> None:
    """What was set right by a clock still ahead is set right again."""
    [fresh, failed] = bench.publish("fresh", "failed", now=YEARS)
    assert bench.nack(bench.one(now=YEARS, limit=1), now=YEARS, delay=30)
    for now in (HOUR, 0):
        assert bench.repair(now=now) == 2
        assert [bench.found(job_id).visible_at for job_id in (fresh, failed)] == [at(now), at(now)]


def test_many_jobs_of_one_instant_are_walked_over_once(bench: Bench) -> None:
    """The walk comes to an end, sees each job, and does not depend on where its slices end."""
    bench.publish(*range(20), now=0, due=HOUR)
    bench.publish(*range(20), now=HOUR)
    bench.publish(*range(7), now=HOUR, priority=5)
    assert bench.repair(now=0, limit=5) == 27
    assert bench.repair(now=0, limit=5) == 0


def test_a_job_renewed_between_the_look_and_the_change_is_left_alone(bench: Bench) -> None:
    """A row that was found by a read is looked at again under the lock."""
    bench.publish("x")
    held = bench.one(now=HOUR)
    found = bench.stamped_ahead(now=0)
    assert len(found) == 1
    assert bench.renew(held, now=0, afresh=True)
    assert bench.set_right(found, now=0) == 0
    assert bench.found(held.id).visible_at == at(60)
