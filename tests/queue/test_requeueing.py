"""Requeues of many dead letters: which go, how fast, and when it ends."""

from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from django_vtqueue import control, requeueing
from django_vtqueue.core import clock
from django_vtqueue.models import DeadLetter, Job, Requeue
from django_vtqueue.queue import dead_letters
from django_vtqueue.queue.dead_letters import Criteria
from django_vtqueue.tasks.task import options_of
from tests.pending import run_pending

from ..admin.test_admin import job, letter
from ..conformance.conftest import configure
from ..fake_clock import FakeClock

pytestmark = pytest.mark.django_db

ALL = Criteria()
FAILS = "tests.project.tasks.raise_it"


def steps() -> Any:
    return Job.objects.filter(task_path=requeueing.PATH, finished_at=None)


def now_again(run: Requeue) -> Requeue:
    run.refresh_from_db()
    return run


def test_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that match are jobs again, the oldest first, a few in each step; what does not match stays."""
    monkeypatch.setattr(requeueing, "BATCH", 2)
    now = clock.now()
    ids = [letter(died_at=now - 100 + age).pk for age in range(5)]
    other = letter(queue_name="other")
    run = requeueing.start(Criteria(queue_name="default"), by="anna")
    assert (run.matched, run.requeued, DeadLetter.objects.count()) == (5, 0, 6)
    run_pending()
    run = now_again(run)
    assert (run.state, run.requeued, run.skipped) == ("done", 5, 0)
    assert DeadLetter.objects.get() == other
    done = Job.objects.exclude(task_path=requeueing.PATH)
    assert {row.pk for row in done} == set(ids)
    assert all(row.history[-1]["worker"] == "anna" for row in done)
    assert Job.objects.filter(task_path=requeueing.PATH).count() == 1  # of the last step; each removes the one before


@pytest.mark.parametrize(
    ("rate", "size", "seconds"), [(None, 100, 0), (50, 5, 6), (1, 1, 60), (10, 1, 6), (6000, 100, 1), (7, 1, 60 / 7)]
)
def test_pace(rate: int | None, size: int, seconds: float) -> None:
    """A rate a minute is kept by few letters every few seconds; at once is as fast as they go."""
    assert requeueing.pace(rate) == (size, seconds)


def test_rate(time: FakeClock) -> None:
    """At 50 a minute, 50 are requeued in a minute, and while nothing is to be done nothing runs."""
    for _ in range(60):
        letter()
    run = requeueing.start(ALL, rate=50)
    for second in range(0, 60, 6):
        run_pending()
        assert now_again(run).requeued == 5 * (second // 6 + 1)
        [step] = steps()
        assert clock.to_instant(step.visible_at) == clock.now() + 6 * clock.SECOND
        time.advance(6)
    assert now_again(run).state == "running"


@pytest.mark.parametrize("died_to", [None, 2**60])
def test_what_dies_again_is_not_picked_up_again(monkeypatch: pytest.MonkeyPatch, died_to: int | None) -> None:
    """A run goes up to the moment of its start, also where later deaths were asked for."""
    monkeypatch.setattr(requeueing, "BATCH", 1)
    for _ in range(3):
        letter(task_path=FAILS, payload='{"args":["BaseException"],"kwargs":{}}', max_attempts=1, attempts=1)
    run = requeueing.start(Criteria(died_to=died_to))
    assert (Criteria.from_json(run.criteria).died_to or 2**60) <= clock.now()
    run_pending()
    assert (now_again(run).state, run.requeued) == ("done", 3)
    assert DeadLetter.objects.count() == 3


def test_canary_that_succeeds(time: FakeClock) -> None:
    """One goes first; the others follow when it has succeeded."""
    for _ in range(3):
        letter()
    run = requeueing.start(ALL, canary=True)
    run_pending()
    assert (now_again(run).state, run.requeued, DeadLetter.objects.count()) == ("canary", 1, 2)
    time.advance(60)
    run_pending()
    assert (now_again(run).state, run.requeued) == ("done", 3)


def test_canary_that_dies_again(time: FakeClock) -> None:
    """When the first one dies again the run ends, says of what, and the others stay where they are."""
    letter(task_path=FAILS, payload='{"args":["BaseException"],"kwargs":{}}', max_attempts=1, died_at=clock.now() - 1)
    others = {letter().pk, letter().pk}
    run = requeueing.start(ALL, canary=True)
    run_pending()
    time.advance(60)
    run_pending()
    assert (now_again(run).state, run.requeued) == ("failed", 1)
    assert run.remark.startswith("builtins.BaseException")
    assert others < set(DeadLetter.objects.values_list("pk", flat=True))
    assert not steps().exists()


def test_canary_that_waits_for_its_next_attempt(time: FakeClock) -> None:
    """While the first one retries the run waits, and looks after it less and less often."""
    letter(task_path=FAILS, payload='{"args":["BaseException"],"kwargs":{}}', died_at=clock.now() - 1)
    letter()
    run = requeueing.start(ALL, canary=True)
    run_pending()
    waits = []
    for _ in range(12):
        tomorrow = clock.now() + timedelta(days=1) // clock.MICROSECOND
        Job.objects.filter(pk=now_again(run).canary).update(state="SCHEDULED", due_at=tomorrow, wake_at=tomorrow)
        [step] = steps()
        waits.append(clock.to_instant(step.visible_at) - clock.now())
        time.advance(31)
        run_pending()
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (1_000_000, 30_000_000)
    assert (run.state, DeadLetter.objects.count()) == ("canary", 1)


def test_canary_that_is_gone(time: FakeClock) -> None:
    """A first letter that somebody deleted before it ran proves nothing: the run ends."""
    letter(), letter()
    run = requeueing.start(ALL, canary=True)
    run_pending()
    Job.objects.filter(pk=now_again(run).canary).delete()
    time.advance(60)
    run_pending()
    assert (now_again(run).state, run.remark, DeadLetter.objects.count()) == ("failed", "", 1)


@pytest.mark.parametrize(("to_queue", "result_ttl"), [(None, 0), (None, 20), ("elsewhere", 20)])
def test_canary_that_is_not_kept(settings: Settings, time: FakeClock, to_queue: str | None, result_ttl: float) -> None:
    """Where it may be deleted, having succeeded, before anybody looks at it again, the others follow."""
    configure(settings, "default", queue_options={to_queue or "default": {"result_ttl": result_ttl}})
    letter(), letter()
    run = requeueing.start(ALL, canary=True, queue_name=to_queue)
    run_pending()
    Job.objects.filter(pk=now_again(run).canary).delete()
    time.advance(60)
    run_pending()
    assert (now_again(run).state, run.requeued) == ("done", 2)


def test_taken_keys_are_skipped(time: FakeClock) -> None:
    """A letter whose unique key a waiting job has stays, and is counted; it is no canary either."""
    job("scheduled", unique_key="k")
    kept = letter(unique_key="k", died_at=clock.now() - 1)
    letter(), letter()
    run = requeueing.start(ALL, canary=True)
    for _ in range(3):
        run_pending()
        time.advance(60)
    assert (now_again(run).state, run.requeued, run.skipped) == ("done", 2, 1)
    assert DeadLetter.objects.get() == kept


def test_other_queue_and_priority() -> None:
    """All of a run's letters may be sent elsewhere, or be more or less urgent than they were."""
    row = letter(priority=1)
    requeueing.start(ALL, queue_name="slow", priority=-5)
    run_pending()
    again = Job.objects.get(pk=row.pk)
    assert (again.queue_name, again.priority) == ("slow", -5)


