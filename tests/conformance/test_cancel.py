"""Jobs that are cancelled: what waits ends at once, what runs is asked to stop and not started again."""

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pytest
from django.db import transaction
from pytest_django import Settings

from django_vtqueue import Queue, TaskResultStatus, control, requeue
from django_vtqueue.backend import VTQueueBackend
from tests.fake_clock import FakeClock, at
from tests.project import tasks

from .bench import (
    DAY,
    SECOND,
    Bench,
    Ending,
    Held,
    failure,
    interruption,
    lease_ended,
    letters_before_each_batch,
    moment,
    success,
    was_cancelled,
)
from .conftest import configure

CLASS = "django_vtqueue.exceptions.Cancelled"


@pytest.fixture(autouse=True)
def _time(time: FakeClock) -> None:
    """The clock stands still; each test that needs another moment moves it."""


def cancel(bench: Bench, *job_ids: str, by: str = "anna") -> list[str]:
    return [job_id.hex for job_id in control.cancel(job_ids, using=bench.alias, by=by)]


def test_a_job_that_waits_ends_at_once(bench: Bench, time: FakeClock) -> None:
    """READY ── cancel ──► FAILED, due or not: a dead letter that says who it was, with no attempt used."""
    [due], [later] = bench.publish("x"), bench.publish("y", due=1000, queue="other")
    time.instant = at(5)
    assert cancel(bench, later, due, due) == [later, due]
    assert bench.jobs.count() == 0
    for job_id in (due, later):
        dead = bench.letter(job_id)
        assert (dead.exception_class, dead.message) == (CLASS, "Cancelled by anna.")
        assert (dead.worker_id, dead.claims, dead.attempts, dead.started_at) == ("", 0, 0, None)
        assert bench.found(job_id).finished_at == at(5)
        assert bench.outcomes(job_id) == ["cancelled"]


def test_a_job_that_runs_is_asked(bench: Bench, time: FakeClock) -> None:
    """RUNNING ── cancel ──► RUNNING: who asked, and when, is written; its holder learns it, and may acknowledge."""
    [job_id] = bench.publish("x")
    held = bench.one(now=1)
    before = bench.found(job_id)
    time.instant = at(2)
    assert bench.asked_to_stop(held) is None
    assert cancel(bench, job_id) == [job_id]
    assert bench.found(job_id) == before
    assert bench.asked_to_stop(held) == "anna"
    assert not bench.settle(success(held, "1", 3))
    assert (bench.found(job_id).state, bench.job(job_id).cancelled_by) == ("SUCCESSFUL", "anna")


def test_what_cannot_be_cancelled_is_left_out(bench: Bench, time: FakeClock) -> None:
    """One that was asked before, is done, dead or unknown is not among the ids returned, nor changed."""
    [asked], [done], dead = bench.publish("x"), bench.publish("y"), bench.dead(queue="dead")
    one, other = bench.claim(now=1)
    bench.ack(other)
    assert [one.id, other.id] == [asked, done]
    assert cancel(bench, asked) == [asked]
    before = bench.everything()
    time.advance(1)
    assert cancel(bench, asked, done, dead, "0" * 32, by="bert") == []
    assert bench.everything() == before


ENDS: dict[str, Callable[[Held], Ending]] = {
    "failed": lambda held: failure(held, now=5, delay=100),
    "lease expired": lambda held: lease_ended(held, now=5),
    "released": lambda held: interruption(held, 5, 6),
}


