"""Each arrow of the state diagram, and what a row looks like after it."""

import pytest
from pytest_django import Settings

from tests.fake_clock import at

from .bench import (
    DAY,
    SECOND,
    Bench,
    Boom,
    claim_of,
    interruption,
    payloads_of,
    seconds_at,
    tasks_of,
)
from .conftest import configure


def row(bench: Bench, job_id: str) -> dict[str, object]:
    """Return a row of the queue without what never changes, instants as the database has them."""
    found = bench.found(job_id)
    return {
        "state": found.state,
        "visible_at": found.visible_at,
        "claims": found.claims,
        "attempts": found.attempts,
        "worker_id": found.worker_id,
        "started_at": found.started_at,
        "finished_at": found.finished_at,
        "outcomes": bench.outcomes(job_id),
    }


READY = {
    "state": "READY",
    "visible_at": at(0),
    "claims": 0,
    "attempts": 0,
    "worker_id": "",
    "started_at": None,
    "finished_at": None,
    "outcomes": [],
}
RUNNING = {
    **READY,
    "state": "RUNNING",
    "visible_at": at(70),
    "claims": 1,
    "attempts": 1,
    "worker_id": "w1",
    "started_at": at(10),
}


def test_publish_makes_a_ready_job(bench: Bench) -> None:
    """publish ──► READY, or SCHEDULED until its time."""
    [now, later] = [*bench.publish("x"), *bench.publish("y", due=5)]
    assert row(bench, now) == READY
    assert row(bench, later) == {**READY, "state": "SCHEDULED", "visible_at": at(5)}


def test_claim_makes_it_running(bench: Bench) -> None:
    """READY ── claim ──► RUNNING: one claim and one attempt more, hidden for its lease, held by the worker."""
    [job_id] = bench.publish("x", lease=60)
    job = bench.one(now=10)
    assert row(bench, job_id) == RUNNING
    assert (job.id, job.claims, job.attempts, job.worker_id) == (job_id, 1, 1, "w1")
    assert (job.visible_at, job.due_at, job.started_at, job.enqueued_at) == (at(70), at(0), at(10), at(0))


def test_ack_makes_it_successful(bench: Bench) -> None:
    """RUNNING ── ack ──► SUCCESSFUL: the result is kept, and who did it; it is never claimed again."""
    [job_id] = bench.publish("x")
    bench.ack(bench.one(now=10), now=20)
    assert row(bench, job_id) == {**RUNNING, "state": "SUCCESSFUL", "finished_at": at(20), "visible_at": at(0)}
    assert bench.found(job_id).result == '"done"'
    assert bench.claim(now=1e6, raw=True) == []
    assert bench.earliest(payloads_of()) is None


def test_extend_moves_the_end_of_the_lease(bench: Bench) -> None:
    """RUNNING ── extend ──► RUNNING, hidden until now + lease: set anew, not added up."""
    [job_id] = bench.publish("x", lease=60)
    job = bench.one(now=10)
    for now in (11, 12, 40):
        assert bench.extend(job, now)
        assert row(bench, job_id) == {**RUNNING, "visible_at": at(now + 60)}
    assert bench.claim(now=99.999999) == []


def test_an_extension_may_be_shorter_than_what_is_left(bench: Bench) -> None:
    """``extend`` says until when, so it can also end a lease sooner."""
    bench.publish("x", lease=60)
    job = bench.one(now=10)
    assert bench.extend(job, 11, until=13)
    assert bench.one(now=13.5, worker="w2").claims == 2


def test_renew_moves_the_end_of_each_lease_by_its_own_time(bench: Bench) -> None:
    """RUNNING ── renewal ──► RUNNING: each job for one of its own leases from now."""
    [short, long] = [*bench.publish("s", lease=30), *bench.publish("l", lease=300)]
    jobs = bench.claim(now=10)
    assert bench.renew_all(jobs, now=20) == set()
    assert (bench.found(short).visible_at, bench.found(long).visible_at) == (at(50), at(320))


