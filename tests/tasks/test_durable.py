"""Durable tasks: what is done in steps is kept, and a job that waits goes on where it was."""

import asyncio
import copy
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction
from django.test import TestCase
from pytest_django import Settings

from django_vtqueue import (
    Queue,
    Retry,
    Snooze,
    TaskResultStatus,
    asend_event,
    call,
    control,
    requeue,
    send_event,
    testing,
)
from django_vtqueue.core import steps
from django_vtqueue.exceptions import PayloadTooLarge
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks.compat import task_finished
from django_vtqueue.tasks.ledger import Ledger
from tests.pending import run_pending
from tests.project import durable, tasks
from tests.project.broken import BROKEN
from tests.project.durable import CODE, DAY
from tests.project.models import Effect
from tests.waiting import PATIENCE

pytestmark = pytest.mark.django_db


def effects() -> dict[str, int]:
    return dict(Effect.objects.values_list("name", "value"))


def job() -> Job:
    return Job.objects.latest("pk")


def letter() -> DeadLetter:
    return DeadLetter.objects.latest("died_at")


def waiting() -> steps.Waiting | None:
    return steps.read(job().steps).waiting


def run(code: Callable[[Any], Any]) -> Any:
    """Have a task do something; return the result of its only execution."""
    enqueued(code)
    [result] = run_pending()
    return result


def enqueued(code: Callable[[Any], Any]) -> None:
    CODE["run"] = code
    durable.changed_code.enqueue()


@pytest.mark.parametrize("order", [durable.order, durable.aorder], ids=["sync", "async"])
def test_an_order_of_two_weeks(order: Any) -> None:
    """charge, wait for the shipment, mail two weeks later: each once, in one second of a test."""
    result = order.enqueue(7)
    run_pending()
    assert effects() == {"charge": 1}
    assert (job().state, job().attempts, job().lease_until, job().worker_id) == ("WAITING", 0, None, "")
    assert send_event(result.id, "shipped", {"parcel": 5})
    *_, last = run_pending(until=15 * DAY)
    assert last.return_value == [[1, 2], {"parcel": 5}]
    assert effects() == {"charge": 1, "mail": 1}
    assert [(record["kind"], record["name"]) for record in job().steps["done"]] == [
        ("step", "charge"),
        ("event", "shipped"),
        ("sleep", "two weeks"),
        ("step", "mail"),
    ]


def test_an_event_that_does_not_come() -> None:
    """After its time wait_for returns None, and the task goes on."""
    durable.order.enqueue(7)
    results = run_pending(until=18 * DAY)
    assert [result.status for result in results] == [TaskResultStatus.READY] * 2 + [TaskResultStatus.SUCCESSFUL]
    assert results[-1].return_value == [[1, 2], None]


@pytest.mark.parametrize(("value", "shipped"), [((), None), ((True,), True)])
def test_an_event_without_a_value(value: tuple[Any, ...], shipped: Any) -> None:
    """It wakes the job, but for the task it is as if it had not come in time: so an event has a value, True say."""
    result = durable.order.enqueue(7)
    run_pending()
    assert send_event(result.id, "shipped", *value)
    assert run_pending(until=15 * DAY)[-1].return_value == [[1, 2], shipped]


def test_a_waiting_job(settings: Settings) -> None:
    """It has used no attempt, holds nothing, keeps its unique key, and task_finished is not sent for it."""
    finished = []

    def receiver(task_result: Any, **_: Any) -> None:
        finished.append(task_result.id)

    task_finished.connect(receiver)
    try:
        result = durable.order.enqueue(7)
        run_pending()
        assert durable.order.enqueue(7).duplicate
    finally:
        task_finished.disconnect(receiver)
    found = durable.order.get_result(result.id)
    assert (found.status, found.attempts, found.errors, finished) == (TaskResultStatus.READY, 0, [], [])
    assert (waiting() or [])[:2] == ("event", "shipped")


class AsyncTest(TestCase):
    async def test_an_event_from_async_code(self) -> None:
        """asend_event does what send_event does, there; by the id, or by the unique key."""
        result = await durable.order.aenqueue(7)
        await testing.arun_pending()
        assert await asend_event(result.id, "shipped", 5)
        assert await asend_event(unique_key="order:7", name="other")
        assert not await asend_event(unique_key="order:8", name="shipped")
        *_, last = await testing.arun_pending(until=15 * DAY)
        assert last.return_value == [[1, 2], 5]
        with pytest.raises(ValueError, match="is no id of a job"):
            await asend_event("7", "shipped")


