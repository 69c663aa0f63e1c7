"""At least once, settled once, and nothing else has to be alive for it."""

import pytest
from django.db import transaction as transactions

from tests.fake_clock import at

from .bench import VERBS, Bench, Verb, altered, claim_of, failure, success

verbs = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


# -- at least once ----------------------------------------------------------------------------------------------------


def test_a_job_comes_back_until_an_attempt_is_acknowledged(bench: Bench) -> None:
    """A committed job runs until one attempt is acknowledged, and never after that."""
    bench.publish("x", max_attempts=0)
    for attempt in range(1, 21):
        assert bench.one(now=60 * attempt, worker=f"w{attempt}").claims == attempt
    job = bench.one(now=60 * 21)
    assert bench.ack(job, now=60 * 21 + 1)
    assert bench.claim(now=1e6) == []


def test_a_job_that_is_never_acknowledged_ends_as_a_dead_letter_with_its_history(bench: Bench) -> None:
    """What ends without an acknowledgement is in the dead-letter table, each of its attempts in its history."""
    [job_id] = bench.publish({"n": 1}, max_attempts=3)
    bench.nack(bench.one(now=0, worker="w1"), now=1)
    bench.one(now=2, worker="w2")
    bench.nack(bench.one(now=62, worker="w3"), now=63)

    assert bench.unfinished("q") == 0
    letter = bench.found(job_id)
    assert (letter.state, letter.payload, letter.attempts, letter.claims) == ("FAILED", '{"n":1}', 3, 3)
    entries = bench.past(job_id)
    assert [entry["number"] for entry in entries] == [1, 2, 3]
    assert [entry["worker"] for entry in entries] == ["w1", "w2", "w3"]
    assert [entry["outcome"] for entry in entries] == ["failed", "lease expired", "failed"]
    assert [entry["started"] for entry in entries] == [at(0), at(2), at(62)]
    assert [entry["ended"] for entry in entries] == [at(1), at(62), at(63)]


