"""The primitive on each engine, by the engine's own clock."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_vtqueue import LeaseLost, Queue, requeue
from django_vtqueue.models import DeadLetter, Job
from tests.waiting import wait_until

from .bench import new_bench, statements_take


@pytest.fixture
def queue(alias: str) -> Queue:
    return Queue("sensors", using=alias, visibility_timeout=30, max_attempts=2)


def test_the_clock_of_an_engine(alias: str) -> None:
    """The clock that all holders of leases share, in microseconds since 1970; it goes on."""
    bench = new_bench(alias)
    before = bench.now()
    assert abs(before / 1e6 - datetime.now(UTC).timestamp()) < 60
    assert wait_until(lambda: bench.now() > before)


def test_a_jobs_life(queue: Queue, alias: str) -> None:
    """Published, claimed, extended, failed, released, dead, requeued and done."""
    job_id = queue.publish({"id": 7}, priority=3)
    assert len(queue) == 1

    job = queue.claim()
    assert job is not None
    assert (job.id, job.payload, job.priority, job.attempt, job.claim_number) == (job_id, {"id": 7}, 3, 1, 1)
    assert timedelta(seconds=29) < job.visible_at - job.enqueued_at < timedelta(seconds=60)
    assert queue.claim() is None
    job.extend(300)
    assert job.visible_at - job.enqueued_at >= timedelta(seconds=300)
    job.nack(error="no luck")
    with pytest.raises(LeaseLost):
        job.ack()

    released = queue.claim()
    assert released is not None
    released.release()
    [last] = queue.claim_many(5)
    assert (last.attempt, last.claim_number) == (2, 3)
    last.nack(error="no luck again")
    assert len(queue) == 0

    letter = DeadLetter.objects.using(alias).get()
    assert [entry["message"] for entry in letter.history] == ["no luck", "no luck again"]
    assert requeue([letter], using=alias) == [job_id]
    again = queue.claim()
    assert again is not None
    assert (again.id, again.attempt, again.claim_number) == (job_id, 1, 4)
    again.ack({"celsius": 21.5})
    done = Job.objects.using(alias).get()
    assert (done.state, done.result) == ("SUCCESSFUL", {"celsius": 21.5})
    with pytest.raises(LeaseLost):
        again.ack()


def test_an_expired_lease(alias: str) -> None:
    """The job of a holder that is gone comes back; the holder, back again, changes nothing."""
    queue = Queue("sensors", using=alias, visibility_timeout=0.2)
    queue.publish("x")
    gone = queue.claim()
    assert gone is not None
    holder = wait_until(queue.claim)
    with pytest.raises(LeaseLost):
        gone.ack()
    holder.ack()
    [entry] = Job.objects.using(alias).get().history
    assert entry["outcome"] == "lease expired"


def test_purge(queue: Queue) -> None:
    """What nobody holds goes, also what is scheduled."""
    queue.publish_many(["a", "b"])
    held = queue.claim()
    queue.publish("later", delay=1000)
    assert (len(queue), queue.purge(), len(queue)) == (3, 2, 1)
    assert held is not None
    held.ack()


@pytest.mark.parametrize("keyed", [False, True])
def test_a_bulk_is_stored_in_parts(queue: Queue, alias: str, monkeypatch: pytest.MonkeyPatch, keyed: bool) -> None:
    """No statement is given more payloads, or longer ones, than a database takes; the bulk is all or none as before."""
    statements_take(monkeypatch, payloads=3, characters=20)
    payloads = ["x" * length for length in (30, 1, 2, 3, 4, 12, 40, 1)]
    keys = [*"abcdefga"] if keyed else None
    with CaptureQueriesContext(connections[alias]) as captured:
        ids = queue.publish_many(payloads, unique_key=keys)
    inserts = [query["sql"] for query in captured if "INSERT INTO" in query["sql"]]
    assert len(inserts) == 5, inserts
    assert [job.payload for job in queue.claim_many(9)] == payloads[: 7 + (not keyed)]
    assert (ids[7] == ids[0]) is keyed
