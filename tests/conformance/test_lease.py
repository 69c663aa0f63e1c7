"""From when on a lease counts."""

import pytest

from django_vtqueue.core.job import Scope
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
