"""Schedules and workers inside one process, on a clock that the test moves."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core.clock import LAST, SECOND, from_instant, to_instant
from django_vtqueue.engines import engine_for
from django_vtqueue.models import DeadLetter, Job, Schedule, WorkerProcess
from django_vtqueue.recurrence import control, firing
from django_vtqueue.recurrence.declaring import vanished
from django_vtqueue.tasks import recurring as registry
from django_vtqueue.tasks.lookup import import_task_modules
from django_vtqueue.worker.schedules import Schedules

from ..fake_clock import START, FakeClock, at
from .conftest import Declare, expiring, keyless, keyless_error, report, two, unique, until_start

FIRST = (at(60) - at(60) % (60 * SECOND) - START) / SECOND  # seconds to the first whole minute
CALL: dict[str, Any] = {"args": [], "kwargs": {}}

AHEAD = 400 * 24 * 3600 + 7000  # seconds

Worker = Callable[[], Schedules]


@pytest.fixture
def backend(alias: str, settings: Any) -> VTQueueBackend:
    options = {"database": alias}
    settings.TASKS = {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": options}}
    backend = report.get_backend()
    assert isinstance(backend, VTQueueBackend)
    return backend


@pytest.fixture
def worker(backend: VTQueueBackend, time: FakeClock) -> Worker:
    """Return a function that makes the part of a worker that publishes what is due; it looks whenever it is called."""

    def start() -> Schedules:
        number = WorkerProcess.objects.using(backend.database).count()
        row = WorkerProcess(
            worker_id=f"web:{number}", host="web", pid=number, slots=1, started_at=START, heartbeat_at=START
        )
        part = Schedules(engine_for(backend.database), backend, row, lambda tell: tell())
        row.save(using=backend.database)
        return part

    return start


def ticks(alias: str) -> list[float]:
    """Return the ticks of all jobs, in seconds since the first whole minute."""
    found = Job.objects.using(alias).order_by("due_at", "id").values_list("due_at", flat=True)
    return [(to_instant(due_at) - at(FIRST)) / SECOND for due_at in found]


def look(*workers: Schedules) -> None:
    for worker in workers:
        alias, now = worker.engine.alias, worker.engine.now()
        WorkerProcess.objects.using(alias).update(heartbeat_at=now)  # those that are there are alive
        worker.forget()
        worker.keep()


def schedule(alias: str, name: str = "minute") -> Schedule:
    return Schedule.objects.using(alias).get(pk=name)


def finish(alias: str) -> None:
    """Have all jobs be done, two seconds after they were begun."""
    Job.objects.using(alias).filter(finished_at=None).update(
        state="SUCCESSFUL",
        worker_id="web:0",
        wake_at=None,
        started_at=START,
        finished_at=START + 2 * SECOND,
        kept_until=START + 9 * SECOND,
    )


# -- ticks -------------------------------------------------------------------------------------------------------------


def test_a_tick_is_published_once_by_any_number_of_workers(
    alias: str, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """Each with all that its task and its declaration say; before the first tick there is none."""
    declare("* * * * *", name="minute", tz="UTC", args=[7], kwargs={"b": [1]})
    workers = [worker() for _ in range(3)]
    look(*workers)
    assert ticks(alias) == []
    for number in range(3):
        time.instant = at(FIRST + 60 * number)
        look(*workers, *workers)
    assert ticks(alias) == [0, 60, 120]
    job = Job.objects.using(alias).first()
    assert job is not None
    assert (job.task_path, job.args, job.kwargs) == (report.module_path, [7], {"b": [1]})
    assert to_instant(schedule(alias).last_at or 0) == at(FIRST + 120)


def test_a_worker_that_saw_the_old_tick_publishes_nothing(
    alias: str, backend: VTQueueBackend, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """The row is moved on only from the tick that the worker has read."""
    declare(every=60, name="minute")
    look(worker())
    time.instant = at(FIRST)
    [row] = firing.due(alias, time())
    engine = engine_for(alias)
    assert firing.fire(engine, backend, row, time(), later=lambda tell: None)
    assert not firing.fire(engine, backend, row, time(), later=lambda tell: None)
    assert ticks(alias) == [0]


def test_job_and_tick_commit_together(
    alias: str,
    backend: VTQueueBackend,
    worker: Worker,
    declare: Declare,
    time: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the job cannot be stored the tick is still to come."""
    declare(every=60, name="minute")
    part = worker()
    look(part)
    time.instant = at(FIRST)

    class Gone(BaseException): ...

    def fail(*ignored: Any) -> None:
        raise Gone

    with monkeypatch.context() as patched:
        patched.setattr(VTQueueBackend, "_announce", fail)
        with pytest.raises(Gone):
            look(part)
    assert ticks(alias) == []
    look(part)
    assert ticks(alias) == [0]