def test_events_that_come_before() -> None:
    """They are kept, and taken in their order."""
    result = durable.order.enqueue(7)
    assert send_event(result.id, "shipped", "first")
    assert send_event(result, "shipped", "second")
    *_, last = run_pending(until=15 * DAY)
    assert last.return_value[1] == "first"
    assert [event["value"] for event in job().steps["events"]] == ["second"]


def test_events_by_unique_key() -> None:
    """An event can be sent to the unique key of an unfinished job."""
    durable.order.enqueue(7)
    run_pending()
    assert send_event(unique_key="order:7", name="shipped", value=True)
    assert not send_event(unique_key="order:8", name="shipped")
    assert not send_event(unique_key="order:7", queue_name="other", name="shipped")
    *_, last = run_pending(until=15 * DAY)
    assert last.return_value[1] is True


def test_events_without_a_job() -> None:
    """To what is done, dead or unknown no event is sent, and the sender is told."""
    result = durable.order.enqueue(7)
    run_pending(until=18 * DAY)
    assert not send_event(result.id, "shipped")
    assert not send_event("0" * 32, "shipped")
    [raw] = [Queue("q").publish("x")]
    assert not send_event(raw, "shipped")


def test_an_event_in_a_transaction() -> None:
    """What is rolled back was not sent."""
    result = durable.order.enqueue(7)
    run_pending()
    with transaction.atomic():
        assert send_event(result.id, "shipped")
        transaction.set_rollback(True)
    assert run_pending() == []


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"job_id": "x", "name": "e"}, ValueError, "'x' is no id of a job"),
        ({"name": "e"}, ValueError, "Give either the id of a job, or unique_key"),
        ({"job_id": "0" * 32, "name": ""}, ValueError, "The name of an event is a text"),
        ({"job_id": "0" * 32, "name": "e", "value": {1}}, TypeError, "value of event 'e' is not JSON"),
        ({"job_id": "0" * 32, "name": "e", "value": ["a", "\0"]}, TypeError, r"value\[1\] of event 'e' has a NUL"),
        ({"job_id": "0" * 32, "name": "e", "value": {"\ud800": 1}}, TypeError, "half of a surrogate pair, which"),
        ({"unique_key": "a\0b", "name": "e"}, ValueError, "A unique key has 1 to 255 characters"),
        ({"unique_key": 7, "name": "e"}, TypeError, "A unique key is a text"),
        ({"unique_key": "k", "queue_name": 7, "name": "e"}, ValueError, "A queue's name is a text"),
    ],
)
def test_what_is_no_event(arguments: Any, error: type[Exception], says: str) -> None:
    """What cannot be sent is refused in the sender."""
    with pytest.raises(error, match=says):
        send_event(**arguments)


@pytest.mark.parametrize("transactional", [False, True])
def test_steps_of_failed_attempts(transactional: bool) -> None:
    """A step that was made is not made again; one that raised is, and its writes are gone if it was transactional."""
    durable.fails_behind.enqueue(transactional)
    *_, last = run_pending()
    assert last.return_value == 3
    assert effects() == {"first": 1, "second": 1 if transactional else 2}


def test_changed_names() -> None:
    """A step of another name, kind or order than the stored one makes a dead letter that says it; nothing runs."""
    for code in (
        lambda context: context.step("other", durable.note, "other"),
        lambda context: context.sleep("one", 5),
        lambda context: (context.step("two", durable.note, "two"), context.step("one", durable.note, "one")),
    ):

        def first(context: Any) -> None:
            context.step("one", durable.note, "one")
            raise ConnectionError

        run(first)
        CODE["run"] = code
        run_pending(until=DAY)
        assert letter().exception_class == "django_vtqueue.exceptions.DurableMismatch"
        assert letter().message.startswith("Step 1 of this task is step 'one' as it is stored, but its code asks for s")
        assert letter().steps["done"][0]["name"] == "one"
    assert effects() == {"one": 3}


