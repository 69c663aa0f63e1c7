"""Durable tasks that do many things: children that run beside each other, and loops that go on where they were."""

from typing import Any

import pytest
from django.db.models import F
from pytest_django import Settings

from django_vtqueue import TaskResultStatus, call, control, requeue, send_event
from django_vtqueue.core import history
from django_vtqueue.core.clock import SECOND, to_instant
from django_vtqueue.engines import engine_for
from django_vtqueue.models import DeadLetter, Job
from tests.pending import run_pending
from tests.project import durable
from tests.project.durable import CODE, DAY
from tests.project.models import Effect

from .test_durable import effects, job, letter, run, waiting

pytestmark = pytest.mark.django_db


def parent() -> Job:
    return Job.objects.filter(parent_id=None).latest("pk")


def gathered(*calls: Any) -> Any:
    """Have a task gather children to its end; return what it got."""
    found = []

    def code(context: Any) -> None:
        found[:] = context.gather("all", calls)

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending(until=DAY)
    return found


# -- children ---------------------------------------------------------------------------------------------------------


def test_gather() -> None:
    """It returns the results of all children in order, also of one that failed, when all of them have ended."""
    first, second, third = gathered(
        call(durable.child, "a"), call(durable.failing_child, name="b"), call(durable.child.using(priority=5), "c")
    )
    assert (first.return_value, third.return_value) == ("aa", "cc")
    assert (first.status, second.status) == (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)
    assert second.errors[0].exception_class_path == "builtins.ConnectionError"
    assert (second.kwargs, third.args, third.task.priority) == ({"name": "b"}, ["c"], 5)
    assert effects() == {"a": 1, "b": 1, "c": 1}
    assert parent().state == "SUCCESSFUL"


def test_gather_of_none() -> None:
    """No children have all ended."""
    assert gathered() == []
    assert parent().state == "SUCCESSFUL"


def test_gather_async() -> None:
    """The same in an async task."""
    durable.agathers.enqueue(["x", "y"])
    assert run_pending()[-1].return_value == ["xx", "yy"]


def test_children_are_kept_until_they_are_read(settings: Settings) -> None:
    """The result of a child outlives its result_ttl as long as the parent has not read it, and no longer."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"result_ttl": 0}}}
    later = durable.child.using(run_after=3 * DAY)
    CODE["run"] = lambda context: context.gather("all", [call(durable.child, "a"), call(later, "b")]) and None
    durable.changed_code.enqueue()
    run_pending(until=DAY)
    [child] = Job.objects.filter(state="SUCCESSFUL")
    assert child.kept_until > child.finished_at + 80 * DAY  # type: ignore[operator]
    run_pending(until=4 * DAY)
    assert {each.kept_until - each.finished_at for each in Job.objects.all() if each.parent_id} != set()
    assert not Job.objects.filter(kept_until__gt=F("finished_at") + 4 * DAY).exists()


def test_dead_children_are_kept_until_they_are_read(settings: Settings) -> None:
    """Their parent learns how they failed, however short their queue keeps dead letters."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"dead_letter_ttl": 60}}}
    later = durable.child.using(run_after=3 * DAY)
    CODE["run"] = lambda context: [
        error.exception_class_path
        for result in context.gather("all", [call(durable.failing_child, "a"), call(later, "b")])
        for error in result.errors
    ]
    durable.changed_code.enqueue()
    run_pending()
    died_at = to_instant(letter().died_at)
    engine_for("default").prune(died_at + 61 * SECOND, 100)
    assert run_pending(until=4 * DAY)[-1].return_value == ["builtins.ConnectionError"]
    assert to_instant(letter().kept_until or 0) < died_at + 3 * 86_400 * SECOND + 120 * SECOND  # it was read then


def test_children_are_enqueued_once() -> None:
    """Neither a failure behind them nor their being looked at enqueues them again; results are kept with the parent."""

    def code(context: Any) -> list[Any]:
        results = context.gather("all", [call(durable.child, "a")])
        if context.attempt < 3:
            Job.objects.exclude(parent_id=None).delete()
            raise ConnectionError
        return [result.return_value for result in results]

    CODE["run"] = code
    durable.changed_code.enqueue()
    assert run_pending(until=DAY)[-1].return_value == ["aa"]
    assert effects() == {"a": 1}


def test_a_child_that_vanishes() -> None:
    """A parent looks again by itself: a deleted child has failed, so far as is known."""
    later = durable.child.using(run_after=30 * DAY)
    CODE["run"] = lambda context: [str(each.status) for each in context.gather("all", [call(later, "a")])]
    durable.changed_code.enqueue()
    run_pending()
    Job.objects.exclude(parent_id=None).delete()
    assert run_pending() == []
    assert run_pending(until=DAY)[-1].return_value == ["FAILED"]


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        ([call(durable.unique_child)], "has a unique_key, so it cannot be a child"),
        ([durable.child], "takes a list of call(task, …)"),
    ],
)
def test_what_is_no_child(calls: list[Any], says: str) -> None:
    """What cannot be a child ends the parent, in words that help, and nothing is enqueued."""
    gathered(*calls)
    assert says in letter().history[-1]["message"]
    assert not Job.objects.exists()


