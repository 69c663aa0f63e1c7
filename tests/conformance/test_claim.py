"""What a claim takes, and in which order."""

import random
from collections.abc import Callable

import pytest

from tests.fake_clock import at

from .bench import (
    PATIENT,
    SECOND,
    Bench,
    Held,
    Patience,
    Served,
    after_a_gap,
    claims_end,
    death,
    interruption,
    payloads_of,
    tasks_of,
)

# Both shapes of the claim: named queues, and all of them.
shapes = pytest.mark.parametrize("queues", [("q",), None], ids=["named", "all"])
Names = tuple[str, ...] | None


@pytest.fixture(params=[True, False], ids=["traced", "untraced"])
def traced(request: pytest.FixtureRequest) -> bool:
    """Return both: whoever claims without a worker has an engine whose statements logs of queries see."""
    return bool(request.param)


# -- order ------------------------------------------------------------------------------------------------------------


@shapes
def test_higher_priorities_come_first(bench: Bench, queues: Names) -> None:
    """Priority goes before age: -100 is the last, 100 the first."""
    for priority in (0, -100, 5, 100, -1, 7):
        bench.publish(str(priority), priority=priority, due=-priority)
    assert bench.payloads(now=200, queues=queues) == ["100", "7", "5", "0", "-1", "-100"]


@shapes
def test_inside_a_priority_the_earliest_comes_first(bench: Bench, queues: Names) -> None:
    """What became visible first is claimed first, whenever it was published."""
    for due in (5, 3, 9, 1, 7):
        bench.publish(str(due), due=due)
    assert bench.payloads(now=10, queues=queues) == ["1", "3", "5", "7", "9"]


@shapes
def test_ties_end_in_the_order_of_insertion(bench: Bench, queues: Names) -> None:
    """Of jobs for one instant the first published is the first claimed; on SQLite whatever their ids are."""
    step = -1 if bench.vendor == "sqlite" else 1  # elsewhere the ids order them, which grow with time
    for number in range(20):
        bench.publish(str(number), ids=[f"{0xFFFF + step * number:032x}"])
    many = range(20, 40)
    bench.publish(*map(str, many), ids=[f"{0xFFFF + step * number:032x}" for number in many])
    assert bench.payloads(limit=15, queues=queues) == [str(number) for number in range(15)]
    assert bench.payloads(queues=queues) == [str(number) for number in range(15, 40)]


@shapes
def test_the_limit_takes_the_first_in_order(bench: Bench, queues: Names) -> None:
    """Claims of a few at a time give the same order as one of all."""
    chance = random.Random(1)
    for number in range(60):
        bench.publish(str(number), priority=chance.randrange(-3, 4), due=chance.randrange(5))
    expected = [row.payload for row in bench.line(bench.jobs)]
    claimed = [payload for _ in range(20) for payload in bench.payloads(now=10, limit=3, queues=queues)]
    assert claimed == expected


def test_named_queues_are_merged_by_priority_and_time(bench: Bench) -> None:
    """A worker of several queues takes the best of all, not one queue after the other."""
    bench.publish("a5", queue="a", due=5)
    bench.publish("b3", queue="b", due=3)
    bench.publish("a1", queue="a", due=1)
    bench.publish("b-urgent", queue="b", due=9, priority=1)
    bench.publish("c0", queue="c", due=0)
    assert bench.payloads(now=10, queues=("a", "b"), limit=3) == ["b-urgent", "a1", "b3"]
    assert bench.payloads(now=10, queues=("a", "b")) == ["a5"]


def test_ties_between_named_queues_end_in_the_order_of_insertion(bench: Bench) -> None:
    """Across queues as well."""
    for number, queue in enumerate("abba" * 3):
        bench.publish(str(number), queue=queue)
    assert bench.payloads(queues=("b", "a")) == [str(number) for number in range(12)]


def test_a_name_given_twice_counts_once(bench: Bench) -> None:
    """``--queues a,a`` must not hand out a job twice."""
    bench.publish("1", "2")
    assert bench.payloads(queues=("q", "q")) == ["1", "2"]