@pytest.mark.parametrize("outcome", ENDS)
def test_what_was_asked_to_stop_is_not_given_back(
    bench: Bench, time: FakeClock, settings: Settings, outcome: str
) -> None:
    """RUNNING ── any end but success ──► FAILED: the failure stays in the history, and the letter is kept for its time.

    The same settlement made once more, after a commit whose answer never came, is found to be done.
    """
    configure(settings, bench.alias, dead_letter_ttl=DAY)
    [job_id] = bench.publish("x")
    held = bench.one(now=1)
    cancel(bench, job_id)
    time.instant = at(6)
    ending = ENDS[outcome](held)
    assert not bench.settle(ending)
    assert bench.outcomes(job_id) == [outcome, "cancelled"]
    dead = bench.letter(job_id)
    assert (dead.exception_class, bench.found(job_id).finished_at) == (CLASS, at(6))
    assert bench.letters.filter(kept_until=at(6 + DAY)).exists()
    assert not bench.settle(ending)
    assert was_cancelled(ending)


def test_a_failure_for_good_keeps_its_own_name(bench: Bench) -> None:
    """A job whose last attempt fails after it was asked to stop is a dead letter of that failure."""
    [job_id] = bench.publish("x", max_attempts=1)
    held = bench.one(now=1)
    cancel(bench, job_id)
    assert not bench.settle(failure(held, now=5))
    assert bench.letter(job_id).exception_class.endswith(".Boom")
    assert bench.outcomes(job_id) == ["failed"]


def test_a_stale_holder_ends_nothing(bench: Bench) -> None:
    """Who has lost a job that was asked to stop since has no say in it."""
    [job_id] = bench.publish("x", lease=10)
    stale, _ = bench.one(now=1), bench.one(now=20, worker="w2")
    cancel(bench, job_id)
    assert bench.settle(failure(stale, now=21))
    assert bench.found(job_id).state == "RUNNING"


def test_a_claim_buries_what_was_asked_to_stop(bench: Bench) -> None:
    """A job that was asked to stop, and whose lease has ended, is a dead letter; what is due behind it is claimed."""
    [job_id] = bench.publish("x", lease=10)
    bench.one(now=1)
    cancel(bench, job_id)
    [other] = bench.publish("y", now=11)
    assert [held.id for held in bench.claim(now=20)] == [other]
    assert bench.outcomes(job_id) == ["lease expired", "cancelled"]


def test_a_requeued_job_starts_afresh(bench: Bench, time: FakeClock) -> None:
    """A cancelled job, whether it ran or not, can be requeued; then it is not asked to stop, and may fail again."""
    [waiting], [running] = bench.publish("x"), bench.publish("y", queue="other")
    held = bench.one(now=1, queues=("other",))
    cancel(bench, waiting, running)
    bench.settle(failure(held, now=2))
    assert requeue([waiting, running], using=bench.alias) == [UUID(waiting), UUID(running)]
    assert not bench.jobs.exclude(cancelled_at=None, cancelled_by=None, progress=None).exists()
    time.advance(10)
    for again in bench.claim(now=time.instant / SECOND, queues=None):
        assert not bench.settle(failure(again, now=time.instant / SECOND))
        assert bench.found(again.id).state == "READY"
    assert bench.outcomes(waiting) == ["cancelled", "requeued", "failed"]


