"""Jobs of which several copies run: who gets one, and who of them settles the job."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from pytest_django import Settings

from django_vtqueue import LeaseLost, Queue
from django_vtqueue.core import copies
from django_vtqueue.core.clock import LAST_INSTANT, from_instant
from django_vtqueue.core.job import HeldJob, NewJobs, Scope
from django_vtqueue.core.settlement import Settlement, released, released_unfinished, succeeded, suspended
from django_vtqueue.core.steps import GATHER, Waiting
from django_vtqueue.models import Job, WorkerProcess
from django_vtqueue.queue.claims import Claims, collect
from django_vtqueue.queue.pauses import earliest
from django_vtqueue.queue.settling import settle
from tests.conftest import claimed
from tests.fake_clock import FakeClock, at

from .bench import Bench, failure
from .conftest import configure
from .test_steps import TASK, held

DAY = 86_400
OVERFLOW = {"": (0, 2), "q": (DAY * 1_000_000, 2)}


def claim(bench: Bench, now: float, worker: str, limit: int = 10) -> list[HeldJob]:
    """Claim as a worker does that takes no copy of what it runs itself."""
    return bench.claim(now, limit, worker, overflow=OVERFLOW, scopes=[Scope(None, True, worker)])


def two(bench: Bench, max_attempts: int = 1) -> tuple[HeldJob, HeldJob]:
    """Return two copies of one job, of the workers w1 (since 0) and w2 (since 61)."""
    bench.publish("x", max_attempts=max_attempts)
    [first], [second] = claim(bench, 0, "w1"), claim(bench, 61, "w2")
    assert first.id == second.id
    return first, second


def settled(bench: Bench, settlement: Settlement) -> bool:
    """Carry out a settlement; return whether it was not too late."""
    with bench.engine.transaction():
        return not settle(bench.engine, [settlement])


def running(bench: Bench, job: HeldJob) -> dict[int, str]:
    """Return the workers of a job's copies."""
    return {claim: copy.worker for claim, copy in copies.read(bench.found(job.id).copies).items()}


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_success_settles_the_job(bench: Bench, time: FakeClock, winner: int) -> None:
    """Whichever claim it has; afterwards the row names its worker, and the other copy changes nothing."""
    both = two(bench)
    assert settled(bench, succeeded(both[winner], "1", at(70), None))
    row = bench.found(both[0].id)
    assert (row.state, row.worker_id, row.attempts, row.claims) == ("SUCCESSFUL", both[winner].worker_id, 1, 2)
    assert row.started_at == both[winner].started_at
    before = bench.everything()
    loser = both[1 - winner]
    for late in (succeeded(loser, "2", at(71), None), failure(loser, 71, None), released(loser)):
        assert not settled(bench, late)
    assert bench.everything() == before


def test_a_settlement_that_was_rolled_back_is_made_anew(bench: Bench, time: FakeClock) -> None:
    """A turn is repeated after an error: if no other copy runs any more, the attempt ends after all."""
    first, second = two(bench)
    settlement = failure(first, 70)
    with suppress(ZeroDivisionError), bench.engine.transaction():
        settle(bench.engine, [settlement])
        raise ZeroDivisionError
    assert settled(bench, failure(second, 71))
    assert settled(bench, settlement)
    assert (bench.found(first.id).state, bench.outcomes(first.id)) == ("FAILED", ["failed", "failed"])


@pytest.mark.parametrize("end", ["failed", "gave up", "released", "given back"])
@pytest.mark.parametrize("ending", [0, 1])
def test_the_end_of_a_copy_is_not_that_of_the_job(bench: Bench, time: FakeClock, ending: int, end: str) -> None:
    """Only its entry goes; the row passes to the other copy, which may end the attempt in any way."""
    both = two(bench, max_attempts=2)
    bad, good = both[ending], both[1 - ending]
    time.instant = at(70)
    settlement = {
        "failed": failure(bad, 70),
        "gave up": failure(bad, 70, None),
        "released": released(bad),
        "given back": released_unfinished(bad, at(70), at(71)),
    }[end]
    assert settled(bench, settlement)
    assert settlement.state == "READY"
    row = bench.found(bad.id)
    assert (row.state, row.worker_id, row.attempts, row.claims) == ("RUNNING", good.worker_id, 1, 2)
    assert running(bench, good) == {good.claims: good.worker_id}
    noted = {"failed": ["failed"], "gave up": ["failed"], "released": [], "given back": ["released"]}[end]
    assert bench.outcomes(bad.id) == noted
    assert settled(bench, failure(good, 80, 5))
    row = bench.found(bad.id)
    assert (row.state, row.due_at, row.copies) == ("READY", at(85), None)
    assert bench.outcomes(bad.id) == [*noted, "failed"]


def test_a_copy_that_runs_alone_is_released_once(bench: Bench) -> None:
    """Its job waits again, as if it had not been claimed; a second release is not taken for the first one."""
    bench.publish("x")
    [job] = claim(bench, 0, "w1")
    assert job.copies
    assert job.begun
    assert settled(bench, released(job))
    assert not settled(bench, released(job))