def test_call_takes_tasks() -> None:
    """What is no task is refused where it is written."""
    with pytest.raises(TypeError, match="call takes a task"):
        call(durable.note, "x")  # type: ignore[arg-type]


def test_other_calls_than_before() -> None:
    """A number of calls other than the stored one is a mismatch."""
    count = iter([1, 2])

    def code(context: Any) -> None:
        context.gather("all", [call(durable.child, "a")] * next(count))

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending()
    assert letter().exception_class == "django_vtqueue.exceptions.DurableMismatch"


def test_cancelled_with_its_children() -> None:
    """Who cancels a waiting parent cancels its unfinished children, and theirs."""
    later = durable.child.using(run_after=DAY)
    run(lambda context: context.gather("all", [call(later, "a"), call(later, "b")]))
    control.cancel(parent().pk, by="anna")
    assert not Job.objects.exists()
    assert {each.message for each in DeadLetter.objects.all()} == {"Cancelled by anna."}


def test_cancelled_before_it_has_children() -> None:
    """A task that was asked to stop enqueues no children any more: the request would not reach them."""

    def code(context: Any) -> None:
        control.cancel([context.task_result.id])
        context.gather("all", [call(durable.child, "a")])

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending()
    assert (effects(), Job.objects.count()) == ({}, 0)
    assert letter().exception_class == "django_vtqueue.exceptions.Cancelled"


def test_more_children_than_results_are_kept_of(settings: Settings) -> None:
    """They are refused before they run, not when all have run; as many as are allowed can be kept."""
    settings.TASKS["default"]["OPTIONS"] = {"max_steps_bytes": 22_000}
    settings.TASKS = dict(settings.TASKS)
    for count, status in ((100, "FAILED"), (99, "SUCCESSFUL")):
        calls = [call(durable.child, "four" * 3)] * count
        CODE["run"] = lambda context: [context.step("before", str, "x"), len(context.gather("all", calls))]  # noqa: B023
        result = durable.changed_code.enqueue()
        run_pending()
        result.refresh()
        assert (result.status, effects()) == (status, {} if status == "FAILED" else {"four" * 3: count})
    assert letter().exception_class == "django_vtqueue.exceptions.StepsTooLarge"
    assert "gather 'all' has 100 children; max_steps_bytes (22,000) allows 99 here." in letter().message


def test_no_child_waits_behind_its_parent() -> None:
    """A child that has the order key of its parent would never run, nor would its parent go on."""
    CODE["run"] = lambda context: context.gather("all", [call(durable.ordered_child, "7")])
    durable.ordered_parent.enqueue("7")
    run_pending(until=DAY, raise_errors=False)
    assert (effects(), Job.objects.count()) == ({}, 0)
    assert "it has the order_key 'customer:7' of its parent" in letter().message
    CODE["run"] = lambda context: context.gather("all", [call(durable.ordered_child, "8")])
    durable.ordered_parent.enqueue("7")
    run_pending(until=DAY)
    assert effects() == {"8": 1}


def test_a_grandchild_in_order_behind_its_grandparent() -> None:
    """It would wait for ever, as a child would; the job between them has no order."""

    def gather(context: Any) -> Any:
        ordered = context.task_result.args
        context.gather("all", [call(durable.changed_code) if ordered else call(durable.ordered_child, "7")])

    CODE["run"] = gather
    durable.ordered_parent.enqueue("7")
    run_pending(until=DAY)
    assert effects() == {}
    assert "it has the order_key 'customer:7' of its parent, or of an ancestor" in letter().message
    assert Job.objects.get().finished_at is not None


def test_a_child_that_is_requeued_later() -> None:
    """Its history says that the parent has gone on without it; while that waits, it says nothing, and is waited for."""
    later = durable.child.using(run_after=DAY)
    CODE["run"] = lambda context: [
        str(each.status) for each in context.gather("all", [call(durable.failing_child, "b"), call(later, "a")])
    ]
    durable.changed_code.enqueue()
    run_pending()
    requeue(letter().pk)
    [child] = Job.objects.filter(task_path=durable.failing_child.module_path)
    assert (child.history[-1]["outcome"], child.history[-1].get("message")) == ("requeued", None)
    assert run_pending(until=2 * DAY)[-1].return_value == ["FAILED", "SUCCESSFUL"]
    requeue(letter().pk)
    assert Job.objects.get(pk=child.pk).history[-1]["message"] == history.PARENT_WENT_ON