@pytest.mark.parametrize("then", [None, ValueError(), Snooze(60)], ids=str)
def test_a_mismatch_that_the_task_catches(then: Exception | None) -> None:
    """It ends the job all the same: else what the task has done besides would be taken for the whole."""

    def first(context: Any) -> None:
        context.step("one", durable.note, "one")
        raise ConnectionError

    def changed(context: Any) -> str:
        with suppress(Exception):
            context.step("other", durable.note, "other")
        if then:
            raise then
        return "all is well"

    run(first)
    CODE["run"] = changed
    run_pending(until=DAY)
    assert letter().exception_class == "django_vtqueue.exceptions.DurableMismatch"
    assert (letter().attempts, "a failed step" in letter().traceback) == (2, False)
    assert effects() == {"one": 1}


def test_a_mismatch_in_a_task_group() -> None:
    """Asyncio wraps it in a group of exceptions; the job is a dead letter with it at once."""

    async def first(context: Any) -> None:
        await context.astep("one", durable.note, "one")
        raise ConnectionError

    async def changed(context: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(context.astep("other", durable.note, "other"))

    CODE["run"] = first
    durable.achanged_code.enqueue()
    run_pending()
    CODE["run"] = changed
    run_pending(until=DAY)
    assert letter().exception_class == "django_vtqueue.exceptions.DurableMismatch"
    assert letter().attempts == 2


def test_steps_that_are_made_while_a_call_is_prepared() -> None:
    """The children of a gather may be made of steps; a function may have any parameter; the context may be copied."""

    def code(context: Any) -> Any:
        copy.deepcopy(context)
        calls = (call(tasks.add, context.step(f"s{number}", int), 1) for number in range(2))
        return [child.return_value for child in context.gather("g", calls)]

    CODE["run"] = code
    durable.changed_code.enqueue()
    assert run_pending()[-1].return_value == [1, 1]

    async def acode(context: Any) -> Any:
        return await context.astep("one", dict, function=1, self=2)

    CODE["run"] = acode
    durable.achanged_code.enqueue()
    assert run_pending()[-1].return_value == {"function": 1, "self": 2}


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "grouped"])
@pytest.mark.parametrize("kind", ["sync", "async", "sleep"])
def test_calls_that_are_cancelled_while_they_wait_for_the_thread(kind: str, grouped: bool) -> None:
    """Whether it was made is not known: no step is made after it in this attempt, and the next one makes it first."""
    go = threading.Event()

    async def note() -> None:
        await sync_to_async(durable.note)("one")

    async def code(context: Any) -> None:
        busy = asyncio.ensure_future(sync_to_async(go.wait)(PATIENCE))
        await asyncio.sleep(0)  # the thread is taken from now on
        asyncio.get_running_loop().call_later(0.1, go.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if go.is_set() else 0.01):
                if kind == "sleep":
                    await context.asleep("one", 0)
                else:
                    await context.astep("one", note if kind == "async" else durable.note, *["one"] * (kind == "sync"))
        await busy
        if not grouped:
            await context.astep("two", durable.note, "two")
        async with asyncio.TaskGroup() as group:  # which takes no notice of a task that was cancelled
            group.create_task(context.astep("two", durable.note, "two"))

    CODE["run"] = code
    durable.achanged_code.enqueue()
    [result] = run_pending()
    assert result.status == "READY"
    assert "two" not in effects()