def test_what_is_not_committed_was_never_there(bench: Bench) -> None:
    """A transaction of the engine is all or nothing: what it settled and claimed is undone by an error."""
    [dying, waiting] = bench.publish("a", "b")
    held = bench.claim(limit=1)[0]
    before = bench.everything()

    def transaction() -> None:
        with bench.transaction():
            bench.settle(failure(held, now=1, delay=None))
            assert bench.take(now=1, limit=1, worker="w2").count == 1
            assert [bench.found(job_id).state for job_id in (dying, waiting)] == ["FAILED", "RUNNING"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transaction()
    assert bench.everything() == before


def test_the_callers_transaction_decides(bench: Bench) -> None:
    """Inside the caller's own transaction every verb takes part in it: it commits or rolls back the lot."""
    letter, [old] = bench.dead(), bench.publish("old")
    before = bench.everything()

    def transaction(commit: bool) -> list[str]:
        with transactions.atomic(using=bench.alias):
            [new] = bench.publish("new", "more")[:1]
            assert bench.requeue(letter, now=1) == {letter}
            claimed = {job.id: job for job in bench.claim(now=1)}
            assert bench.ack(claimed[new], now=2)
            assert bench.bury(claimed[old], now=2)
            if not commit:
                raise ZeroDivisionError
            return [new, old, letter]

    with pytest.raises(ZeroDivisionError):
        transaction(commit=False)
    assert bench.everything() == before
    states = [bench.found(job_id).state for job_id in transaction(commit=True)]
    assert states == ["SUCCESSFUL", "FAILED", "RUNNING"]


# -- settled once -----------------------------------------------------------------------------------------------------


@verbs
@pytest.mark.parametrize(
    "stale",
    [
        pytest.param({"id": "0" * 32}, id="id"),
        pytest.param({"claims": 1}, id="claims-before"),
        pytest.param({"claims": 3}, id="claims-after"),
        pytest.param({"worker_id": "w1"}, id="worker_id"),
    ],
)
def test_each_part_of_the_guard_counts_by_itself(bench: Bench, verb: Verb, stale: dict[str, object]) -> None:
    """A change with another id, claim number or worker changes no row, and says so."""
    bench.publish("x")
    bench.release(bench.one(worker="w1"), now=1)
    job = bench.one(now=2, worker="w2")
    before = bench.everything()
    assert not verb(bench, altered(job, **stale), 3)
    assert bench.everything() == before
    assert verb(bench, job, 4)


@verbs
def test_only_a_running_row_can_be_changed(bench: Bench, verb: Verb) -> None:
    """The state is the fourth part of the guard: what is done stays done, though id, claims and worker are the same."""
    bench.publish("x")
    job = bench.one()
    assert bench.ack(job, now=1)
    before = bench.everything()
    assert before[0]["worker_id"] == job.worker_id
    assert before[0]["claims"] == job.claims
    assert not verb(bench, job, 2)
    assert bench.everything() == before


@verbs
@pytest.mark.parametrize("ending", ["nack", "release", "bury"])
def test_a_job_that_was_given_back_is_not_held_any_more(bench: Bench, verb: Verb, ending: str) -> None:
    """A holder that has settled its job holds it no longer, and is told so, also before another claim takes it."""
    bench.publish("x")
    job = bench.one()
    assert VERBS[ending](bench, job, 1)
    before = bench.everything()
    assert not verb(bench, job, 2)
    assert bench.everything() == before


@verbs
def test_a_late_holder_changes_nothing_and_is_told(bench: Bench, verb: Verb) -> None:
    """A holder that lost the job to another cannot touch it, and the new holder is unharmed."""
    bench.publish("x")
    late = bench.one(now=0, worker="w1")
    holder = bench.one(now=60, worker="w2")
    before = bench.everything()
    assert not verb(bench, late, 61)
    assert bench.everything() == before
    assert bench.ack(holder, now=62)


@verbs
def test_a_late_holder_of_the_same_worker_is_late_too(bench: Bench, verb: Verb) -> None:
    """A worker that claimed its own job again after its lease has two claims of it: only the second counts."""
    bench.publish("x")
    late, holder = bench.one(now=0), bench.one(now=60)
    assert late.worker_id == holder.worker_id
    assert not verb(bench, late, 61)
    assert bench.ack(holder, now=62)


@verbs
def test_a_holder_whose_last_attempt_expired_is_late(bench: Bench, verb: Verb) -> None:
    """The dead letter of a last attempt whose lease has ended is final for its holder."""
    [job_id] = bench.publish("x", max_attempts=1)
    late = bench.one(now=0)
    assert bench.claim(now=60) == []
    assert bench.found(job_id).state == "FAILED"
    before = bench.everything()
    assert not verb(bench, late, 61)
    assert bench.everything() == before


@verbs
@pytest.mark.parametrize("claimed_again", [False, True])
def test_a_stale_holder_stays_stale_across_death_and_requeue(bench: Bench, verb: Verb, claimed_again: bool) -> None:
    """Claim numbers go on through the dead-letter table and back, so a holder from before it is refused after it."""
    [job_id] = bench.publish("x", max_attempts=1)
    stale = bench.one(now=0)
    bench.claim(now=60)
    assert bench.requeue(job_id, now=61) == {job_id}
    if claimed_again:
        assert bench.one(now=62).claims == stale.claims + 1
    before = bench.everything()
    assert not verb(bench, stale, 63)
    assert bench.everything() == before


def test_claim_numbers_never_repeat(bench: Bench) -> None:
    """Every claim in a job's whole life has a greater number than the one before."""
    [job_id] = bench.publish("x", max_attempts=2)
    numbers = []
    for life in range(3):
        numbers.append(bench.one(now=1000 * life).claims)  # expires
        job = bench.one(now=1000 * life + 100)
        numbers.append(job.claims)
        assert bench.release(job, now=1000 * life + 101)  # gives the attempt back, not the number
        job = bench.one(now=1000 * life + 102)
        numbers.append(job.claims)
        assert bench.nack(job, now=1000 * life + 103)
        assert bench.requeue(job_id, now=1000 * life + 104) == {job_id}
    assert numbers == list(range(1, 10))


def test_settlements_of_one_turn_stand_alone(bench: Bench) -> None:
    """Many endings go in together: the lost ones are named, the others are carried out."""
    bench.publish(*"abcdef")
    a, b, c, d, e, f = bench.claim()
    stale = [altered(job, claims=9) for job in (b, d, f)]
    lost = bench.settle(
        success(a, '"a"', 1),
        success(stale[0], '"b"', 1),
        failure(c, now=1, delay=5),
        failure(stale[1], now=1, delay=5),
        failure(e, now=1, delay=None),
        failure(stale[2], now=1, delay=None),
    )
    assert lost == {claim_of(job) for job in stale}
    states = [bench.found(job.id).state for job in (a, b, c, d, e, f)]
    assert states == ["SUCCESSFUL", "RUNNING", "SCHEDULED", "RUNNING", "FAILED", "RUNNING"]


@pytest.mark.parametrize("order", [1, -1], ids=["older first", "newer first"])
def test_a_job_that_was_lost_and_claimed_again_is_acknowledged_by_its_last_claim(bench: Bench, order: int) -> None:
    """Both executions may end in one turn, in any order, beside jobs of other holders: each of them stands alone."""
    bench.publish("a", lease=5)
    first = bench.one(now=0)
    second = bench.one(now=9)
    bench.publish("b")
    other = bench.one(now=10, worker="w2")
    assert claim_of(first) != claim_of(second)
    both = [success(first, '"first"', 11), success(second, '"second"', 11)]
    assert bench.settle(success(other, '"other"', 11), *both[::order]) == {claim_of(first)}
    assert [bench.found(job.id).result for job in (first, other)] == ['"second"', '"other"']


# -- a commit whose end is unknown ------------------------------------------------------------------------------------


def test_large_results_of_one_turn_are_kept(bench: Bench) -> None:
    """However large a result is, whatever else the turn settles: each job has its own, and a late holder is told."""
    results = ['"x"', f'"{"ä" * 100_000}"', '"y"', f'"{"b" * 100_000}"']
    bench.publish(*"abcd")
    jobs = bench.claim()
    late = altered(jobs[3], claims=7)
    endings = [success(job, text, 1) for job, text in zip([*jobs[:3], late], results, strict=True)]
    assert bench.settle(*endings) == {claim_of(late)}
    assert [bench.found(job.id).result for job in jobs] == [*results[:3], None]


def test_a_settlement_that_was_stored_already_is_not_lost(bench: Bench) -> None:
    """After a commit whose answer never came, the same endings are made again: each finds itself done."""
    bench.publish(*"abcd")
    done, again, later, dead = bench.claim()
    endings = [
        success(done, '"done"', 1),
        *(failure(job, now=1, delay=delay) for job, delay in ((again, 0), (later, 5), (dead, None))),
    ]
    assert bench.settle(*endings) == set()
    before = bench.everything()
    for ending in endings:
        assert bench.settle(ending) == set()
    assert bench.settle(*endings) == set()
    assert bench.everything() == before


def test_a_row_that_only_looks_settled_is_lost(bench: Bench) -> None:
    """A row that another holds until the very instant for which a failure was to be tried again is not that failure."""
    bench.publish("x", lease=60)
    job = bench.one(now=0)
    ending = failure(altered(job, worker_id="w2"), now=1, delay=59)
    assert at(1 + 59) == job.visible_at
    assert bench.settle(ending) == {claim_of(job)}


def test_rows_held_without_knowing_can_be_found(bench: Bench) -> None:
    """A worker can read what it holds, and only that: a claim whose commit had an unknown end among it."""
    bench.publish(*"abcd")
    a, b = bench.claim(limit=2, worker="w1")
    bench.claim(limit=1, worker="w2")
    assert bench.ack(a)
    assert [job.id for job in bench.held_by("w1")] == [b.id]
    assert bench.held_by("w3") == []


# -- no housekeeping --------------------------------------------------------------------------------------------------


def test_a_scheduled_job_becomes_due_by_time_alone(bench: Bench) -> None:
    """Nothing promotes a scheduled job: it can be claimed from its instant on, and not a microsecond before."""
    bench.publish("x", due=100)
    assert bench.claim(now=99.999999) == []
    assert bench.one(now=100).due_at == at(100)


def test_a_crashed_workers_job_reappears_by_time_alone(bench: Bench) -> None:
    """Nothing reaps a dead worker's job: it can be claimed from the end of the lease on, not a microsecond before."""
    bench.publish("x", lease=30)
    bench.one(now=0, worker="dead")
    assert bench.claim(now=29.999999) == []
    assert bench.one(now=30, worker="alive").worker_id == "alive"
