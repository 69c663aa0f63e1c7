"""From when on a lease counts, and from when on it has ended."""

import pytest

from django_vtqueue import Queue
from django_vtqueue.core import clock
from django_vtqueue.core.job import Scope
from django_vtqueue.queue import queue
from django_vtqueue.queue.claims import Claims, collect
from tests.fake_clock import FakeClock, at

from .bench import Bench


@pytest.mark.parametrize("lost", [False, True])
def test_nobody_begins_on_a_lease_that_has_ended(bench: Bench, time: FakeClock, lost: bool) -> None:
    """A claim whose commit took longer than its lease is renewed before the job is handed out, unless it is lost."""
    bench.publish("x", lease=60)
    with bench.engine.transaction():
        taken = Claims(bench.engine).claim([Scope(("q",), raw=True)], 1, "w1", time())
    time.advance(61)
    if lost:
        assert bench.one(now=61, worker="w2").claims == 2
    jobs = collect(bench.engine, taken)
    assert [job.visible_at for job in jobs] == ([] if lost else [at(121)])
    assert [bench.found(job.id).visible_at for job in jobs] == ([] if lost else [at(121)])


def test_a_queue_leaves_a_moment_to_the_holder(bench: Bench, time: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds an ended lease with its first claim lets its holder write before it takes the job."""
    bench.publish("x", lease=30)
    job, renewed = bench.one(now=0, worker="alive"), []
    monkeypatch.setattr(queue, "_gap_watches", {})
    monkeypatch.setattr(clock, "wait", lambda seconds: renewed.append(bench.renew(job, now=100)))
    time.instant = at(100)
    assert Queue("q", using=bench.engine.alias).claim() is None
    assert renewed == [True]


def test_each_renewal_changes_the_row(bench: Bench) -> None:
    """Who compares a held row with what it saw before recognises each renewal, though the clock stands or goes back."""
    bench.publish("x", lease=60)
    job, ends = bench.one(), []
    for now in (0, 0, 0, -30, 0):
        assert bench.renew(job, now)
        ends.append(bench.found(job.id).visible_at)
    assert len({job.visible_at, *ends}) == 6
    assert all(end - at(60) < 10 for end in ends)  # microseconds