def test_tasks_and_raw_jobs_of_one_worker_are_merged(bench: Bench) -> None:
    """A worker that takes tasks and raw jobs takes them in one order."""
    bench.publish("raw3", due=3)
    bench.publish("task1", due=1, task="app.tasks.one")
    bench.publish("raw-urgent", due=5, priority=9)
    bench.publish("task4", due=4, task="app.tasks.one")
    both = [tasks_of(), payloads_of("q")]
    assert bench.payloads(now=10, served=both, limit=3) == ["raw-urgent", "task1", "raw3"]
    assert bench.payloads(now=10, served=both, limit=3) == ["task4"]


# -- which ------------------------------------------------------------------------------------------------------------


def test_queues_do_not_see_each_other(bench: Bench) -> None:
    """A claim takes jobs of the named queues only; all queues means all of them."""
    for queue in "abc":
        bench.publish(queue, queue=queue)
    assert bench.payloads(queues=("b",)) == ["b"]
    assert bench.payloads(queues=("b", "nothing")) == []
    assert sorted(bench.payloads(queues=None)) == ["a", "c"]


@shapes
@pytest.mark.parametrize("raw", [True, False])
def test_raw_jobs_and_tasks_are_never_taken_for_each_other(bench: Bench, queues: Names, raw: bool) -> None:
    """A claim of one kind neither takes nor buries the other kind, however overdue or exhausted it is."""
    other, own = ("app.tasks.one", "") if raw else ("", "app.tasks.one")
    [expired] = bench.publish("expired", task=other, max_attempts=1, lease=1, priority=9)
    bench.claim(now=0, raw=not raw)
    [due] = bench.publish("due", task=other, priority=9)
    bench.publish("mine", task=own)

    assert bench.payloads(now=100, queues=queues, raw=raw) == ["mine"]
    assert bench.payloads(now=100, queues=queues, raw=raw) == []
    assert bench.found(expired).state == "RUNNING"
    assert bench.found(due).state == "READY"


@shapes
def test_far_more_urgent_jobs_of_the_future_do_not_hide_what_is_due(bench: Bench, queues: Names) -> None:
    """Scheduled and leased jobs of higher priorities are passed over."""
    bench.publish(*range(50), priority=9, due=1000)
    bench.publish(*range(50), priority=5)
    bench.claim(now=0, limit=50)
    bench.publish("due", priority=-1)
    assert bench.payloads(now=1, queues=queues, limit=1) == ["due"]


def test_a_claim_may_set_a_lease_of_its_own(bench: Bench) -> None:
    """The claimer's visibility timeout goes before the publisher's, and renewals keep to it."""
    bench.publish("x", lease=60)
    job = bench.one(now=0, lease=5)
    assert (job.visible_at, job.lease_us) == (at(5), 5 * SECOND)
    assert bench.renew(job, now=2)
    assert bench.claim(now=6.9) == []
    assert bench.one(now=7, worker="w2").claims == 2


@pytest.mark.parametrize("thief", ["quick", "slow"], ids=["another", "the-same-worker"])
def test_what_was_taken_meanwhile_is_not_collected(bench: Bench, thief: str) -> None:
    """A claim whose leases had ended before its commit was known returns only what it still holds.

    Two threads of a process claim under one worker id: then the claim number alone tells them apart.
    """
    ids = [*bench.publish("a", lease=1), *bench.publish("b", lease=5)]
    taken = bench.take(now=0, limit=5, worker="slow")
    stolen = bench.claim(now=1, limit=1, worker=thief)
    bench.clock_at(1)
    assert [job.id for job in taken.collect()] == [job_id for job_id in ids if job_id != stolen[0].id]
    assert bench.claim(now=1, worker="slow") == []


# -- when to look again -----------------------------------------------------------------------------------------------


