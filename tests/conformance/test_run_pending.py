"""run_pending beside a worker: what a test that lets time pass sees, and what only a worker does."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.utils import timezone
from pytest_django import Settings

from django_vtqueue import Queue, control, recurring
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.models import DeadLetter, Job, Schedule
from django_vtqueue.testing import run_pending
from tests.project import passing
from tests.project.passing import DAY, HOUR, LOG

from .bench import SECOND, Bench, later, no_schedules
from .conftest import configure


@pytest.fixture(autouse=True)
def empty_log(backend: VTQueueBackend) -> None:
    LOG.clear()


def unfinished(alias: str) -> int:
    return Job.objects.using(alias).filter(finished_at=None).count()


# -- time -------------------------------------------------------------------------------------------------------------


def test_it_is_later_for_the_engine(bench: Bench) -> None:
    """The clock of SQLite, and that of a server, are ahead inside the block."""
    before = bench.now()
    with later(DAY.total_seconds()):
        assert 0 <= bench.now() - before - DAY.total_seconds() * SECOND < 100 * SECOND
    assert 0 <= bench.now() - before < 100 * SECOND


@pytest.mark.parametrize("task", [passing.enqueues_later, passing.aenqueues_later], ids=["sync", "async"])
def test_what_is_enqueued_later_is_due_later(alias: str, task: Any) -> None:
    """A job that is enqueued on day 7 for a day later is due on day 8; what is enqueued after the call, now."""
    task.enqueue(7)
    run_pending(until=7 * DAY + HOUR)
    assert [each for each in LOG if each != "within an hour"] == ["slept"]
    [row] = Job.objects.using(alias).filter(finished_at=None)
    assert timedelta(days=7) <= row.enqueued_at - timezone.now() + HOUR < timedelta(days=7, hours=1)
    assert row.due_at - row.enqueued_at == DAY
    run_pending()
    assert unfinished(alias) == 1
    run_pending(until=8 * DAY + HOUR)
    assert LOG[-1] == "a day later"


def test_what_a_job_expires_by_is_later(alias: str) -> None:
    """It is a time after the enqueue, however late that is."""
    passing.enqueues_later.enqueue(7)
    run_pending(until=7 * DAY + HOUR)
    assert LOG == ["slept", "within an hour"]


def test_children_are_due_later() -> None:
    """Their parent waits for them until then."""
    passing.gathers_later.enqueue(7)
    run_pending(until=8 * DAY - HOUR)
    assert LOG == ["slept"]
    run_pending(until=8 * DAY + HOUR)
    assert LOG == ["slept", "child", "gathered"]


def test_jobs_run_in_the_order_of_their_times() -> None:
    """Those that come to be later, too."""
    passing.sleeps_twice.enqueue("on day 2", 24)
    passing.sleeps.enqueue("in 30 hours", 30)
    passing.noted.using(run_after=40 * HOUR).enqueue("in 40 hours")
    run_pending(until=3 * DAY)
    assert LOG == ["in 30 hours", "in 40 hours", "on day 2"]


def test_a_task_that_enqueues_itself_comes_to_an_end(alias: str) -> None:
    """It runs as often as there is time until then."""
    passing.again.enqueue(6)
    run_pending(until=DAY - HOUR)
    assert (LOG, unfinished(alias)) == (["again"] * 4, 1)


@pytest.mark.parametrize("how", ["retry", "snooze"])
def test_what_comes_again_does_so_later(how: str) -> None:
    """After a day, counted from when it was put off."""
    passing.sleeps_and_comes_again.enqueue(how)
    run_pending(until=3 * DAY - HOUR)
    assert [how] == LOG
    run_pending(until=3 * DAY + HOUR)
    assert [how, how] == LOG


@pytest.mark.parametrize(("days", "expected"), [(2.5, ["sent True", "got 7"]), (3.5, ["got None", "sent False"])])
def test_an_event_comes_in_time_or_late(days: float, expected: list[str]) -> None:
    """One that another task sends; the wait for it begins on day 1 and ends on day 3."""
    result = passing.waits.enqueue()
    passing.sends.enqueue(result.id, days)
    run_pending(until=4 * DAY)
    assert expected == LOG


def test_moments_are_those_that_have_passed(alias: str) -> None:
    """A result says that it was enqueued, begun and finished so late; a lease lasts as long as ever."""
    passing.says_until_when.using(run_after=DAY).enqueue()
    [result] = run_pending(until=2 * DAY)
    assert result.return_value == 60
    for moment in (result.started_at, result.finished_at):
        assert moment is not None
        assert DAY <= moment - timezone.now() + HOUR < DAY + HOUR


def test_several_backends_share_the_time(alias: str, settings: Settings) -> None:
    """Jobs of all of them run in the order of their times, and what one enqueues in another runs, too."""
    configure(settings, alias, QUEUES=["default"])
    mine = settings.TASKS["default"]
    settings.TASKS = {"default": mine, "other": {**mine, "QUEUES": ["other"]}}
    other = passing.sleeps.using(backend="other", queue_name="other")
    other.enqueue("other, in 2 hours", 2)
    passing.sleeps.enqueue("in 3 hours", 3)
    other.enqueue("other, in 4 hours", 4)
    run_pending(until=DAY)
    assert LOG == ["other, in 2 hours", "in 3 hours", "other, in 4 hours"]


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_rate_goes_by_the_time_that_passes(alias: str) -> None:
    """One start a day."""
    for day in range(4):
        passing.daily.enqueue(f"day {day}")
    run_pending()
    assert LOG == ["day 0"]
    run_pending(until=2 * DAY + HOUR)
    assert LOG == ["day 0", "day 1", "day 2"]
    assert unfinished(alias) == 1


def test_what_expires_behind_an_ordered_job(alias: str) -> None:
    """A job whose turn comes when it is overdue is a dead letter, as it is with a worker."""
    passing.fails_first.enqueue("first")
    passing.behind.enqueue("second")
    run_pending(until=DAY, raise_errors=False)
    assert LOG == ["first", "first"]
    assert DeadLetter.objects.using(alias).get().exception_class == "django_vtqueue.exceptions.JobExpired"


def test_a_pause_ends(alias: str) -> None:
    """As time passes, also one that a task has asked for."""
    passing.noted.enqueue("paused")
    control.pause("default", until=timezone.now() + HOUR, using=alias)
    run_pending()
    run_pending(until=HOUR / 2)
    assert LOG == []
    run_pending(until=2 * HOUR)
    assert LOG == ["paused"]


def test_weights_do_not_count(alias: str, settings: Settings) -> None:
    """Jobs run by priority and time, whatever queue they are in: weights are those of a worker."""
    configure(settings, alias, QUEUES=["default", "other"])
    for number in range(3):
        passing.noted.enqueue(f"default {number}")
    passing.noted.using(queue_name="other").enqueue("other")
    passing.noted.using(queue_name="other", priority=5).enqueue("urgent")
    run_pending()
    assert LOG == ["urgent", "default 0", "default 1", "default 2", "other"]


def test_a_queue_with_overflow(alias: str, settings: Settings) -> None:
    """Each job runs once: no copy of it is started."""
    configure(settings, alias, queue_options={"default": {"overflow": True, "copies": 3}})
    passing.noted.enqueue("once")
    run_pending(until=DAY)
    assert LOG == ["once"]


# -- what only a worker does ------------------------------------------------------------------------------------------


def test_schedules_publish_nothing(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tick is due, however much time passes."""
    with no_schedules(monkeypatch):
        recurring(every=HOUR)(passing.noted)
        assert run_pending(until=DAY) == []
        assert not Schedule.objects.using(alias).exists()