@pytest.mark.parametrize("ttl", [None, 0])
def test_a_success_stands_beside_one_that_came_too_late(bench: Bench, time: FakeClock, ttl: int | None) -> None:
    """Though another copy has written into its history, and whether it is kept or not; its parent is woken."""
    parent, child = held(bench), f"{7:032x}"
    of_parent = NewJobs("q", TASK, 0, 1, 60_000_000, at(0), at(0), [(child, "{}")])
    of_parent.parent_id = parent.id
    bench.engine.insert_with_keys(of_parent)
    bench.engine.write_steps(parent, json.dumps([{"kind": GATHER, "name": "g", "children": [child]}]), at(1), None)
    assert settled(bench, suspended(parent, Waiting(GATHER, "g", LAST_INSTANT, at(1))))
    scope = Scope(("q",), False)
    [[first], [second]] = [
        bench.claim(now, 1, name, overflow=OVERFLOW, scopes=[scope]) for now, name in [(1, "w1"), (62, "w2")]
    ]
    bench.publish("y", queue="o")
    [late] = bench.claim(62, 1, "w2", queues=("o",))
    assert settled(bench, failure(first, 70))
    time.instant = at(72)
    with bench.engine.transaction():
        lost = settle(
            bench.engine, [succeeded(second, "1", at(72), ttl), succeeded(replace(late, claims=7), "1", at(72), ttl)]
        )
    assert lost == {(late.id, 7)}
    assert bench.found(parent.id).due_at == at(72)


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
    assert earliest(bench.engine, [Scope(None, True, "w1")]) is None
    assert earliest(bench.engine, [Scope(None, True, "w2")]) == at(10.5)
    [second] = claim(bench, 20, "w2")
    assert (second.id, second.claims, second.attempts, second.started_at) == (job_id, 2, 1, at(20))
    assert [copy.since for copy in copies.read(second.copies).values()] == [at(0), at(20)]


def test_what_was_claimed_ahead_and_has_not_begun_is_no_copy(bench: Bench) -> None:
    """Its lease has ended: it is due again as any other, and its holder has lost it."""
    bench.publish("x")
    with bench.engine.transaction():
        taken = Claims(bench.engine, overflow=OVERFLOW).claim([Scope(None, True, "w1")], 0, "w1", at(0), ahead=1)
    [ahead] = collect(bench.engine, taken)
    [job] = claim(bench, 61, "w2")
    assert (job.id, job.attempts, list(copies.read(job.copies))) == (ahead.id, 1, [2])
    assert not settled(bench, released(ahead))


def test_each_worker_holds_its_copies(bench: Bench) -> None:
    """What a worker holds is found under its own claim, so that its end, or an unknown one of a commit, is settled."""
    first, second = two(bench)
    assert [job.key for job in bench.engine.held_by("w1")] == [first.key]
    assert [job.key for job in bench.engine.held_by("w2")] == [second.key]
    assert [job.started_at for worker in ("w1", "w2") for job in bench.engine.held_by(worker)] == [at(0), at(61)]


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
        moments = {"heartbeat_at": from_instant(at(heartbeat)), "died_at": died and from_instant(at(died))}
        row = WorkerProcess(worker_id="w1", host="h", pid=1, slots=1, started_at=from_instant(at(0)), **moments)
        row.save(using=bench.engine.alias)
    assert settled(bench, failure(second, now))
    assert bench.found(first.id).state == ("RUNNING" if runs else "FAILED")


def test_what_was_asked_to_stop_does_not_reappear(bench: Bench) -> None:
    """Once its lease has ended it is buried by the next claim; its copies are told that they are not needed."""
    bench.publish("x")
    [first] = claim(bench, 0, "w1")
    assert bench.engine.copies([first]) == {first.key: (first.copies, None)}
    bench.engine.request_cancel([first.id], at(5), "anna")
    assert bench.engine.copies([first])[first.key] == (first.copies, "anna")
    assert claim(bench, 61, "w2") == []
    assert bench.found(first.id).state == "FAILED"
    assert bench.engine.copies([first]) == {}


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
    assert not settled(bench, succeeded(first, "1", at(130), None))


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
    assert settled(bench, succeeded(job, "1", at(21), None))


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
    bench.jobs.filter(pk=expired).update(start_by=from_instant(at(5)))
    [waiting] = bench.publish("waiting", now=2)
    assert [job.id for job in claim(bench, 12, "w2")] == [old, waiting]
    assert bench.found(expired).state == "FAILED"


def test_what_runs_in_copies_is_not_purged(bench: Bench) -> None:
    """Its lease has ended, and it runs on: a purge leaves it, and its success is taken."""
    first, _ = two(bench)
    assert bench.engine.purge("q", at(1000)) == 0
    assert settled(bench, succeeded(first, "1", at(1001), None))