@shapes
def test_earliest_is_the_next_time_that_something_is_due(bench: Bench, queues: Names) -> None:
    """Over all priorities, past or future, waiting or leased; done jobs and the other kind do not count."""

    def first(raw: bool = True) -> float | None:
        return bench.earliest(Served(queues, raw))

    assert first() is None
    bench.publish("done")
    bench.ack(bench.one(now=0))
    assert first() is None
    bench.publish("far", due=500, priority=9)
    assert first() == 500
    assert first(raw=False) is None
    bench.publish("leased", due=-5, priority=3, lease=60)
    assert first() == -5
    bench.claim(now=0)
    assert first() == 60.5
    bench.publish("task", due=7, task="app.tasks.one", priority=-9)
    assert first(raw=False) == 7
    assert bench.earliest(Served(queues, raw=True), Served(queues, raw=False)) == 7


def test_earliest_looks_at_the_named_queues_only(bench: Bench) -> None:
    """The sleep of a worker does not depend on queues that it does not serve."""
    bench.publish("a", queue="a", due=1)
    bench.publish("b", queue="b", due=2)
    bench.publish("c", queue="c", due=3)
    assert bench.earliest(payloads_of("b", "c")) == 2
    assert bench.earliest(payloads_of("nothing")) is None
    assert bench.earliest() is None


def test_backlog_counts_what_is_due(bench: Bench) -> None:
    """Jobs that wait count; scheduled, held and done ones do not."""
    bench.publish("done", "held", lease=60, priority=9)
    [done, _] = bench.claim(now=0)
    bench.ack(done)
    bench.publish("due", priority=9)
    bench.publish("a", "b", "scheduled", queue="a")
    bench.publish("scheduled", due=100)
    bench.publish("task", task="app.tasks.one")

    def due(*served: Served, now: float = 10) -> int:
        return bench.backlog(*served, now=now)

    assert due(payloads_of()) == 4
    assert due(payloads_of("q")) == 1
    assert due(payloads_of("q"), now=-1) == 0
    assert due(payloads_of("a"), tasks_of()) == 4
    assert due(payloads_of(), now=100) == 5


def test_count_is_of_the_unfinished(bench: Bench) -> None:
    """Due, scheduled, held and expired jobs of the queue count; done and dead ones and other queues do not."""
    bench.dead()
    bench.publish("done", "held", "expired", lease=5)
    done, _, _ = bench.claim(now=0)
    bench.ack(done)
    bench.publish("due")
    bench.publish("scheduled", due=100)
    bench.publish("other", queue="other")
    assert bench.unfinished("q") == 4
    assert bench.unfinished("nothing") == 0


# -- ended leases -----------------------------------------------------------------------------------------------------


def takeable(bench: Bench, now: float, queues: Names, patience: Patience = PATIENT) -> list[str]:
    return bench.takeable(now, Served(queues, raw=True), patience)


@shapes
def test_an_expired_lease_may_be_taken_a_moment_after_its_end(bench: Bench, queues: Names) -> None:
    """A tenth of the lease, but no more than half a second: for that long its holder may still renew it."""
    bench.publish("2s", lease=2)
    bench.publish("30s", lease=30)
    bench.claim(now=0)
    bench.publish("waits")
    assert takeable(bench, 2.199999, queues) == []
    assert takeable(bench, 2.2, queues) == ["2s"]
    assert takeable(bench, 30.499999, queues) == ["2s"]
    assert takeable(bench, 30.5, queues) == ["2s", "30s"]


@shapes
def test_after_a_gap_a_third_of_the_lease_is_left_to_renew(bench: Bench, queues: Names) -> None:
    """By the row's own lease: after a gap of more than half of it, until a third of it, or 5 s, have passed since."""
    for lease in (6, 30, 60):
        bench.publish(f"{lease}s", lease=lease)
    bench.claim(now=0)
    assert takeable(bench, 200, queues, after_a_gap(31, ago=0)) == []
    assert takeable(bench, 200, queues, after_a_gap(31, ago=1.999999)) == []
    assert takeable(bench, 200, queues, after_a_gap(31, ago=2)) == ["6s"]
    assert takeable(bench, 200, queues, after_a_gap(31, ago=4.999999)) == ["6s"]
    assert takeable(bench, 200, queues, after_a_gap(31, ago=5)) == ["30s", "60s", "6s"]
    assert takeable(bench, 200, queues, after_a_gap(16, ago=0)) == ["60s"]
    assert takeable(bench, 200, queues, after_a_gap(2, ago=0)) == ["30s", "60s", "6s"]