def test_renew_names_what_is_lost(bench: Bench) -> None:
    """A renewal of many says which are held no longer, and renews the others."""
    bench.publish(*"abc", lease=60)
    a, b, c = bench.claim(now=0)
    assert bench.ack(b, now=1)
    assert bench.renew_all([a, b, c], now=10) == {claim_of(b)}
    assert [bench.found(job.id).visible_at for job in (a, c)] == [at(70), at(70)]


def test_a_renewal_that_waits_for_no_row(bench: Bench) -> None:
    """Where nothing is locked it does as every other renewal."""
    bench.publish(*"ab", lease=60)
    a, b = bench.claim(now=0)
    assert bench.ack(b, now=1)
    assert bench.renew_beside_locks([a, b], now=10) == ({claim_of(b)}, [])
    assert bench.found(a.id).visible_at == at(70)


def test_a_lease_that_ended_can_be_renewed_but_not_extended(bench: Bench) -> None:
    """Before another claim takes it, a worker that was stopped may go on; ``extend`` promises more, and refuses."""
    bench.publish("x", lease=60)
    job = bench.one(now=0)
    assert not bench.extend(job, 60, until=61)
    assert bench.extend(job, 59.999999)
    assert bench.renew(job, now=200)
    assert bench.claim(now=259) == []


def test_nack_makes_it_ready_again(bench: Bench) -> None:
    """RUNNING ── fail, attempts left ──► SCHEDULED, until now + backoff, the attempt counted and written down."""
    [job_id] = bench.publish("x", max_attempts=2)
    bench.nack(bench.one(now=10), now=20, delay=5)
    assert row(bench, job_id) == {
        **RUNNING,
        "state": "SCHEDULED",
        "visible_at": at(25),
        "worker_id": "",
        "outcomes": ["failed"],
    }
    assert bench.claim(now=24.999999) == []
    assert bench.one(now=25).attempts == 2


def test_release_makes_it_ready_without_counting(bench: Bench) -> None:
    """RUNNING ── release ──► READY, at its place in the line, the attempt not counted; the claim number stays used."""
    [job_id] = bench.publish("x", max_attempts=1)
    for claims in range(1, 6):
        job = bench.one(now=claims)
        assert (job.claims, job.attempts) == (claims, 1)
        assert bench.release(job, now=claims + 1)
        assert row(bench, job_id) == {
            **READY,
            "claims": claims,
            "started_at": at(claims),
        }


@pytest.mark.parametrize("give_up", [False, True], ids=["used-up", "gave-up"])
def test_the_last_failure_makes_a_dead_letter(bench: Bench, give_up: bool) -> None:
    """RUNNING ── fail, no attempts left (or none wanted) ──► the row moves to the dead letters, whole."""
    [job_id] = bench.publish({"a": 1}, priority=7, lease=30, max_attempts=9 if give_up else 1, now=1, queue="letters")
    job = bench.one(now=10, queues=("letters",))
    assert bench.nack(job, now=20, delay=None if give_up else 0)
    assert not bench.jobs.exists()
    letter = bench.letters.get()
    assert (letter.pk.hex, letter.queue_name, letter.task_path, letter.priority) == (job_id, "letters", "", 7)
    assert (letter.claims, letter.attempts, letter.max_attempts) == (1, 1, 9 if give_up else 1)
    assert (letter.worker_id, letter.lease_us, letter.payload) == ("w1", 30 * SECOND, {"a": 1})
    assert (letter.exception_class, letter.message) == (f"{Boom.__module__}.{Boom.__qualname__}", "no luck")
    assert letter.fingerprint
    found = bench.found(job_id)
    assert (found.state, found.enqueued_at, found.started_at, found.finished_at) == ("FAILED", at(1), at(10), at(20))


