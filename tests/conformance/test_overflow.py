"""Jobs of which several copies run: who gets one, and who of them settles the job."""

from contextlib import suppress
from datetime import timedelta

import pytest
from pytest_django import Settings

from django_vtqueue import LeaseLost, Queue
from django_vtqueue.models import Job, WorkerProcess
from tests.conftest import claimed
from tests.fake_clock import FakeClock, at

from .bench import (
    DAY,
    GATHER,
    Bench,
    Ending,
    Held,
    Served,
    altered,
    claim_of,
    failure,
    goes_on,
    interruption,
    moment,
    release,
    success,
    suspension,
    tasks_of,
)
from .conftest import configure
from .test_steps import TASK, held

OVERFLOW = {"": (0, 2), "q": (DAY * 1_000_000, 2)}


def claim(bench: Bench, now: float, worker: str, limit: int = 10) -> list[Held]:
    """Claim as a worker does that takes no copy of what it runs itself."""
    return bench.claim(now, limit, worker, overflow=OVERFLOW, served=[Served(None, True, worker)])


def two(bench: Bench, max_attempts: int = 1) -> tuple[Held, Held]:
    """Return two copies of one job, of the workers w1 (since 0) and w2 (since 61)."""
    bench.publish("x", max_attempts=max_attempts)
    [first], [second] = claim(bench, 0, "w1"), claim(bench, 61, "w2")
    assert first.id == second.id
    return first, second


def settled(bench: Bench, ending: Ending) -> bool:
    """Settle; return whether it was not too late."""
    return not bench.settle(ending)


def running(bench: Bench, job: Held) -> dict[int, str]:
    """Return the workers of a job's copies."""
    return {claim: worker for claim, (worker, _) in bench.copies_of(job.id).items()}


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_success_settles_the_job(bench: Bench, time: FakeClock, winner: int) -> None:
    """Whichever claim it has; afterwards the row names its worker, and the other copy changes nothing."""
    both = two(bench)
    assert settled(bench, success(both[winner], "1", 70))
    row = bench.found(both[0].id)
    assert (row.state, row.worker_id, row.attempts, row.claims) == ("SUCCESSFUL", both[winner].worker_id, 1, 2)
    assert row.started_at == both[winner].started_at
    before = bench.everything()
    loser = both[1 - winner]
    for late in (success(loser, "2", 71), failure(loser, 71, None), release(loser)):
        assert not settled(bench, late)
    assert bench.everything() == before


def test_a_settlement_that_was_rolled_back_is_made_anew(bench: Bench, time: FakeClock) -> None:
    """A turn is repeated after an error: if no other copy runs any more, the attempt ends after all."""
    first, second = two(bench)
    ending = failure(first, 70)
    with suppress(ZeroDivisionError), bench.transaction():
        bench.settle(ending)
        raise ZeroDivisionError
    assert settled(bench, failure(second, 71))
    assert settled(bench, ending)
    assert (bench.found(first.id).state, bench.outcomes(first.id)) == ("FAILED", ["failed", "failed"])


@pytest.mark.parametrize("end", ["failed", "gave up", "released", "given back"])
@pytest.mark.parametrize("ending", [0, 1])
def test_the_end_of_a_copy_is_not_that_of_the_job(bench: Bench, time: FakeClock, ending: int, end: str) -> None:
    """Only its entry goes; the row passes to the other copy, which may end the attempt in any way."""
    both = two(bench, max_attempts=2)
    bad, good = both[ending], both[1 - ending]
    time.instant = at(70)
    noted_end = {
        "failed": failure(bad, 70),
        "gave up": failure(bad, 70, None),
        "released": release(bad),
        "given back": interruption(bad, 70, 71),
    }[end]
    assert settled(bench, noted_end)
    assert goes_on(noted_end)
    row = bench.found(bad.id)
    assert (row.state, row.worker_id, row.attempts, row.claims) == ("RUNNING", good.worker_id, 1, 2)
    assert running(bench, good) == {good.claims: good.worker_id}
    noted = {"failed": ["failed"], "gave up": ["failed"], "released": [], "given back": ["released"]}[end]
    assert bench.outcomes(bad.id) == noted
    assert settled(bench, failure(good, 80, 5))
    row = bench.found(bad.id)
    assert (row.state, row.due_at, row.copies) == ("SCHEDULED", at(85), None)
    assert bench.outcomes(bad.id) == [*noted, "failed"]


def test_a_copy_that_runs_alone_is_released_once(bench: Bench) -> None:
    """Its job waits again, as if it had not been claimed; a second release is not taken for the first one."""
    bench.publish("x")
    [job] = claim(bench, 0, "w1")
    assert job.copies
    assert job.started_at is not None
    assert settled(bench, release(job))
    assert not settled(bench, release(job))


