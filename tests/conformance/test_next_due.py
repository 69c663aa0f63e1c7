"""What a worker knows of due jobs without asking."""

import pytest

from django_vtqueue.core.clock import now
from django_vtqueue.core.job import Scope
from django_vtqueue.queue.pauses import pause, resume
from django_vtqueue.worker.next_due import NextDue

from .bench import DAY, Bench

PAST = 1000 * DAY  # before the real clock's now


def test_a_job_that_was_given_back_is_due_at_once(bench: Bench) -> None:
    """Also when the last claim took all there was: what the worker itself gives back is no row that it may not take."""
    next_due = NextDue(bench.engine, [Scope(("q",), raw=True)])
    bench.publish("x", now=-PAST)
    next_due.took(True)
    next_due.expect(now())
    assert next_due.due()


def test_what_may_not_be_taken_yet_is_not_asked_for_again_and_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a claim that left a due row (its holder may only have been stopped) the worker waits for a moment."""
    next_due = NextDue(bench.engine, [Scope(("q",), raw=True)])
    bench.publish("x", now=-PAST)
    next_due.took(True)
    monkeypatch.setattr("django_vtqueue.worker.next_due.LOOK", 60)
    assert not next_due.due()
    assert 0 < next_due.seconds_to_sleep() <= 60


def test_a_drain_asks_before_it_ends(bench: Bench) -> None:
    """What was published a moment ago, before its bell was heard, is not overlooked."""
    next_due = NextDue(bench.engine, [Scope(("q",), raw=True)])
    assert not next_due.due()
    bench.publish("x", now=-PAST)
    assert not next_due.nothing_before(now())


def test_due_jobs_of_a_paused_queue_are_not_asked_for_again_and_again(bench: Bench) -> None:
    """The worker sleeps until the earliest pause ends, and a drain ends beside them."""
    next_due = NextDue(bench.engine, [Scope(None, raw=True)])
    bench.publish("x", now=-PAST)
    bench.publish("x", now=-PAST, queue="for good")
    pause("for good", using=bench.engine.alias)
    pause("q", until=1000, using=bench.engine.alias)
    assert not next_due.due()
    assert 900 < next_due.seconds_to_sleep() <= 1000
    assert next_due.nothing_before(now())
    resume("q", using=bench.engine.alias)
    assert not next_due.nothing_before(now())
    next_due.forget()
    assert next_due.due()