def test_requeue_makes_it_ready_with_a_fresh_budget(bench: Bench) -> None:
    """FAILED ── requeue ──► READY: same id, attempts 0; claims, history and everything else kept."""
    [job_id] = bench.publish({"a": 1}, priority=7, lease=30, max_attempts=1, now=1)
    bench.nack(bench.one(now=10), now=20)
    assert bench.requeue(job_id, now=50) == {job_id}
    assert not bench.letters.exists()
    assert row(bench, job_id) == {
        **READY,
        "visible_at": at(50),
        "claims": 1,
        "started_at": at(10),
        "outcomes": ["failed", "requeued"],
    }
    job = bench.one(now=50)
    assert (job.claims, job.attempts, job.max_attempts, job.priority) == (2, 1, 1, 7)
    assert (job.lease_us, job.payload, job.enqueued_at) == (30 * SECOND, '{"a":1}', at(1))
    assert bench.nack(job, now=51)
    assert bench.outcomes(job_id) == ["failed", "requeued", "failed"]


def test_requeue_into_another_queue(bench: Bench) -> None:
    """FAILED ── requeue ──► READY elsewhere: with another queue and priority, if they are asked for."""
    letter = bench.dead()
    assert bench.requeue(letter, now=1, by="anna", queue_name="other", priority=9) == {letter}
    job = bench.one(now=1, queues=("other",))
    assert (job.id, job.queue_name, job.priority) == (letter, "other", 9)


def test_requeue_leaves_out_what_is_no_dead_letter(bench: Bench) -> None:
    """Jobs in the queue and ids of nothing are not moved, and not named as moved."""
    letter, [waiting] = bench.dead(), bench.publish("x", due=100)
    assert bench.requeue(waiting, letter, "0" * 32, letter, now=1) == {letter}
    assert bench.requeue(letter, now=2) == set()
    assert bench.unfinished("q") == 2


def test_requeue_skips_a_letter_whose_unique_key_is_taken(bench: Bench) -> None:
    """Such a letter stays where it is, whole; the others are moved. Once the key is free it can be moved too."""
    taken, free, other_queue = bench.dead(), bench.dead(), bench.dead(queue="other")
    bench.letters.filter(pk__in=[taken, other_queue]).update(unique_key="report:7")
    [rival] = bench.publish("rival", now=100)
    bench.jobs.filter(pk=rival).update(unique_key="report:7")
    before = bench.letters.filter(pk=taken).values().get()

    assert bench.requeue(taken, free, other_queue, now=100) == {free, other_queue}
    assert bench.letters.values().get() == before

    claimed = {job.id: job for job in bench.claim(now=100)}
    assert bench.ack(claimed[rival], now=101)
    assert bench.requeue(taken, now=102) == {taken}
    assert bench.jobs.get(pk=taken).unique_key == "report:7"


def test_of_two_letters_with_one_unique_key_one_is_requeued(bench: Bench) -> None:
    """The key is unique among the unfinished, also for letters that are requeued together."""
    letters = [bench.dead(), bench.dead()]
    bench.letters.update(unique_key="report:7")
    moved = bench.requeue(*letters, now=1)
    assert len(moved) == 1
    assert {bench.found(job_id).state for job_id in moved} == {"READY"}
    assert {bench.found(job_id).state for job_id in set(letters) - moved} == {"FAILED"}


# -- expired ----------------------------------------------------------------------------------------------------------


def test_an_expired_job_is_claimed_as_any_due_one_after_writing_it_down(bench: Bench) -> None:
    """RUNNING with ``visible_at <= now``: the next claim takes it and writes "lease expired, held by W"."""
    [job_id] = bench.publish("x", lease=60)
    bench.one(now=10, worker="host:1:abc")
    job = bench.one(now=70, worker="w2")
    assert (job.claims, job.attempts, job.worker_id) == (2, 2, "w2")
    [entry] = bench.past(job_id)
    assert entry["outcome"] == "lease expired"
    assert entry["message"] == "The lease expired, held by host:1:abc."
    assert (entry["number"], entry["worker"], entry["started"], entry["ended"]) == (1, "host:1:abc", at(10), at(70))
    assert bench.outcomes(job_id) == ["lease expired"]