@pytest.mark.parametrize("kind", ["transactional", "gather"])
def test_calls_that_are_cancelled_while_they_are_stored(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """What is stored all the same is whole: in the next attempt nothing is made again."""
    storing, go, write = threading.Event(), threading.Event(), Ledger.write

    def slowly(self: Ledger, event: int | None = None) -> None:
        if not storing.is_set():
            storing.set()
            assert go.wait(PATIENCE)
        write(self, event)

    async def make(context: Any) -> Any:
        if kind == "transactional":
            return await context.astep("one", durable.note, "one", transactional=True)
        return len(await context.agather("all", [call(tasks.add, 1, 2)]))

    async def code(context: Any) -> Any:
        made = asyncio.ensure_future(make(context))
        if context.attempt == 1:
            while not storing.is_set():
                await asyncio.sleep(0.01)
            made.cancel()
            asyncio.get_running_loop().call_later(0.1, go.set)
            with suppress(asyncio.CancelledError):
                await made
            await sync_to_async(int)()  # behind it, in the same thread
            raise ConnectionError
        return await made

    monkeypatch.setattr(Ledger, "write", slowly)
    CODE["run"] = code
    durable.achanged_code.enqueue()
    *_, last = run_pending(until=DAY)
    assert (last.status, last.attempts) == ("SUCCESSFUL", 2)
    assert effects() == ({"one": 1} if kind == "transactional" else {})
    assert Job.objects.filter(task_path=tasks.add.module_path).count() == (kind == "gather")


@pytest.mark.parametrize("kind", ["hollow", "stop"])
def test_steps_that_raise_what_is_no_common_exception(kind: str) -> None:
    """One that is false, or that no coroutine can raise, ends the attempt as any other; no step is made after it."""

    def fail() -> None:
        raise BROKEN[kind]

    async def afail() -> None:
        raise BROKEN[kind]

    def code(context: Any) -> None:
        with suppress(Exception):
            context.step("one", fail)
        context.step("two", durable.note, "two")

    assert "a failed step ends the attempt" in run(code).errors[0].traceback

    for function in (fail, afail):

        async def acode(context: Any, function: Any = function) -> None:
            with suppress(Exception):
                await context.astep("one", function)
            await context.astep("two", durable.note, "two")

        CODE["run"] = acode
        durable.achanged_code.enqueue()
        [result] = run_pending()
        assert (result.status, len(result.errors)) == ("READY", 1)
        assert "a failed step ends the attempt" in result.errors[0].traceback
    assert effects() == {}


def test_after_its_time_a_wait_returns_what_it_was_told_to() -> None:
    """Also in a later attempt, while an event without a value is None: a task can tell one from the other."""
    default = "none has come"

    def wait(context: Any) -> tuple[Any, Any]:
        found = context.wait_for("said", default=default), context.wait_for("unsaid", timeout=60, default=default)
        context.sleep("nap", 60)
        return found

    result = run(wait)
    send_event(result.id, "said")
    run_pending(until=DAY)
    result.refresh()
    assert result.return_value == [None, default]


def test_changed_waits() -> None:
    """A job that waits for something else than its code asks for now is a mismatch, too."""
    run(lambda context: context.sleep("nap", 60))
    CODE["run"] = lambda context: context.wait_for("nap")
    run_pending(until=DAY)
    assert letter().exception_class == "django_vtqueue.exceptions.DurableMismatch"


def test_damaged_steps() -> None:
    """What cannot be read makes a dead letter, whoever writes to it meanwhile."""
    run(lambda context: context.sleep("nap", 60))
    for text in ("{", '{"done": 1}', "[1]", '{"done": [1]}'):
        Job.objects.update(steps=Job._meta.get_field("steps").to_python(text))
        send_event(job().pk, "nap")
        run_pending(until=DAY)
        assert letter().message.startswith("The stored steps"), letter().message
        requeue(letter().pk)


def test_requeued() -> None:
    """A dead letter keeps the steps, and goes on behind them when it is requeued."""

    def code(context: Any) -> int:
        context.step("one", durable.note, "one")
        return 1 // CODE["divisor"]

    CODE["divisor"] = 0
    run(code)
    while Job.objects.exists():
        run_pending(until=10 * DAY)
    CODE["divisor"] = 1
    requeue(letter().pk)
    [result] = run_pending()
    assert (result.return_value, effects()) == (1, {"one": 1})


def test_cancelled_while_it_waits() -> None:
    """A waiting job that is cancelled ends at once."""
    result = durable.order.enqueue(7)
    run_pending()
    control.cancel(result.id)
    assert letter().steps["waiting"]["name"] == "shipped"
    assert not send_event(result.id, "shipped")


def test_cancelled_before_it_waits() -> None:
    """One that was asked to stop does not begin to wait."""

    def code(context: Any) -> None:
        control.cancel(context.task_result.id)
        context.sleep("nap", 60)

    assert run(code).status == TaskResultStatus.FAILED


def test_swallowed() -> None:
    """except Exception does not swallow a wait; where all is swallowed the job waits all the same, without steps."""

    def polite(context: Any) -> None:
        try:
            context.sleep("nap", 60)
        except Exception:
            durable.note("swallowed")

    def rude(context: Any) -> None:
        with suppress(BaseException):
            context.sleep("nap", 60)
        with suppress(BaseException):
            context.step("no", durable.note, "no")

    for code in (polite, rude):
        assert run(code).status == TaskResultStatus.READY
        assert (waiting() or [])[:2] == ("sleep", "nap")
    assert effects() == {}


def test_an_event_while_it_is_about_to_wait() -> None:
    """The wake-up is not lost if the event comes after the task has looked, and before the wait is stored."""

    def code(context: Any) -> Any:
        try:
            return context.wait_for("go")
        except BaseException:
            send_event(context.task_result.id, "go", 5)
            raise

    CODE["run"] = code
    durable.changed_code.enqueue()
    assert [result.status.value for result in run_pending()] == ["READY", "SUCCESSFUL"]


REFUSED = [
    (lambda context: context.step("one", lambda: {1}), "StepError", "Step 'one': Unsupported type: set"),
    (lambda context: context.step("", len), "StepError", "The name of a step is a text of 1 to 255 characters"),
    (lambda context: context.step("a", "b"), "StepError", "Step 'a' takes a function, and its arguments"),
    (lambda context: context.gather("a", None), "StepError", "gather 'a' takes a list of call(task, …)"),
    (lambda context: context.gather("a", call(durable.child, "b")), "StepError", "gather 'a' takes a list of call("),
    (lambda context: context.step("a", context.step, "b", int), "StepError", "step 'b' was asked for inside step 'a'"),
    (lambda context: context.step("a", context.sleep, "b", 1), "StepError", "sleep 'b' was asked for inside step 'a'"),
    (
        lambda context: context.step("a", "x".__mul__, 2000),
        "StepsTooLarge",
        "max_steps_bytes allows 1,000. Return less",
    ),
]


@pytest.mark.parametrize(("code", "kind", "says"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(settings: Settings, code: Any, kind: str, says: str) -> None:
    """What a durable task may not do ends it, in words that help."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"max_steps_bytes": 1000}}}
    assert run(code).status == TaskResultStatus.FAILED
    assert letter().exception_class == f"django_vtqueue.exceptions.{kind}"
    assert says in letter().history[-1]["message"]


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (durable.in_a_block, "inside a transaction of database 'default'"),
        (durable.wholly_transactional, "A task with transactional=True"),
    ],
    ids=["atomic", "transactional"],
)
def test_transactions_do_not_wait(task: Any, says: str) -> None:
    """Neither a transactional task nor a block of transaction.atomic makes steps or waits."""
    task.enqueue()
    run_pending()
    assert says in letter().history[-1]["message"]


def test_a_failed_step_that_is_caught() -> None:
    """The attempt fails with what the step raised, for the task must not go on to other steps."""

    def code(context: Any) -> None:
        try:
            context.step("one", lambda: 1 // 0)
        except ZeroDivisionError:
            context.step("two", durable.note, "two")

    result = run(code)
    assert (result.status, effects()) == (TaskResultStatus.READY, {})
    assert "a failed step ends the attempt" in result.errors[0].traceback


def test_own_keyword() -> None:
    """A function with a parameter called transactional cannot be given it by mistake."""

    def own(transactional: bool = False) -> None: ...

    result = run(lambda context: context.step("one", own, transactional=True))
    assert "has a parameter of its own that is called transactional" in result.errors[0].traceback


def test_sync_calls_in_async_tasks() -> None:
    """They are refused, and the text has the right one."""

    async def code() -> None:
        context.step("one", int)

    def outer(given: Any) -> None:
        nonlocal context
        context = given
        asyncio.run(code())

    context: Any = None
    assert "await context.astep(…)" in run(outer).errors[0].traceback


def test_async_steps_beside_each_other() -> None:
    """They are refused, for their order would not be the same twice."""
    durable.abeside.enqueue()
    run_pending()
    assert "was asked for inside step 'a', or beside it" in letter().history[-1]["message"]


def test_steps_of_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two calls at once one is refused, also while the other one still reads what is stored."""
    reading, go = threading.Event(), threading.Event()

    def read_slowly(self: Ledger) -> Any:
        reading.set()
        assert go.wait(PATIENCE)
        raise ConnectionError

    def code(context: Any) -> None:
        def other() -> None:
            with suppress(ConnectionError):
                context.step("a", durable.note, "a")

        thread = threading.Thread(target=other)
        thread.start()
        try:
            assert reading.wait(PATIENCE)
            context.step("b", durable.note, "b")
        finally:
            go.set()
            thread.join()

    monkeypatch.setattr(Ledger, "_read", read_slowly)
    assert "step 'b' was asked for inside step 'a', or beside it" in run(code).errors[0].traceback


def test_a_wait_in_a_task_group() -> None:
    """Asyncio wraps what leaves the task in a group of exceptions; it waits all the same, and uses no attempt."""
    durable.in_a_task_group.enqueue()
    [result] = run_pending()
    assert (result.status, job().attempts, job().history, (waiting() or [])[:2]) == ("READY", 0, [], ("sleep", "nap"))
    assert run_pending(until=DAY)[-1].return_value == "slept"


def test_too_large_an_event(settings: Settings) -> None:
    """An event that the job has no room for is refused in the sender, and changes nothing."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"max_steps_bytes": 1000}}}
    result = durable.order.enqueue(7)
    with pytest.raises(PayloadTooLarge, match="max_steps_bytes allows 1,000"):
        send_event(result.id, "shipped", "x" * 1000)
    assert job().steps is None


def test_what_was_kept_is_not_replaced(settings: Settings) -> None:
    """A sleep of seconds, in numbers, is over after them; steps wait for no clock."""
    run(lambda context: (context.sleep("nap", 30), context.step("one", durable.note, "one")))
    assert run_pending(until=timedelta(seconds=29)) == []
    [result] = run_pending(until=timedelta(seconds=31))
    assert result.status == TaskResultStatus.SUCCESSFUL


def test_snooze() -> None:
    """A job that is put off uses no attempt, however often; nothing of it is in the history."""
    durable.put_off.enqueue(5)
    *others, last = run_pending(until=timedelta(minutes=6))
    assert (len(others), last.return_value, last.attempts) == (5, 1, 1)
    assert (job().history, job().steps, job().start_by) == ([], None, None)


@pytest.mark.parametrize("until", [None, timedelta(hours=1)])
def test_a_snooze_for_ever(monkeypatch: pytest.MonkeyPatch, until: timedelta | None) -> None:
    """A test whose task puts itself off to now, again and again, fails, and says what to do."""
    monkeypatch.setattr(testing, "MOST_SNOOZES", 20)

    def wait(context: Any) -> None:
        durable.note("asked")
        raise Snooze(0)

    enqueued(wait)
    with pytest.raises(RuntimeError, match=r"changed_code .* has put itself off 20 times .*run_pending\(until="):
        run_pending(until=until)
    assert effects() == {"asked": 21}


def test_snooze_of_raw_jobs() -> None:
    """A claimed job is put off by release, and by Snooze in a handler; no attempt is used."""
    queue, stop, handled = Queue("raw"), threading.Event(), []
    queue.publish("x", max_attempts=1)
    queue.claim().release(timedelta(seconds=-1))  # type: ignore[union-attr]

    def handle(claimed: Any) -> None:
        handled.append(claimed.attempt)
        if len(handled) < 3:
            raise Snooze(0)
        stop.set()

    queue.run(handle, stop=stop)
    assert (handled, job().state) == ([1, 1, 1], "SUCCESSFUL")
    queue.publish("y", max_attempts=1)
    queue.claim().release(job().enqueued_at + DAY)  # type: ignore[union-attr]
    assert (job().due_at, job().attempts, queue.claim()) == (job().enqueued_at + DAY, 0, None)


def test_a_retry_after_a_time() -> None:
    """What is taken for the seconds, but is the message, is refused with what to say."""
    with pytest.raises(ValueError, match=r"a message, not 60: say Retry\(delay="):
        Retry(60)  # type: ignore[arg-type]


@pytest.mark.parametrize("until", ["x", None, True, float("nan"), float("inf")])
def test_what_is_no_snooze(until: Any) -> None:
    """Anything but a duration or a moment is refused where it is raised."""
    with pytest.raises(ValueError, match="Snooze takes seconds, a timedelta or a datetime, not"):
        Snooze(until)


def test_two_families_that_hold_each_others_key() -> None:
    """Each parent waits for a child behind the other parent, until one of them is cancelled."""
    other = {"a": "b", "b": "a"}
    CODE["run"] = lambda context: context.gather(
        "all", [call(durable.ordered_child, other[context.task_result.args[0]])]
    )
    parents = {name: durable.ordered_parent.enqueue(name) for name in other}
    run_pending(until=timedelta(days=3))
    assert {durable.ordered_parent.get_result(parent.id).status for parent in parents.values()} == {"READY"}
    control.cancel([parents["a"].id])
    run_pending(until=timedelta(days=6))
    assert durable.ordered_parent.get_result(parents["b"].id).status == "SUCCESSFUL"