@pytest.mark.parametrize("ttl", [None, 0])
def test_a_success_stands_beside_one_that_came_too_late(bench: Bench, time: FakeClock, ttl: int | None) -> None:
    """Though another copy has written into its history, and whether it is kept or not; its parent is woken."""
    parent, child = held(bench), f"{7:032x}"
    bench.publish({}, task=TASK, max_attempts=1, parent=parent.id, ids=[child])
    bench.note_steps(parent, [{"kind": GATHER, "name": "g", "children": [child]}])
    assert settled(bench, suspension(parent, GATHER, "g", None, now=1))
    [[first], [second]] = [
        bench.claim(now, 1, name, overflow=OVERFLOW, served=[tasks_of("q")]) for now, name in [(1, "w1"), (62, "w2")]
    ]
    bench.publish("y", queue="o")
    [late] = bench.claim(62, 1, "w2", queues=("o",))
    assert settled(bench, failure(first, 70))
    time.instant = at(72)
    endings = [success(second, "1", 72, ttl), success(altered(late, claims=7), "1", 72, ttl)]
    assert bench.settle(*endings) == {(late.id, 7)}
    assert bench.due_at(parent.id) == 72


def test_it_reappears_at_its_place_in_the_line(bench: Bench) -> None:
    """A copy of it goes before what became due later, and behind what has a higher priority."""
    [old] = bench.publish("old", lease=10)
    claim(bench, 0, "w1")
    [waiting] = bench.publish("waiting", now=9)
    [urgent] = bench.publish("urgent", now=9, priority=1)
    assert [job.id for job in claim(bench, 12, "w2", limit=2)] == [urgent, old]
    assert [job.id for job in claim(bench, 12, "w2")] == [waiting]


def test_it_uses_no_attempt_and_goes_only_to_others(bench: Bench) -> None:
    """The worker that runs a job gets no copy of it, nor is it woken for that."""
    [job_id] = bench.publish("x", lease=10, max_attempts=1)
    claim(bench, 0, "w1")
    assert claim(bench, 20, "w1") == []
    assert bench.earliest(Served(None, True, "w1")) is None
    assert bench.earliest(Served(None, True, "w2")) == 10.5
    [second] = claim(bench, 20, "w2")
    assert (second.id, second.claims, second.attempts, second.started_at) == (job_id, 2, 1, at(20))
    assert [since for _, since in bench.copies_of(job_id).values()] == [0, 20]


def test_what_was_claimed_ahead_and_has_not_begun_is_no_copy(bench: Bench) -> None:
    """Its lease has ended: it is due again as any other, and its holder has lost it."""
    bench.publish("x")
    [ahead] = bench.claim(0, 0, overflow=OVERFLOW, served=[Served(None, True, "w1")], ahead=1)
    [job] = claim(bench, 61, "w2")
    assert (job.id, job.attempts, list(bench.copies_of(job.id))) == (ahead.id, 1, [2])
    assert not settled(bench, release(ahead))


def test_each_worker_holds_its_copies(bench: Bench) -> None:
    """What a worker holds is found under its own claim, so that its end, or an unknown one of a commit, is settled."""
    first, second = two(bench)
    assert [claim_of(job) for job in bench.held_by("w1")] == [claim_of(first)]
    assert [claim_of(job) for job in bench.held_by("w2")] == [claim_of(second)]
    assert [job.started_at for worker in ("w1", "w2") for job in bench.held_by(worker)] == [at(0), at(61)]


@pytest.mark.parametrize(
    ("now", "heartbeat", "died", "runs"),
    [(100, 71, None, True), (100, 69, None, False), (100, 100, 90, False), (DAY + 1, None, None, False)],
    ids=["alive", "silent", "dead", "beyond max_runtime"],
)
def test_a_copy_that_does_not_run_any_more_keeps_no_job(
    bench: Bench, time: FakeClock, now: int, heartbeat: float | None, died: float | None, runs: bool
) -> None:
    """A failure ends the attempt, if the workers of the others are known to be gone, or their time is up."""
    first, second = two(bench)
    time.instant = at(now)
    if heartbeat is not None:
        moments = {"heartbeat_at": moment(heartbeat), "died_at": died and moment(died)}
        row = WorkerProcess(worker_id="w1", host="h", pid=1, slots=1, started_at=moment(0), **moments)
        row.save(using=bench.alias)
    assert settled(bench, failure(second, now))
    assert bench.found(first.id).state == ("RUNNING" if runs else "FAILED")


def test_what_was_asked_to_stop_does_not_reappear(bench: Bench) -> None:
    """Once its lease has ended it is buried by the next claim; its copies are told that they are not needed."""
    bench.publish("x")
    [first] = claim(bench, 0, "w1")
    assert bench.still_needed(first) == (True, None)
    bench.ask_to_stop(first.id, 5)
    assert bench.still_needed(first) == (True, "anna")
    assert claim(bench, 61, "w2") == []
    assert bench.found(first.id).state == "FAILED"
    assert bench.still_needed(first) == (False, None)