def test_a_renewal_within_the_grace_keeps_the_job(bench: Bench) -> None:
    """A holder that was stopped together with the others loses nothing."""
    bench.publish("x", lease=30)
    job = bench.one(now=0, worker="w1")
    assert bench.claim(now=100, worker="w2", patience=after_a_gap(100, ago=0)) == []
    assert bench.renew(job, now=100.5)
    assert bench.claim(now=111, worker="w2", patience=after_a_gap(100, ago=11)) == []
    assert bench.ack(job, now=112)


def test_without_a_renewal_the_grace_ends(bench: Bench) -> None:
    """The job of a holder that is really gone comes back all the same."""
    bench.publish("x", lease=30)
    bench.one(now=0, worker="gone")
    assert bench.one(now=110, worker="w2", patience=after_a_gap(100, ago=10)).claims == 2


# -- the place in the line --------------------------------------------------------------------------------------------


def expire(bench: Bench, job: Held) -> None:
    """Let a lease end that is not renewed."""


def lose(bench: Bench, job: Held) -> None:
    bench.settle(death(job, now=20))


def break_off(bench: Bench, job: Held) -> None:
    bench.settle(interruption(job, 20, 21))


@shapes
@pytest.mark.parametrize("give_back", [Bench.release, expire, lose, break_off])
def test_what_comes_back_keeps_its_place_in_the_line(
    bench: Bench, queues: Names, give_back: Callable[[Bench, Held], object]
) -> None:
    """Whatever is given back, expires or loses its holder is due at the time for which it was claimed."""
    bench.publish("a", "b", "c", now=0, lease=30)
    first = bench.one(now=10, limit=1)
    give_back(bench, first)
    assert bench.found(first.id).due_at == at(0)
    assert bench.payloads(now=100, queues=queues) == ["a", "b", "c"]


def test_a_retry_goes_by_its_new_time(bench: Bench) -> None:
    """After a failed attempt a job is behind what became due before the end of its backoff."""
    bench.publish("a", "b", now=0)
    assert bench.nack(bench.one(now=10, limit=1), now=11, delay=5)
    assert bench.payloads(now=20) == ["b", "a"]


def test_a_claim_knows_that_leases_are_left_to_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends so many leases of tasks, and as many of payloads; where one of these is left, it has not taken all."""
    claims_end(monkeypatch, leases=2)
    bench.publish("a", task="shop.tasks.send", lease=5)
    bench.publish("b", "c", "d", lease=5)
    served = [tasks_of("q"), payloads_of("q")]
    assert len(bench.claim(now=0, served=served)) == 4
    for left in (True, False):
        assert bench.take(now=9, limit=10, worker="w2", served=served).everything is not left


def test_what_was_claimed_ahead_and_recalled_keeps_its_place(bench: Bench) -> None:
    """It has not begun, and uses no attempt."""
    bench.publish("a", "b", "c", now=0)
    _, ahead = bench.claim(now=1, limit=1, ahead=1)
    assert ahead.started_at is None
    assert bench.release(ahead, now=2)
    assert bench.payloads(now=3, worker="w2") == ["b", "c"]


def test_what_is_released_unfinished_is_hidden_until_its_moment(bench: Bench) -> None:
    """Its code may still run until then; afterwards it comes back without having used the attempt."""
    [job_id] = bench.publish("x", lease=60, max_attempts=1)
    assert not bench.settle(interruption(bench.one(now=0), 10, 11))
    assert (bench.found(job_id).state, bench.found(job_id).visible_at) == ("RUNNING", at(11))
    assert bench.held_by("") == []
    assert bench.claim(now=10.999999, worker="w2") == []
    again = bench.one(now=11, worker="w2")
    assert (again.attempts, again.claims) == (1, 2)
    assert bench.outcomes(job_id) == ["released"]