# -- loops ------------------------------------------------------------------------------------------------------------


def crashing(context: Any, source: Any, fatal: set[Any]) -> list[Any]:
    """Loop over something; fail once at each of the items that are ``fatal``."""
    seen = []
    for item in context.iterate("items", source):
        name = getattr(item, "name", item)
        context.step("note", durable.note, f"{name}")
        if name in fatal:
            fatal.remove(name)
            raise ConnectionError
        seen.append(name)
    context.step("end", durable.note, "end")
    return seen


@pytest.mark.parametrize("source", [range(5), [0, 1, 2, 3, 4], (0, 1, 2, 3, 4)], ids=["range", "list", "tuple"])
def test_iterate(source: Any) -> None:
    """It goes on with the item at which it failed, whose steps are not made again."""
    fatal = {0, 3, 4}
    CODE["run"] = lambda context: crashing(context, source, fatal)
    durable.changed_code.enqueue()
    assert run_pending(until=DAY)[-1].return_value == [4]
    assert effects() == {**{str(item): 1 for item in range(5)}, "end": 1}
    assert [(record["name"], record.get("ended")) for record in job().steps["done"]] == [("items", True), ("end", None)]


def test_iterate_a_queryset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go by primary key, some at a time, whatever the order of the queryset is."""
    monkeypatch.setattr("django_vtqueue.tasks.rows.CHUNK", 2)
    for name in "edcba":
        Effect.objects.create(name=name, value=7)
    fatal = {"d", "b"}
    rows = Effect.objects.filter(value=7).order_by("name")
    seen = []

    def code(context: Any) -> None:
        for row in context.iterate("rows", rows):
            seen.append(row.name)
            if row.name in fatal:
                fatal.remove(row.name)
                raise ConnectionError

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending(until=DAY)
    assert seen == ["e", "d", "d", "c", "b", "b", "a"]


def test_iterate_async() -> None:
    """The same in an async task, with a wait in each item."""
    durable.awalks.enqueue(3)
    assert run_pending(until=DAY)[-1].return_value == [2]
    assert effects() == {f"item {item}": 1 for item in range(3)}


@pytest.mark.parametrize(("waits", "collected"), [(False, [0, 1, 2]), (True, [2])])
def test_what_a_loop_collects(waits: bool, collected: list[int]) -> None:
    """It is lost when the task is called again, as after a wait; nothing shows that where the task does not wait."""

    def code(context: Any) -> list[int]:
        found = []
        for item in context.iterate("items", range(3)):
            if waits:
                context.sleep("nap", 60)
            found.append(item)
        return found

    CODE["run"] = code
    durable.changed_code.enqueue()
    assert run_pending(until=DAY)[-1].return_value == collected


def test_a_loop_that_is_left() -> None:
    """``break`` leaves its item under way: what stands between its steps runs each time, its steps do not."""
    between = []

    def code(context: Any) -> None:
        for item in context.iterate("items", range(4)):
            context.step("note", durable.note, f"item {item}")
            between.append(item)
            if item == 1:
                break
        for name in ("nap", "another nap"):
            context.sleep(name, 60)
        context.step("end", durable.note, "end")

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending(until=DAY)
    assert between == [0, 1, 1, 1]
    assert effects() == {"item 0": 1, "item 1": 1, "end": 1}


def test_loops_in_loops() -> None:
    """A loop inside of another one begins anew with each item of that."""
    seen = []

    def code(context: Any) -> None:
        for outer in context.iterate("outer", range(2)):
            for inner in context.iterate("inner", "xy"):
                seen.append(f"{outer}{inner}")
                if seen in (["0x"], ["0x", "0x", "0y"]):
                    raise ConnectionError

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending(until=DAY)
    assert seen == ["0x", "0x", "0y", "0y", "1x", "1y"]


def test_loops_beside_each_other() -> None:
    """Each would forget where the other is, so that is refused before an item is done twice, or with another one."""

    def code(context: Any) -> list[Any]:
        return list(zip(context.iterate("a", range(3)), context.iterate("b", range(3)), strict=True))

    assert run(code).status == "FAILED"
    assert "iterate 'b': another loop, which began before it, has gone on" in letter().message


@pytest.mark.parametrize("deleted", [False, True], ids=["filtered", "deleted"])
def test_an_item_under_way_that_is_gone(deleted: bool) -> None:
    """Its steps are not taken for those of the next item; it is said how to go on with that."""
    for name in "abc":
        Effect.objects.create(name=name, value=0)
    sent: list[str] = []

    def ship(row: Effect) -> None:
        sent.append(row.name)
        rows = Effect.objects.filter(pk=row.pk)
        rows.delete() if deleted else rows.update(value=1)

    def code(context: Any) -> None:
        for row in context.iterate("rows", Effect.objects.filter(value=0)):
            context.step("ship", ship, row)
            if row.name == "b" and CODE.pop("fails", None):
                raise ConnectionError

    CODE.update(run=code, fails=True)
    durable.changed_code.enqueue()
    run_pending(until=DAY)
    assert sent == ["a", "b"]
    assert letter().exception_class.endswith("DurableMismatch")
    assert "The loop 'rows' does not yield the item that was under way" in letter().message
    found = letter().history[-1]["message"]
    assert "or repeat steps from 2 " in found
    control.repeat_steps(letter().pk, first=2)
    requeue(letter().pk)
    assert run_pending()[-1].status == "SUCCESSFUL"
    assert sent == ["a", "b", "c"]


def test_an_item_that_waits_and_is_gone() -> None:
    """Its wait is not taken for that of the next item."""
    for name in "ab":
        Effect.objects.create(name=name, value=0)
    slept: list[str] = []

    def code(context: Any) -> None:
        for row in context.iterate("rows", Effect.objects.filter(value=0)):
            context.sleep("nap", DAY)
            slept.append(row.name)

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending()
    Effect.objects.filter(name="a").delete()
    run_pending(until=2 * DAY)
    assert (slept, letter().exception_class[-15:]) == ([], "DurableMismatch")
    assert control.repeat_steps(letter().pk, first=2)
    requeue(letter().pk)
    run_pending()
    assert (slept, (waiting() or [])[:2]) == ([], ("sleep", "nap"))
    run_pending(until=2 * DAY)
    assert slept == ["b"]


@pytest.mark.parametrize(("under_way", "expected"), [("3", "334567"), ("5", "35567")], ids=["first", "second"])
def test_rows_that_are_added_meanwhile(under_way: str, expected: str) -> None:
    """Those behind the item under way are seen, those before it are passed over; the loop goes on with that item."""

    def add(*keys: int) -> None:
        Effect.objects.bulk_create(Effect(pk=key, name=f"{key}") for key in keys)

    seen = []

    def code(context: Any) -> None:
        for row in context.iterate("rows", Effect.objects.all()):
            seen.append(row.name)
            if row.name == under_way:
                context.wait_for("go")

    CODE["run"] = code
    add(3, 5, 7)
    result = durable.changed_code.enqueue()
    run_pending()
    add(2, 4, 6)
    send_event(result.id, "go")
    assert run_pending()[-1].status == "SUCCESSFUL"
    assert "".join(seen) == expected


def test_an_item_that_is_gone_before_it_was_begun() -> None:
    """A loop goes on with the next one."""
    for name in "abc":
        Effect.objects.create(name=name, value=0)
    seen = []

    def code(context: Any) -> None:
        for row in context.iterate("rows", Effect.objects.filter(value=0)):
            seen.append(row.name)
            if seen == ["a", "b"]:
                raise ConnectionError

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending()
    Effect.objects.filter(name="b").delete()
    run_pending(until=DAY)
    assert seen == ["a", "b", "c"]


@pytest.mark.parametrize("rows_first", [False, True])
def test_a_loop_over_something_else(rows_first: bool) -> None:
    """A number of items is not taken for a key, nor a key for a number of items."""
    Effect.objects.create(name="x")
    sources: list[Any] = [Effect.objects.all(), [7, 8]]
    seen = []

    def code(context: Any) -> None:
        for item in context.iterate("items", sources.pop(0 if rows_first else -1)):
            seen.append(item)
            if len(seen) == 1:
                raise ConnectionError

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending(until=DAY)
    assert (len(seen), letter().exception_class) == (1, "django_vtqueue.exceptions.DurableMismatch")
    assert f"The loop 'items' goes through {'rows' if rows_first else 'a sequence'} as it is stored" in letter().message


def test_a_loop_in_a_paused_queue() -> None:
    """It gives its slot back between two items, without an attempt, and goes on when the queue is resumed."""
    from django_vtqueue import Queue

    seen = []

    def code(context: Any) -> None:
        for item in context.iterate("items", range(4)):
            seen.append(item)
            if seen == [0, 1]:
                Queue("default").pause()

    CODE["run"] = code
    durable.changed_code.enqueue()
    run_pending()
    assert (seen, job().state, job().attempts) == ([0, 1], "SCHEDULED", 0)
    Queue("default").resume()
    run_pending()
    assert (seen, job().attempts, job().history) == ([0, 1, 2, 3], 1, [])


def test_a_loop_that_is_cancelled() -> None:
    """It ends between two items."""

    def code(context: Any) -> None:
        for item in context.iterate("items", range(4)):
            durable.note(f"{item}")
            if item == 1:
                control.cancel(context.task_result.id)

    run(code)
    assert (effects(), letter().exception_class) == ({"0": 1, "1": 1}, "django_vtqueue.exceptions.Cancelled")