def test_an_exhausted_expired_job_is_dead_lettered_there_and_then(bench: Bench) -> None:
    """A job that kills its workers ends like any other, by the next claim, which does not hand it out."""
    [killer, other] = [*bench.publish("killer", max_attempts=2), *bench.publish("other", due=120)]
    for now in (0, 60):
        assert [job.id for job in bench.claim(now=now, limit=1, worker=f"w{now}")] == [killer]
    assert [job.id for job in bench.claim(now=120)] == [other]
    letter = bench.found(killer)
    assert (letter.state, letter.finished_at, letter.attempts, letter.claims) == ("FAILED", at(120), 2, 2)
    entries = bench.past(killer)
    assert [entry["message"] for entry in entries] == [
        "The lease expired, held by w0.",
        "The lease expired, held by w60.",
    ]
    assert bench.letters.get().exception_class == "django_vtqueue.exceptions.LeaseExpired"


def test_the_claim_says_what_it_buried(bench: Bench, settings: Settings) -> None:
    """A claim says which jobs it has moved to the dead letters, and keeps them for as long as their queue says."""
    configure(settings, bench.alias, dead_letter_ttl=DAY)
    [job_id] = bench.publish("x", max_attempts=1)
    bench.one(now=0)
    taken = bench.take(now=60, worker="w2")
    assert taken.count == 0
    assert [job.id for job in taken.buried] == [job_id]
    assert bench.prune(60 + DAY - 1e-6, 10) == 0
    assert bench.prune(60 + DAY, 10) == 1


def test_unlimited_attempts_never_end(bench: Bench) -> None:
    """``max_attempts`` 0: however often it fails or expires, it comes back; only giving up ends it."""
    [job_id] = bench.publish("x", max_attempts=0)
    for round_ in range(1, 31):
        job = bench.one(now=100 * round_)
        assert job.attempts == round_
        if round_ % 2:
            assert bench.nack(job, now=100 * round_ + 1)
    assert bench.bury(bench.one(now=10_000), now=10_001)
    assert bench.found(job_id).state == "FAILED"


def test_the_depth_is_what_waits(bench: Bench) -> None:
    """Due, scheduled and retrying jobs of a queue, whatever they are; not what is held or has ended. Up to a limit."""
    bench.publish("due", "held", "done", "dead", "retried")
    bench.publish("scheduled", due=60)
    bench.publish("task", task="shop.tasks.welcome", priority=-5)
    bench.publish("elsewhere", queue="r")
    assert [bench.depth(name, 100) for name in ("q", "r", "s")] == [7, 1, 0]
    assert bench.depth("q", 3) == 3
    due, _, done, dead, retried = bench.claim()
    assert bench.depth("q", 100) == 2
    assert all([bench.release(due), bench.ack(done), bench.bury(dead), bench.nack(retried, delay=60)])
    assert bench.depth("q", 100) == 4


def test_what_a_worker_gave_back_waits(bench: Bench) -> None:
    """Once it is not hidden it counts for the depth of its queue, whether a claim has unhidden it since or not."""
    bench.publish("a", "b")
    bench.publish("task", task="shop.tasks.welcome")
    now = seconds_at(bench.now())
    for job in bench.claim(served=[payloads_of("q"), tasks_of("q")]):
        bench.settle(interruption(job, now, now + 60))
    assert bench.depth("q", 100) == 0
    bench.clock_at(now + 60)
    bench.publish("another one")
    assert [bench.depth("q", limit) for limit in (100, 2)] == [4, 2]


def test_a_negative_count_can_be_counted_on(bench: Bench) -> None:
    """However few the claims and attempts of a row are, it is claimed, released and acknowledged as any other."""
    [job_id] = bench.publish("x")
    bench.jobs.update(claims=-(2**63), attempts=-(2**63))
    [job] = bench.claim()
    assert bench.release(job)
    [again] = bench.claim(2)
    assert again.claims == job.claims + 1
    assert bench.ack(again, 3)
    assert bench.found(job_id).state == "SUCCESSFUL"
