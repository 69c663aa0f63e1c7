"""From when on a lease counts, and from when on it has ended."""

import pytest

from django_vtqueue import Queue
from tests.fake_clock import FakeClock, at

from .bench import Bench, while_a_queue_waits


@pytest.mark.parametrize("lost", [False, True])
def test_nobody_begins_on_a_lease_that_has_ended(bench: Bench, time: FakeClock, lost: bool) -> None:
    """A claim whose commit took longer than its lease is renewed before the job is handed out, unless it is lost."""
    bench.publish("x", lease=60)
    taken = bench.take(limit=1)
    time.advance(61)
    if lost:
        assert bench.one(now=61, worker="w2").claims == 2
    jobs = taken.collect()
    assert [job.visible_at for job in jobs] == ([] if lost else [at(121)])
    assert [bench.found(job.id).visible_at for job in jobs] == ([] if lost else [at(121)])


def test_a_queue_leaves_a_moment_to_the_holder(bench: Bench, time: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds an ended lease with its first claim lets its holder write before it takes the job."""
    bench.publish("x", lease=30)
    job, renewed = bench.one(now=0, worker="alive"), []
    while_a_queue_waits(monkeypatch, lambda: renewed.append(bench.renew(job, now=100)))
    time.instant = at(100)
    assert Queue("q", using=bench.alias).claim() is None
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