@pytest.mark.parametrize(
    ("missed", "after", "expected"),
    [
        ("one", 0, [0]),
        ("one", 200, [0]),
        ("all", 200, [0, 60, 120, 180]),
        ("skip", 200, [180]),  # 20 s late: it was not missed
        ("skip", 299.9, [240]),
    ],
)
def test_missed_ticks(
    alias: str, worker: Worker, declare: Declare, time: FakeClock, missed: str, after: float, expected: list[int]
) -> None:
    """``missed`` says what becomes of them; the next tick is where it always was."""
    declare("* * * * *", name="minute", missed=missed)
    look(worker())
    time.instant = at(FIRST + after)
    look(worker())
    assert ticks(alias) == expected
    following = at(FIRST + after - after % 60 + 60)
    assert to_instant(schedule(alias).next_at or 0) == following
    time.instant = following
    look(worker())
    assert ticks(alias) == [*expected, (following - at(FIRST)) / SECOND]


def test_of_several_late_ticks_the_last_one_is_run(
    alias: str, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """With ``missed="skip"``, though all are late by less than a minute: a restart piles up nothing."""
    declare(every=5, name="often", missed="skip")
    time.instant = at(FIRST - 1)
    look(worker())
    time.instant = at(FIRST + 27)
    look(worker())
    assert ticks(alias) == [25]


def test_a_daily_job_that_was_missed_is_skipped(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """A minute late is late; more is missed."""
    declare(every=86_400, name="day", missed="skip")
    look(worker())
    row = schedule(alias, "day")
    time.instant = to_instant(row.next_at or 0) + 61 * SECOND
    look(worker())
    assert ticks(alias) == []
    assert to_instant(schedule(alias, "day").next_at or 0) == to_instant(row.next_at or 0) + 86_400 * SECOND


def test_all_missed_ticks_are_capped(
    alias: str, worker: Worker, declare: Declare, time: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The last hundred are run, and the log says it."""
    declare(every=1, name="second", missed="all")
    look(worker())
    time.instant += 3600 * SECOND
    look(worker())
    assert len(ticks(alias)) == 100
    assert "schedule 'second': of the ticks missed since" in caplog.text
    assert "only the last 100 are run" in caplog.text


def test_a_clock_that_steps_back_repeats_nothing(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """What was run is not run again when its time comes again."""
    declare(every=60, name="minute")
    part = worker()
    look(part)
    time.instant = at(FIRST)
    look(part)
    for seconds in (-3600, -60, 0, 59.9):
        time.instant = at(FIRST + seconds)
        look(part, worker())
    assert ticks(alias) == [0]
    time.instant = at(FIRST + 60)
    look(part)
    assert ticks(alias) == [0, 60]


@pytest.mark.parametrize("back", [8, 3600, 3 * 86_400])
def test_a_rare_schedule_is_not_repeated_by_a_clock_that_steps_back(
    back: int, alias: str, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """Its next tick is weeks away for it has just run, not because a clock was wrong."""
    declare(every=28 * 86_400, name="rare")
    look(part := worker())
    time.instant = tick = to_instant(schedule(alias, "rare").next_at or 0)
    look(part)
    for instant in (tick - back * SECOND, tick, tick + SECOND):
        time.instant = instant
        look(part, worker())
    assert Job.objects.using(alias).count() == 1


@pytest.mark.parametrize("how", ["skip", "overlap", "new"])
def test_a_clock_that_was_years_ahead_and_ran_nothing(
    how: str, alias: str, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """When it is set right the schedules do not wait for years, though no tick was run by the wrong clock."""
    if how == "skip":
        declare("0 0 * * *", tz="UTC", name="minute", missed="skip")
    else:
        declare(every=60, name="minute", overlap=False)
    declare("0 0 1 1 *", tz="UTC", name="yearly")
    if how == "new":
        time.instant = at(FIRST + AHEAD)
    look(part := worker())
    yearly = schedule(alias, "yearly").next_at
    if how == "overlap":  # the first job is not finished
        time.instant = at(FIRST)
        look(part)
    if how != "new":
        time.instant = at(FIRST + AHEAD)
        look(part)
    time.instant = at(FIRST + 60)
    look(part)
    assert to_instant(schedule(alias).next_at or 0) <= at(FIRST + 60) + 24 * 3600 * SECOND
    assert to_instant(schedule(alias, "yearly").next_at or 0) <= at(FIRST + 60) + 366 * 24 * 3600 * SECOND
    assert how == "new" or schedule(alias, "yearly").next_at == yearly


def test_a_clock_that_was_years_ahead(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """When it is set right the schedules do not wait for years."""
    declare(every=60, name="minute")
    part = worker()
    time.advance(10 * 365 * 86_400)
    look(part)
    time.advance(60)
    look(part)
    assert len(ticks(alias)) == 1
    time.instant = at(FIRST)
    look(part)
    time.instant = at(FIRST + 60)
    look(part)
    assert ticks(alias)[0] == 60


def test_jitter_delays_the_job_and_not_the_tick(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """A job is due up to so many seconds later; the next tick is exact."""
    declare(every=60, name="minute", jitter=30)
    random.seed(7)
    part = worker()
    for number in range(20):
        time.instant = at(FIRST + 60 * number)
        look(part)
    late = [due_at % 60 for due_at in ticks(alias)]
    assert len(late) == 19
    assert all(0 <= each <= 30 for each in late)
    assert len(set(late)) > 10


def test_what_runs_now_has_no_jitter(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """It is due at once."""
    declare(every=86_400, name="day", jitter=3600)
    look(worker())
    for _ in range(3):
        control.run_now(schedule(alias, "day"), alias)
    assert {to_instant(due_at) for due_at in Job.objects.using(alias).values_list("due_at", flat=True)} == {time()}


def test_without_overlap(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """As long as a job of the schedule is unfinished there is no other; then there is one with the next tick."""
    declare(every=60, name="minute", overlap=False)
    part = worker()
    look(part)
    for number in range(3):
        time.instant = at(FIRST + 60 * number)
        look(part)
    assert ticks(alias) == [0]
    finish(alias)
    time.instant = at(FIRST + 180)
    look(part)
    assert ticks(alias) == [0, 180]
    assert [len(run) for run in schedule(alias).recent] == [2, 4]  # the first one's end was noted


def test_a_task_with_a_unique_key_keeps_it(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """It may be enqueued elsewhere, too: one key holds for all."""
    declare(every=60, name="minute", overlap=False, on=unique)
    look(part := worker())
    time.instant = at(FIRST)
    look(part)
    assert Job.objects.using(alias).get().unique_key == "own"


@pytest.mark.parametrize("on", [report, keyless, unique, until_start])
@pytest.mark.parametrize("moved", ["", "mail"])
def test_no_overlap_whatever_becomes_of_the_job(
    alias: str, worker: Worker, declare: Declare, time: FakeClock, on: Any, moved: str
) -> None:
    """The key of its task may be given up at its start, or be None; the job may run, or be in another queue by now."""
    declare(every=60, name="minute", overlap=False, on=on)
    look(part := worker())
    time.instant = at(FIRST)
    look(part)
    jobs = Job.objects.using(alias)
    [first] = jobs.values_list("pk", flat=True)
    if moved:
        jobs.update(queue_name=moved)
    jobs.update(state="RUNNING", worker_id="web:0", lease_until=at(FIRST + 999), unique_until="started")
    for number in (1, 2):
        time.instant = at(FIRST + 60 * number)
        look(part)
    assert list(jobs.values_list("pk", flat=True)) == [first]
    jobs.update(lease_until=None, state="SUCCESSFUL", finished_at=at(FIRST + 130))
    time.instant = at(FIRST + 180)
    look(part)
    assert jobs.count() == 2


def test_a_job_that_is_never_run_holds_up_no_tick(
    alias: str, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """One that has expired while no worker ran is buried, and the next tick has a job of its own."""
    declare(every=60, name="minute", overlap=False, on=expiring)
    look(part := worker())
    time.instant = at(FIRST)
    look(part)
    time.instant = at(FIRST + 60)
    look(part)
    assert ticks(alias) == [60]
    assert DeadLetter.objects.using(alias).get().exception_class.endswith("JobExpired")


@pytest.mark.parametrize("on", [report, unique, keyless, keyless_error])
def test_of_many_missed_ticks_one_is_run_without_overlap(
    alias: str, worker: Worker, declare: Declare, time: FakeClock, on: Any
) -> None:
    """Whatever the task says of duplicates."""
    declare(every=60, name="minute", overlap=False, missed="all", on=on)
    look(worker())
    time.instant = at(FIRST + 180)
    look(worker())
    assert Job.objects.using(alias).count() == 1


def test_what_runs_now_is_the_job_that_has_not_ended(
    alias: str, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """Without overlap a run by hand gives the job there is, wherever it is by now."""
    declare(every=60, name="minute", overlap=False)
    look(part := worker())
    time.instant = at(FIRST)
    look(part)
    Job.objects.using(alias).update(queue_name="mail")
    result = control.run_now(schedule(alias), alias)
    assert result.id == str(Job.objects.using(alias).get().pk)
    assert getattr(result, "duplicate", False)


def test_jitter_beyond_what_a_job_may_wait(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """What expires counts from the moment to which the jitter has moved the tick."""
    declare(every=60, name="minute", jitter=50, on=expiring)
    look(part := worker())
    for number in range(20):
        time.instant = at(FIRST + 60 * number)
        look(part)
    rows = Job.objects.using(alias).values_list("due_at", "start_by")
    assert len(rows) == 20
    assert {(end - due).total_seconds() for due, end in rows} == {3}


def test_a_job_that_cannot_be_published(
    alias: str,
    backend: VTQueueBackend,
    worker: Worker,
    declare: Declare,
    time: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged, the others go on, and the schedule goes on with its next tick."""
    declare(every=60, name="wrong", on=two, args=[1, 2, 3])
    declare(every=60, name="minute")
    look(part := worker())
    time.instant = at(FIRST)
    look(part)
    assert ticks(alias) == [0]
    assert "schedule 'wrong': its job cannot be published, so this tick is left out: TypeError" in caplog.text
    assert to_instant(schedule(alias, "wrong").next_at or 0) == at(FIRST + 60)


def test_a_full_queue_is_waited_for(
    alias: str, settings: Any, worker: Worker, declare: Declare, time: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """By default a schedule is exempt, as what jobs publish; else its tick waits until there is room, and the log says
    so once.
    """
    declare(every=60, name="minute")
    settings.TASKS["default"]["OPTIONS"] |= {"max_depth": 1}
    settings.TASKS = {**settings.TASKS}
    look(part := worker())
    for number in range(2):
        time.instant = at(FIRST + 60 * number)
        look(part)
    assert ticks(alias) == [0, 60]
    settings.TASKS["default"]["OPTIONS"] |= {"exempt_workers": False}
    settings.TASKS = {**settings.TASKS}
    part = worker()
    part.backend = report.get_backend()
    time.instant = at(FIRST + 120)
    look(part)
    look(part)
    assert ticks(alias) == [0, 60]
    assert [record.levelname for record in caplog.records if "schedule 'minute'" in record.getMessage()] == ["WARNING"]
    assert part.next_at() > monotonic()
    Job.objects.using(alias).all().delete()
    time.instant = at(FIRST + 121)
    look(part)
    assert ticks(alias) == [120]


def test_of_all_missed_ticks_there_are_as_many_as_a_queue_has_room_for(
    alias: str, settings: Any, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """Each missed tick waits for room by itself: more of them than the queue ever has room for come one by one."""
    declare(every=60, name="minute", missed="all")
    settings.TASKS["default"]["OPTIONS"] |= {"max_depth": 2, "exempt_workers": False}
    settings.TASKS = {**settings.TASKS}
    look(part := worker())
    part.backend = report.get_backend()
    time.instant = at(FIRST + 60 * 4)
    for expected in ([0, 60], [120, 180], [240]):
        look(part)
        assert ticks(alias) == expected
        Job.objects.using(alias).all().delete()
    assert to_instant(schedule(alias).next_at or 0) == at(FIRST + 60 * 5)


# -- declarations ------------------------------------------------------------------------------------------------------


def test_a_changed_declaration(
    alias: str, worker: Worker, declare: Declare, time: FakeClock, redeclare: Declare
) -> None:
    """Its next tick stays if only the call has changed, and is a new one if its expression has; a pause stays."""
    declare("0 3 * * *", tz="UTC", name="minute")
    look(worker())
    control.pause("minute", "ann", alias)
    before = schedule(alias)
    redeclare("0 3 * * *", tz="UTC", name="minute", args=[1])
    time.advance(30 * 86_400)
    look(worker())
    row = schedule(alias)
    assert (row.next_at, row.paused_at, row.paused_by) == (before.next_at, before.paused_at, "ann")
    assert row.payload == {"args": [1], "kwargs": {}}
    redeclare("0 4 * * *", tz="UTC", name="minute", args=[1])
    look(worker())
    row = schedule(alias)
    assert row.expression == "0 4 * * *"
    assert to_instant(row.next_at or 0) > time()
    assert row.paused_by == "ann"


def test_old_and_new_workers_side_by_side(
    alias: str, backend: VTQueueBackend, worker: Worker, declare: Declare, redeclare: Declare, time: FakeClock
) -> None:
    """In a deploy what holds is what was started last, as long as one of these workers lives; then what is left."""
    declare(every=60, name="minute", args=["old"])
    old = worker()
    look(old)
    redeclare(every=60, name="minute", args=["new"])
    new = worker()
    look(new, old)
    time.instant = at(FIRST)
    look(old)
    assert ticks(alias) == []  # not with the old arguments, nor the new ones by the old code
    look(new)
    assert Job.objects.using(alias).get().args == ["new"]
    WorkerProcess.objects.using(alias).filter(pk="web:1").delete()  # it was rolled back
    look(old)
    assert schedule(alias).payload["args"] == ["old"]
    time.instant = at(FIRST + 60)
    look(old)
    assert ticks(alias) == [0, 60]


def test_what_no_running_code_declares(
    alias: str, worker: Worker, declare: Declare, redeclare: Declare, time: FakeClock
) -> None:
    """It is not run, and it is not deleted; as long as an old worker runs it goes on; when it is back it goes on."""

    def shown() -> set[str]:
        return vanished(Schedule.objects.using(alias), alias, time())

    declare(every=60, name="minute")
    old = worker()
    look(old)
    redeclare(every=3600, name="hour")
    new = worker()
    look(new, old)
    assert shown() == set()
    time.instant = at(FIRST)
    look(new, old)
    assert ticks(alias) == [0]
    WorkerProcess.objects.using(alias).filter(pk="web:0").delete()
    assert shown() == {"minute"}
    time.instant = at(FIRST + 120)
    look(new)
    assert ticks(alias) == [0]
    look(old)
    assert ticks(alias) == [0, 60]
    WorkerProcess.objects.using(alias).all().delete()
    assert shown() == {"minute"}  # no worker runs: what this process declares counts
    redeclare(every=60, name="minute")
    assert shown() == {"hour"}


@pytest.mark.parametrize(("broken", "gone"), [("", {"old"}), ("no_such_module", set())])
def test_what_a_process_without_workers_knows(
    backend: VTQueueBackend, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, gone: set[str]
) -> None:
    """It asks the task modules of all backends of the database; where one does not import, nothing has vanished."""
    import_task_modules(())  # those of apps have the backend that is not there below
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_functions", {})
    names = [f"tasks_of_a_site{broken}", f"tasks_of_another{broken}"]
    for name in names:
        code = f"@recurring(every=60, name={name!r})\n@task(backend={name!r})\ndef run(): ...\n"
        (tmp_path / f"{name}.py").write_text(f"from django_vtqueue import recurring, task\n{code}")
    site = settings.TASKS["default"]
    settings.TASKS = {
        name: {**site, "OPTIONS": {"database": backend.database, "task_modules": [name, *filter(None, [broken])]}}
        for name in names
    }
    rows = [Schedule(name=name, task_path="x.y", expression="every 60", declared=True) for name in (*names, "old")]
    assert vanished(rows, backend.database, START) == gone
    for name in names:
        (tmp_path / f"{name}.py").unlink()  # it is asked once
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert vanished(rows, backend.database, START) == gone


def test_the_task_of_a_schedule_of_the_admin(
    alias: str, worker: Worker, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: FakeClock
) -> None:
    """It has vanished if no worker runs it and there is no such task; not if its module cannot be imported here."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tasks_that_break.py").write_text("raise SystemExit")
    options = {"database": alias, "task_modules": ["tasks_that_break"]}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    paths = {"there": report.module_path, "gone": "tests.project.tasks.gone", "broken": "tasks_that_break.run"}
    rows = [Schedule(name=name, task_path=path, expression="every 60") for name, path in paths.items()]
    worker()
    for seconds, expected in [(60, set()), (61, {"gone"})]:
        for row in rows:
            row.next_at = from_instant(time() - seconds * SECOND)
        assert vanished(rows, alias, time()) == expected


def test_a_name_that_was_given_in_the_admin(
    alias: str, worker: Worker, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    """Code does not take its row over; a worker says so once, at its start, also if it writes other rows."""
    Schedule.objects.using(alias).create(name="minute", task_path=report.module_path, expression="every 9")
    declare(every=60, name="minute")
    declare(every=60, name="new")
    look(part := worker())
    look(part)
    assert schedule(alias).expression == "every 9"
    assert schedule(alias, "new").expression == "every 60"
    assert caplog.text.count("'minute' was made in the admin") == caplog.text.count("was made in the admin") == 1


def test_a_schedule_of_the_admin_is_run(alias: str, worker: Worker, time: FakeClock) -> None:
    """By each worker that has its task; by none if it is no task that a worker has loaded."""
    common = {"expression": "every 60", "next_at": at(FIRST), "payload": CALL}
    table = Schedule.objects.using(alias)
    table.create(name="known", task_path=report.module_path, queue_name="mails", priority=7, **common)
    table.create(name="unknown", task_path="os.system", **common)
    look(part := worker())
    time.instant = at(FIRST)
    look(part)
    job = Job.objects.using(alias).get()
    assert (job.task_path, job.queue_name, job.priority) == (report.module_path, "mails", 7)
    assert part.next_at() > monotonic()  # it does not look for the other one again and again


def test_a_schedule_of_another_backend(alias: str, settings: Any, worker: Worker, time: FakeClock) -> None:
    """A task of another entry of TASKS is left to the workers of that one, and the command says so."""
    entry = {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "OPTIONS": {"database": alias}}
    settings.TASKS = {"default": {**entry, "QUEUES": ["mine"]}, "other": {**entry, "QUEUES": ["default"]}}
    there = {"expression": "every 60", "next_at": at(FIRST), "payload": CALL}
    Schedule.objects.using(alias).create(name="theirs", task_path=report.module_path, **there)
    look(part := worker())
    part.backend = VTQueueBackend("other", {"QUEUES": [], "OPTIONS": {"database": alias}})
    time.instant = at(FIRST)
    look(part)
    assert ticks(alias) == []
    with pytest.raises(Exception, match="keeps no jobs in 'elsewhere'"):
        control.run_now(schedule(alias, "theirs"), "elsewhere")


# -- people ------------------------------------------------------------------------------------------------------------


def test_pause_and_resume(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """Of a pause nothing is missed; it is begun and ended once."""
    declare(every=60, name="minute", missed="all")
    look(part := worker())
    assert control.pause("minute", "ann", alias)
    assert not control.pause("minute", "bob", alias)
    time.instant = at(FIRST + 300)
    look(part)
    assert ticks(alias) == []
    assert control.resume("minute", alias)
    assert not control.resume("minute", alias)
    look(part)
    assert ticks(alias) == []
    time.instant = at(FIRST + 360)
    look(part)
    assert ticks(alias) == [360]


def test_resumed_after_a_step_back(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """It goes on behind its last tick, which comes again."""
    declare(every=60, name="minute")
    look(part := worker())
    time.instant = at(FIRST)
    look(part)
    time.instant = at(FIRST - 12)
    control.pause("minute", "ann", alias)
    control.resume("minute", alias)
    for seconds in (-12, 0, 1):
        time.instant = at(FIRST + seconds)
        look(part)
    assert ticks(alias) == [0]


def test_resumed_after_a_job_that_people_published_with_a_clock_ahead(
    alias: str, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """That was no tick: the next one comes at its time."""
    declare(every=60, name="minute")
    look(worker())
    time.advance(6 * 86_400 + 7)
    control.run_now(schedule(alias), alias)
    time.instant = at(FIRST)
    control.pause("minute", "ann", alias)
    control.resume("minute", alias)
    assert to_instant(schedule(alias).next_at or 0) == at(FIRST + 60)


def test_run_now(alias: str, backend: VTQueueBackend, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """A job more, also during a pause; its ticks stay as they are."""
    declare(every=60, name="minute")
    look(worker())
    control.pause("minute", "ann", alias)
    result = control.run_now(schedule(alias), alias)
    assert str(Job.objects.using(alias).get().pk) == result.id
    row = schedule(alias)
    assert (to_instant(row.next_at or 0), len(row.recent)) == (at(FIRST), 1)


def test_the_ends_of_jobs_are_noted(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """A done job is pruned one day; how long it ran stays in the row of its schedule."""
    declare(every=60, name="minute")
    part = worker()
    look(part)
    for number in range(3):
        time.instant = at(FIRST + 60 * number)
        look(part)
    last = Job.objects.using(alias).order_by("-due_at")[0].pk
    finish(alias)
    letter = Job.objects.using(alias).order_by("due_at").first()
    assert letter is not None
    DeadLetter.objects.using(alias).create(
        pk=letter.pk,
        queue_name="default",
        max_attempts=1,
        lease_us=1,
        enqueued_at=START,
        started_at=START,
        died_at=at(5),
    )
    letter.delete()
    assert firing.note_ends(part.engine, "minute", time()) is False
    Job.objects.using(alias).all().delete()
    assert [(run["id"], run["state"], run["ran"]) for run in schedule(alias).recent[:1]] == [
        (last.hex, "done", 2_000_000)
    ]
    assert [run["state"] for run in schedule(alias).recent] == ["done", "done", "dead"]


def test_a_run_has_the_state_that_lists_say(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """One that a limit holds up is parked, one that was to start by now has expired; neither is "scheduled"."""
    declare(every=60, name="minute")
    look(part := worker())
    for number in range(3):
        time.instant = at(FIRST + 60 * number)
        look(part)
    parked, late, _ = Job.objects.using(alias).order_by("due_at")
    Job.objects.using(alias).filter(pk=parked.pk).update(concurrency_key="k", state="BLOCKED", wake_at=LAST)
    Job.objects.using(alias).filter(pk=late.pk).update(start_by=late.due_at)
    [listed] = control.listed(alias)
    assert [run["state"] for run in listed.runs] == ["due", "expired", "blocked"]


def test_a_worker_notes_the_end_of_what_it_has_published(
    alias: str, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """It looks each minute, until it knows all ends; without it a weekly job's length would be gone a day later."""
    declare(every=86_400, name="day")
    look(part := worker())
    time.instant = to_instant(schedule(alias, "day").next_at or 0)
    look(part)
    assert part.next_at() <= monotonic() + 60
    part._ends_at = 0.0
    part.keep()
    assert part.next_at() <= monotonic() + 60
    finish(alias)
    part._ends_at = 0.0
    part.keep()
    assert [run["state"] for run in schedule(alias, "day").recent] == ["done"]
    assert part.next_at() > monotonic() + 60


def test_a_damaged_row(
    alias: str, worker: Worker, declare: Declare, time: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever was edited by hand, the others are run, and the worker goes on."""
    declare(every=60, name="minute")
    look(part := worker())
    right = {"payload": '{"args": [], "kwargs": {}}', "recent": "[]", "expression": "* * * * *", "time_zone": "UTC"}
    for column in (*right, "missed"):
        values = {**right, "missed": "one", column: "}{"}
        row = {"task_path": report.module_path, "expression": "every 60", "next_at": at(FIRST)}
        Schedule.objects.using(alias).create(name=column, **row)
        with connections[alias].cursor() as cursor:
            columns = ", ".join(f"{name} = %s" for name in values)
            cursor.execute(f"UPDATE vtqueue_schedule SET {columns} WHERE name = %s", [*values.values(), column])
    for number in range(2):
        time.instant = at(FIRST + 60 * number)
        look(part)
    assert {0, 60} <= {*ticks(alias)}
    assert schedule(alias).recent[0]["at"] == at(FIRST + 60)
    assert "schedule 'payload': its job cannot be published" in caplog.text
    assert "schedule 'time_zone': There is no time zone" in caplog.text


def test_an_unknown_time_zone_is_told_once(
    alias: str, worker: Worker, declare: Declare, time: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that reads the table again and again logs a reason once, and runs the schedule when it is gone."""
    declare(every=60, name="minute")
    look(part := worker())
    row = {"task_path": report.module_path, "expression": "* * * * *", "next_at": at(FIRST), "payload": CALL}
    Schedule.objects.using(alias).create(name="far", time_zone="Nowhere/Nope", **row)
    for second in range(5):
        time.instant = at(FIRST + second)
        look(part)
    [told] = [record for record in caplog.records if "schedule 'far'" in record.getMessage()]
    assert told.levelname == "WARNING"
    assert schedule(alias, "far").next_at == from_instant(at(FIRST))
    Schedule.objects.using(alias).filter(name="far").update(time_zone="UTC")
    look(part)
    assert ticks(alias) == [0, 0]


def test_a_fault_of_ours_stops_no_jobs(
    alias: str, worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and schedules are looked at again a minute later."""
    part = worker()
    monkeypatch.setattr("django_vtqueue.worker.schedules.write_down", None)
    look(part)
    assert "schedules: TypeError" in caplog.text
    assert monotonic() + 50 < part.next_at() < monotonic() + 70


def test_nothing_is_read_where_there_is_nothing_to_do(
    alias: str, worker: Worker, django_assert_num_queries: Any
) -> None:
    """Without schedules the table is read once after a change, and not again until there was another one."""
    part = worker()
    look(part)
    with django_assert_num_queries(0, connection=connections[alias]):
        for _ in range(10):
            part.keep()
    part._read_at = 0.0
    with django_assert_num_queries(1, connection=connections[alias]):
        for _ in range(10):
            part.keep()


def test_inside_a_transaction(
    alias: str, backend: VTQueueBackend, worker: Worker, declare: Declare, time: FakeClock
) -> None:
    """In a TestCase, or where a project runs things by itself, what was published is rolled back with the rest."""
    declare(every=60, name="minute")
    look(worker())
    with transaction.atomic(using=alias):
        control.run_now(schedule(alias), alias)
        transaction.set_rollback(True, using=alias)
    assert ticks(alias) == []
    assert schedule(alias).recent == []


def test_a_tick_waits_for_the_tables(alias: str, worker: Worker, declare: Declare, time: FakeClock) -> None:
    """While the tables are of another version, as in a deploy, no tick is left out: it is run afterwards."""
    declare("* * * * *", name="minute", tz="UTC")
    look(part := worker())
    with connections[alias].cursor() as cursor:
        cursor.execute("ALTER TABLE vtqueue_job RENAME COLUMN payload TO payload_x")
    time.instant = at(FIRST)
    with pytest.raises(DatabaseError, match="if that is of the queue's tables, run: python manage"):
        look(part)
    with connections[alias].cursor() as cursor:
        cursor.execute("ALTER TABLE vtqueue_job RENAME COLUMN payload_x TO payload")
    look(part)
    assert ticks(alias) == [0]