def test_raw_payloads_are_not_handled(alias: str, settings: Settings) -> None:
    """They wait for Queue.claim, or Queue.run, also where a worker would call a handler."""
    configure(settings, alias, queue_options={"sensors": {"handler": "tests.project.passing.note"}})
    queue = Queue("sensors", using=alias)
    queue.publish("payload")
    assert run_pending(until=DAY) == []
    assert (LOG, len(queue)) == ([], 1)


def test_a_soft_time_limit_holds(alias: str) -> None:
    """``timeout`` ends a task; for ``hard_timeout`` there is no process that could be killed."""
    passing.too_long.enqueue()
    [result] = run_pending(raise_errors=False)
    assert result.errors[-1].exception_class_path.endswith("TaskTimeout")


def test_results_stay_in_the_table(alias: str) -> None:
    """Nothing is pruned, however much time passes: a test can still read it."""
    result = passing.noted.enqueue("kept")
    run_pending()
    run_pending(until=30 * DAY)
    assert passing.noted.get_result(result.id).status == "SUCCESSFUL"


def test_a_cancelled_job_does_not_run(alias: str) -> None:
    """It is a dead letter at once, and no result is returned of it."""
    result = passing.noted.enqueue("cancelled")
    control.cancel([result.id])
    assert run_pending(until=DAY) == []
    assert LOG == []


def test_an_open_transaction_is_kept(alias: str) -> None:
    """All of it is a part of the caller's transaction, and goes with it."""
    with transaction.atomic(using=alias):
        passing.noted.enqueue("in a block")
        assert len(run_pending()) == 1
        assert connections[alias].in_atomic_block
        transaction.set_rollback(True, using=alias)
    assert not Job.objects.using(alias).exists()