def test_its_jobs_wait_with_the_letters() -> None:
    """The steps are jobs of the letters' queue, above all others in it: what stops these jobs stops the run."""
    letter(queue_name="mail")
    requeueing.start(ALL)
    [step] = steps()
    assert (step.queue_name, step.priority) == ("mail", 100)


@pytest.mark.parametrize("options", [{}, {"queue_options": {"raw": {"handler": "tests.project.tasks.handle"}}}])
def test_letters_of_a_queue_whose_tasks_no_worker_runs(settings: Settings, options: dict[str, Any]) -> None:
    """The steps are jobs of another queue, whose workers requeue them."""
    configure(settings, "default", QUEUES=["sensors", "default"], **options)
    letter(queue_name="raw", task_path="")
    run = requeueing.start(Criteria(queue_name="raw"))
    [step] = steps()
    assert step.queue_name == "default"
    run_pending()
    assert (now_again(run).requeued, run.state, Job.objects.filter(queue_name="raw").count()) == (1, "done", 1)


def test_stop() -> None:
    """A run that was stopped does nothing more, and says who stopped it; one that has ended cannot be stopped."""
    letter()
    run = requeueing.start(ALL, rate=1)
    assert requeueing.stop(run.pk, by="anna")
    run_pending()
    assert (now_again(run).state, run.remark, DeadLetter.objects.count()) == ("stopped", "anna", 1)
    assert not requeueing.stop(run.pk)


