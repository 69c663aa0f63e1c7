"""What several threads see of each other."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connections

from .bench import Bench


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Run ``work`` in a thread, with connections of its own, while the block runs; its errors are raised here."""
    stop, errors = threading.Event(), []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def test_a_job_is_found_at_every_moment_of_its_life(bench: Bench) -> None:
    """A reader never misses a job that is dying or being requeued: both tables are read in one statement."""
    [job_id] = bench.publish("x", max_attempts=1)
    rounds = 0

    def live(stop: threading.Event) -> None:
        nonlocal rounds
        other = bench.another()
        while not stop.is_set():
            rounds += 1
            other.bury(other.one(now=rounds), now=rounds)
            assert other.requeue(job_id, now=rounds) == {job_id}

    states = set()
    with beside(live):
        for _ in range(100_000):
            found = bench.find(job_id)
            assert found is not None
            states.add(found.state)
            if rounds >= 100 and len(states) == 3:
                break
    assert states == {"READY", "RUNNING", "FAILED"}


def test_workers_beside_each_other_share_no_job(bench: Bench) -> None:
    """Two that claim at full speed get each job once."""
    bench.publish(*range(400))
    theirs: list[str] = []

    def work(stop: threading.Event) -> None:
        other = bench.another()
        while claimed := other.claim(limit=3, worker="w2"):
            theirs.extend(job.id for job in claimed)

    patient = bench.another()
    ours: list[str] = []
    with beside(work):
        while claimed := patient.claim(limit=3, worker="w1"):
            ours.extend(job.id for job in claimed)
    assert len(ours) + len(theirs) == len({*ours, *theirs}) == 400


def test_a_foreign_commit_is_noticed(bench: Bench) -> None:
    """``changed`` is true after another connection has committed, and only then."""
    bench.changed()
    assert not bench.changed()
    assert not bench.changed()

    def publish(stop: threading.Event) -> None:
        bench.another().publish("x")

    with beside(publish):
        pass
    assert bench.changed()
    assert not bench.changed()


def test_missing_tables_are_a_trouble_that_passes(bench: Bench) -> None:
    """A worker that is started before ``migrate`` waits for it."""
    with connections[bench.alias].cursor() as cursor:
        cursor.execute("ALTER TABLE vtqueue_job RENAME TO elsewhere")
        with pytest.raises(Exception, match="vtqueue_job") as caught:
            bench.claim()
        cursor.execute("ALTER TABLE elsewhere RENAME TO vtqueue_job")
    assert bench.passes(caught.value) == "tables"


def test_a_lost_connection_is_a_trouble_that_passes(bench: Bench) -> None:
    """A worker whose connection was closed under it goes on with the next."""
    connection = connections[bench.alias]
    connection.ensure_connection()
    connection.connection.close()
    with pytest.raises(Exception, match="closed") as caught:
        bench.find("0" * 32)
    assert bench.passes(caught.value) == "gone"


def test_a_refused_row_is_no_trouble_that_passes(bench: Bench) -> None:
    """What the database refuses for a reason of its own must not be waited out: it would be refused for ever."""
    [job_id] = bench.publish("x", now=0)
    with pytest.raises(Exception, match=r"(?i)unique|duplicate") as caught:
        bench.jobs.create(pk=job_id, queue_name="q", max_attempts=1, lease_us=1, enqueued_at=1, due_at=1)
    assert bench.passes(caught.value) is None
    assert bench.passes(ValueError("locked")) is None
