"""What a worker knows of due jobs without asking."""

import pytest

from django_vtqueue.core.clock import now
from django_vtqueue.core.job import Scope
from django_vtqueue.queue.claims import Claims
from django_vtqueue.queue.pauses import pause, resume
from django_vtqueue.worker.next_claim import NextClaim
from tests.conformance import conftest as both
from tests.conformance.bench import DAY, Bench
from tests.fake_clock import at

alias, traced, bench = both.alias, both.traced, both.bench  # of each engine

PAST = 1000 * DAY  # before the real clock's now


def test_a_job_that_was_given_back_is_due_at_once(bench: Bench) -> None:
    """Also when the last claim took all there was: what the worker itself gives back is no row that it may not take."""
    next_claim = NextClaim(bench.engine, [Scope(("q",), raw=True)])
    bench.publish("x", now=-PAST)
    next_claim.note_claim(True)
    next_claim.expect(now())
    assert next_claim.due()


def test_what_may_not_be_taken_yet_is_not_asked_for_again_and_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A due row that a claim left may have become due since; if another claim leaves it the worker waits for a moment.

    Its holder may only have been stopped.
    """
    monkeypatch.setattr("django_vtqueue.worker.next_claim.LOOK", 60)
    next_claim = NextClaim(bench.engine, [Scope(("q",), raw=True)])
    bench.publish("x", now=-PAST)
    next_claim.note_claim(True)
    assert next_claim.due()
    next_claim.note_claim(True)
    assert not next_claim.due()
    assert 0 < next_claim.seconds_to_sleep() <= 60


def test_what_becomes_due_again_and_again(bench: Bench) -> None:
    """As long as each claim takes something, the next one is made at once: there is no vain one to wait after."""
    next_claim = NextClaim(bench.engine, [Scope(("q",), raw=True)])
    bench.publish("x", now=-PAST)
    for _ in range(3):
        next_claim.note_claim(True, took=True)
        assert next_claim.due()


def test_a_ring_after_a_pause_is_answered_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker claims without a look, where a claim keeps no others waiting; one that is rung again and again looks."""
    monkeypatch.setattr("django_vtqueue.worker.next_claim.QUIET_BEFORE_RING", 60)
    next_claim = NextClaim(bench.engine, [Scope(("q",), raw=True)])
    next_claim.note_ring()
    assert next_claim.due() is not bench.engine.looks_first
    next_claim.note_claim(True)
    next_claim.note_ring()
    assert not next_claim.due()


def test_what_a_claim_at_once_has_not_looked_for_is_claimed_by_the_next_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes due jobs only; a lease that has ended is claimed by the next one, though the worker is rung again."""
    monkeypatch.setattr("django_vtqueue.worker.next_claim.QUIET_BEFORE_RING", 0)
    scopes, claims = [Scope(("q",), raw=True)], Claims(bench.engine)
    next_claim = NextClaim(bench.engine, scopes)
    at_once = []
    for worker, instant in (("w1", at(-PAST)), ("w2", now())):
        bench.publish(worker, now=-PAST)
        next_claim.note_ring()
        at_once.append(next_claim.without_look)
        with bench.engine.transaction():
            taken = claims.claim(scopes, 10, worker, instant, only_due=next_claim.without_look)
        next_claim.note_claim(taken.everything)
    assert at_once == [not bench.engine.looks_first, False]
    assert len(taken.rows) == 2
    next_claim.note_ring()
    assert next_claim.without_look is not bench.engine.looks_first


def test_a_drain_asks_before_it_ends(bench: Bench) -> None:
    """What was published a moment ago, before its bell was heard, is not overlooked."""
    next_claim = NextClaim(bench.engine, [Scope(("q",), raw=True)])
    assert not next_claim.due()
    bench.publish("x", now=-PAST)
    assert not next_claim.nothing_before(now())


def test_due_jobs_of_a_paused_queue_are_not_asked_for_again_and_again(bench: Bench) -> None:
    """The worker sleeps until the earliest pause ends, and a drain ends beside them."""
    next_claim = NextClaim(bench.engine, [Scope(None, raw=True)])
    bench.publish("x", now=-PAST)
    bench.publish("x", now=-PAST, queue="for good")
    pause("for good", using=bench.engine.alias)
    pause("q", until=1000, using=bench.engine.alias)
    assert not next_claim.due()
    assert 900 < next_claim.seconds_to_sleep() <= 1000
    assert next_claim.nothing_before(now())
    resume("q", using=bench.engine.alias)
    assert not next_claim.nothing_before(now())
    next_claim.forget()
    assert next_claim.due()


def test_a_lease_that_a_person_has_set_to_the_end_of_all_numbers(bench: Bench) -> None:
    """It is later than any time asked for, and no error: else a worker would never know what is due next."""
    bench.publish("x")
    held = bench.one()
    bench.jobs.filter(pk=held.id).update(lease_until=2**63 - 1)
    scope = Scope(("q",), raw=True)
    assert (bench.engine.first_due(scope) or 0) > DAY
    assert NextClaim(bench.engine, [scope]).nothing_before(now())