@pytest.mark.parametrize("end", ["deleted", "dead"])
def test_going_on_after_a_step_is_lost(end: str) -> None:
    """A run whose next step was deleted, or died, can be gone on with; one whose step waits cannot."""
    letter()
    run = requeueing.start(ALL)
    assert not requeueing.resume(run.pk)
    old = steps().get()
    values = {
        field.attname: getattr(old, field.attname) for field in Job._meta.fields if hasattr(DeadLetter, field.attname)
    }
    old.delete()
    if end == "dead":
        DeadLetter.objects.create(
            **values | {"id": now_again(run).step, "died_at": clock.now(), "exception_class": "E"}
        )
    assert requeueing.step_of(now_again(run)) is None
    assert requeueing.resume(run.pk)
    run_pending()
    assert (now_again(run).state, run.requeued, DeadLetter.objects.count()) == ("done", 1, 0)


def test_a_step_and_its_acknowledgement_are_one() -> None:
    """A step is a transactional task: none is done and repeated."""
    assert options_of(requeueing.step.func)["transactional"]


def test_nothing_matches() -> None:
    """A run without letters has ended when it begins."""
    run = requeueing.start(ALL)
    assert (run.state, run.matched, steps().count()) == ("done", 0, 0)


@pytest.mark.parametrize(
    "values", [{"rate": 0}, {"rate": 2**70}, {"rate": True}, {"priority": 101}, {"queue_name": ""}]
)
def test_values_that_are_not_allowed(values: dict[str, Any]) -> None:
    """They are refused before anything is begun."""
    with pytest.raises(ValueError, match=r"must be|1 to 255"):
        requeueing.start(ALL, **values)
    assert not Requeue.objects.exists()


@pytest.mark.parametrize(
    "text", ["[]", '{"queue": "a"}', '{"queue_name": 3}', '{"reviewed": 1}', '{"died_to": true}', "{"]
)
def test_criteria_that_are_none(text: str) -> None:
    """What is not understood is refused: with a criterion left out, letters would go that were not meant."""
    with pytest.raises(ValueError, match=r"Criteria are|must be|Expecting"):
        Criteria.from_json(text)


def test_from_code() -> None:
    """``control.requeue_matching`` takes the criteria by their names, moments as datetimes, both included."""
    now = clock.now()
    moment = clock.from_instant(now - 50)
    wanted = letter(queue_name="q", died_at=now - 50)
    others = [letter(queue_name="other", died_at=now - 50), letter(queue_name="q", died_at=now - 51)]
    run = control.requeue_matching(
        queue_name="q", died_after=moment, died_before=moment, to_queue="to", to_priority=7, by="anna"
    )
    assert (run.matched, run.created_by) == (1, "anna")
    run_pending(raise_errors=False)
    assert set(DeadLetter.objects.exclude(pk=wanted.pk).values_list("pk", flat=True)) == {row.pk for row in others}
    with pytest.raises(ValueError, match="rate is 0"):
        control.requeue_matching(rate=0)


def test_criteria() -> None:
    """Each narrows what is meant, and all of them come back from their stored form."""
    now = clock.now()
    values: dict[str, Any] = {"queue_name": "q", "task_path": "t", "exception_class": "E", "fingerprint": "f"}
    wanted = letter(**values, died_at=now - 50)
    dead_letters.mark_reviewed(wanted, by="anna", note="seen")
    for name in values:
        dead_letters.mark_reviewed(letter(**values | {name: "other"}, died_at=now - 50), by="", note="")
    letter(**values, died_at=now - 50)
    dead_letters.mark_reviewed([letter(**values, died_at=now - 61), letter(**values, died_at=now - 39)], by="", note="")
    criteria = Criteria(**values, reviewed=True, died_from=now - 60, died_to=now - 40)
    assert [row.pk for row in Criteria.from_json(criteria.to_json()).letters("default")] == [wanted.pk]
    assert criteria.count("default") == 1


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ({}, "died"),
        ({"died_from": 1}, "died"),
        ({"queue_name": "q"}, "queue"),
        ({"task_path": "t"}, "task"),
        ({"exception_class": "E", "died_from": 1}, "exception"),
        ({"fingerprint": "f", "task_path": "t"}, "group"),
    ],
)
def test_a_step_finds_its_letters_by_an_index(values: dict[str, Any], index: str) -> None:
    """The next letters of a run are the next entries of an index, in its order: none is sorted, none is passed over."""
    plan = Criteria(**values, died_to=9).letters("default", (1, letter().pk))[:100].explain()
    assert f"vtqueue_letter_{index} (" in plan
    assert "died_at>" in plan
    assert "TEMP B-TREE" not in plan


def test_a_step_removes_only_steps() -> None:
    """Whoever may enqueue a job may not delete others by it."""
    other = job()
    requeueing.step.enqueue(str(other.pk), str(other.pk))
    run_pending(queue_name="default")
    assert Job.objects.filter(pk=other.pk).exists()