def test_many_are_cancelled_a_few_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are, no other writer waits for long, and only a few are in memory."""
    committed = letters_before_each_batch(bench, monkeypatch, jobs=2)
    ids = bench.publish(*"abcde")
    assert cancel(bench, *ids) == ids
    assert committed == [0, 2, 4]


def test_letters_are_kept_as_their_own_queue_says(bench: Bench, settings: Settings, time: FakeClock) -> None:
    """Also where several backends share a database: each queue is in the settings of one of them."""
    configure(settings, bench.alias, QUEUES=["a"], dead_letter_ttl=60)
    one = settings.TASKS["default"]
    other = {**one, "QUEUES": ["b"], "OPTIONS": {"database": bench.alias}}
    settings.TASKS = {"default": one, "other": other}
    [soon], [kept] = bench.publish("x", queue="a"), bench.publish("y", queue="b")
    cancel(bench, soon, kept)
    expiries = [bench.letter(job_id).kept_until for job_id in (soon, kept)]
    assert expiries == [moment(60), None]


def test_a_damaged_name_is_no_obstacle(bench: Bench) -> None:
    """Whatever text stands in the place of who asked, the job ends, and the others are claimed."""
    asked, other = bench.publish("x", "y", lease=10)
    bench.one(now=1, limit=1)
    cancel(bench, asked)
    bench.damage("UPDATE vtqueue_job SET cancelled_by = CAST(x'ff00' AS TEXT) WHERE id = %s", asked)
    assert bench.one(now=20).id == other
    assert bench.letter(asked).exception_class == CLASS


def test_all_or_nothing(bench: Bench) -> None:
    """Inside a transaction that is rolled back nothing is cancelled."""
    waiting, running = bench.publish("x", "y")
    bench.one(now=1, limit=1)
    before = bench.everything()
    with suppress(ZeroDivisionError), transaction.atomic(bench.alias):
        assert cancel(bench, waiting, running) == [waiting, running]
        raise ZeroDivisionError
    assert bench.everything() == before


def test_names_are_cut(bench: Bench) -> None:
    """Who cancels a job may have any name, or none."""
    long, none = bench.publish("x", "y")
    assert cancel(bench, long, by="\0é" * 200) == [long]
    assert cancel(bench, none, by="") == [none]
    assert bench.letter(long).message.startswith("Cancelled by \\0é\\0é")
    assert bench.letter(none).message == "Cancelled."


def test_people_with_a_queue_of_their_own(bench: Bench) -> None:
    """``Queue`` does as the workers do: what was asked to stop is not handed out again by nack or release."""
    queue = Queue("q", using=bench.alias)
    for verb in ("nack", "release"):
        job_id = queue.publish("x").hex
        claimed = queue.claim()
        cancel(bench, job_id)
        getattr(claimed, verb)()
        assert queue.claim() is None
        assert bench.letter(job_id).exception_class == CLASS


def test_the_result_of_a_cancelled_task(backend: VTQueueBackend, alias: str) -> None:
    """A task that was cancelled while it waited has FAILED, without an attempt; the error says why."""
    result = backend.enqueue(tasks.add, (1, 2), {})
    control.cancel([result.id], using=alias, by="anna")
    result = backend.get_result(result.id)
    assert (result.status, result.attempts, result.worker_ids) == (TaskResultStatus.FAILED, 0, [])
    [error] = result.errors
    assert (error.exception_class_path, error.traceback) == (CLASS, f"{CLASS}: Cancelled by anna.\n")


# Progress


def test_progress_is_written_for_the_holder_only(bench: Bench) -> None:
    """How far a job is stands in its row, as its holder says; who has lost it writes nothing."""
    [job_id] = bench.publish("x", lease=10)
    stale = bench.one(now=1)
    bench.say_progress((stale, (0.4, "page 4 of 10")))
    assert (bench.job(job_id).progress, bench.job(job_id).progress_text) == (0.4, "page 4 of 10")
    held = bench.one(now=20, worker="w2")
    assert (bench.job(job_id).progress, bench.job(job_id).progress_text) == (None, None)
    bench.say_progress((stale, (0.9, "late")), (held, (0.1, "page 1")))
    assert (bench.job(job_id).progress, bench.job(job_id).progress_text) == (0.1, "page 1")
    bench.ack(held, now=21)
    bench.say_progress((held, (0.9, "late")))
    assert bench.job(job_id).progress == 0.1


def test_the_last_progress_is_settled_with_the_job(bench: Bench) -> None:
    """What a job said last is in its row when it has ended, and until the next attempt begins."""
    [job_id] = bench.publish("x")
    held = bench.one(now=1)
    held.progress = (0.5, "half")
    assert not bench.settle(failure(held, now=2))
    assert (bench.found(job_id).state, bench.job(job_id).progress) == ("READY", 0.5)
    again = bench.one(now=3)
    assert bench.job(job_id).progress is None
    again.progress = (1.0, "all")
    assert not bench.settle(success(again, "1", 4))
    assert (bench.job(job_id).progress, bench.job(job_id).progress_text) == (1.0, "all")