def test_jobs_of_other_queues_have_no_copies(bench: Bench) -> None:
    """Their leases end as ever, also by a claim that takes both; and where the policy is off again."""
    bench.publish("x", queue="other")
    [job] = claim(bench, 0, "w1")
    assert job.copies is None
    [again] = claim(bench, 61, "w2")
    assert (again.attempts, bench.outcomes(job.id)) == (2, ["lease expired"])
    first, _ = two(bench, max_attempts=3)
    [third] = bench.claim(122, worker="w3")
    assert (third.id, third.attempts, third.copies) == (first.id, 2, None)
    assert not settled(bench, success(first, "1", 130))


DAMAGED = ["x", "5", "[1]", '{"1": 7}', '{"1": ["w1", 0, "x"]}', '{"x": ["w1", 0, 1]}', '{"1": ["\\u0000", 0, 1]}']


@pytest.mark.parametrize("damage", [*DAMAGED, '{"1": ["w1", 0, 1e99999]}', '{"1": ["w1", 0, 1.5]}', '{"\\ud800": 1}'])
def test_damaged_copies_cost_no_other_job_anything(bench: Bench, damage: str) -> None:
    """What is no list of copies counts as none: the job reappears, and the others are claimed beside it."""
    [job_id, _] = bench.publish("x", "y", lease=10)
    claim(bench, 0, "w1", limit=1)
    bench.damage("UPDATE vtqueue_job SET copies = %s WHERE id = %s", damage, job_id)
    found = claim(bench, 20, "w2")
    assert len(found) == 2
    [job] = [job for job in found if job.id == job_id]
    assert settled(bench, success(job, "1", 21))


# -- the primitive -----------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(alias: str, settings: Settings, time: FakeClock) -> Queue:
    """Return a queue of which two may handle a job at once."""
    policy = {"overflow": True, "visibility_timeout": 10, "max_runtime": 1000, "max_attempts": 1}
    configure(settings, alias, queue_options={"sensors": policy})
    return Queue("sensors", using=alias)


def test_the_first_to_acknowledge_wins(queue: Queue, time: FakeClock) -> None:
    """Also if another one has claimed the job since; that one is told so."""
    queue.publish(7)
    first = claimed(queue)
    time.advance(11)
    second = claimed(queue)
    assert (first.id, first.attempt, second.attempt) == (second.id, 1, 1)
    first.ack("mine")
    time.advance(1)
    with pytest.raises(LeaseLost, match="by another copy of it"):
        second.ack()
    assert Job.objects.using(queue.database).get(pk=first.id).result == "mine"


def test_no_more_copies_than_allowed(queue: Queue, time: FakeClock) -> None:
    """Nothing renews the lease of the last one that may run: it is hidden for ``max_runtime``, or until one is over."""
    queue.publish(7)
    first = claimed(queue)
    time.advance(11)
    second = claimed(queue)
    time.advance(900)
    assert queue.claim() is None
    first.nack()
    time.advance(11)
    third = claimed(queue)
    second.nack()
    third.nack()
    assert (len(queue), queue.claim()) == (0, None)


def test_a_handler_that_settles_its_job_itself(queue: Queue, time: FakeClock) -> None:
    """What a copy has given back once it cannot settle again, whoever runs the job now."""
    queue.publish(7, max_attempts=3)
    first = claimed(queue)
    first.release()
    second = claimed(queue)
    with pytest.raises(LeaseLost):
        first.ack()
    second.ack()


def test_a_copy_that_lost_cannot_extend(queue: Queue, time: FakeClock) -> None:
    """``extend`` is for the last claim; whoever keeps the job by it in time has it alone."""
    queue.publish(7)
    first = claimed(queue)
    first.extend(timedelta(seconds=30))
    time.advance(29)
    assert queue.claim() is None
    time.advance(2)
    claimed(queue)
    with pytest.raises(LeaseLost):
        first.extend()
    first.ack()


def test_a_job_whose_holders_vanish_is_dead_in_the_end(bench: Bench) -> None:
    """Each copy that vanishes is replaced, up to as many more as may run; then the attempt is used up."""
    [job_id] = bench.publish("x", lease=10, max_attempts=1)
    begun = [[job.id for job in claim(bench, 11 * number, f"w{number}")] for number in range(5)]
    assert begun == [[job_id]] * 4 + [[]]
    assert (bench.found(job_id).state, bench.outcomes(job_id)) == ("FAILED", ["lease expired"])


def test_what_reappears_beside_jobs_that_expire(bench: Bench) -> None:
    """A claim that buries what has expired hands out a copy all the same, at its place in the line."""
    [old] = bench.publish("old", lease=10)
    claim(bench, 0, "w1")
    [expired] = bench.publish("expired", now=1)
    bench.jobs.filter(pk=expired).update(start_by=moment(5))
    [waiting] = bench.publish("waiting", now=2)
    assert [job.id for job in claim(bench, 12, "w2")] == [old, waiting]
    assert bench.found(expired).state == "FAILED"


def test_what_runs_in_copies_is_not_purged(bench: Bench) -> None:
    """Its lease has ended, and it runs on: a purge leaves it, and its success is taken."""
    first, _ = two(bench)
    assert bench.purge("q", 1000) == 0
    assert settled(bench, success(first, "1", 1001))
