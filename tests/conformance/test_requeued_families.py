"""Parents and children that have died together and are requeued together: each call runs once, for its parent."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_vtqueue import GiveUp, TaskResultStatus, call, chain, control, group, requeue, task
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.models import DeadLetter, Job
from tests.pending import run_pending
from tests.project import durable

from .bench import PARENT_WENT_ON

DAY = timedelta(days=1)
ALL_AT_ONCE = "at once"
WHOLE_FIRST = "whole first"
CALLS_FIRST = "calls first"
ORDERS = [ALL_AT_ONCE, WHOLE_FIRST, CALLS_FIRST]


BROKEN: set[int] = set()
RUNS = Counter[Any]()


@task
def send(number: int) -> int:
    RUNS[number] += 1
    if number in BROKEN:
        raise GiveUp(number)
    return number * 10


@task
def add_one(number: int) -> int:
    RUNS[f"add {number}"] += 1
    return number + 1


@task
def report(results: list[int]) -> int:
    RUNS["report"] += 1
    return sum(results)


@task
def alarm(failures: list[Any], to: str) -> None: ...


@pytest.fixture(autouse=True)
def nothing_is_broken() -> Iterator[None]:
    yield
    BROKEN.clear()
    RUNS.clear()


class Family:
    """A parent, with those of its descendants that are dead letters."""

    def __init__(self, backend: VTQueueBackend, parent: Any) -> None:
        self.database, self.parent = backend.database, parent

    def letters(self) -> list[Any]:
        """Return the ids of what is dead, the youngest generation first, then the parent."""
        return [*DeadLetter.objects.using(self.database).order_by("-pk").values_list("pk", flat=True)]

    def requeue(self, order: str) -> None:
        """Requeue all that is dead: in one go, or one after the other, with workers that are prompt."""
        RUNS.clear()
        dead = self.letters()
        if order == ALL_AT_ONCE:
            assert len(requeue(dead)) == len(dead)
            run_pending()
            return
        for one in reversed(dead) if order == WHOLE_FIRST else dead:
            requeue(one)
            run_pending()

    def result(self) -> Any:
        self.parent.refresh()
        return self.parent.return_value if self.parent.status == TaskResultStatus.SUCCESSFUL else self.parent.status

    def remarks(self) -> set[Any]:
        """Return what the histories say of requeues."""
        rows = [*Job.objects.using(self.database).all(), *DeadLetter.objects.using(self.database).all()]
        return {entry.get("message") for row in rows for entry in row.history if entry["outcome"] == "requeued"}


def broken(backend: VTQueueBackend, workflow: Any, *at: int) -> Family:
    """Return a workflow that has died of calls that fail; they do not any more."""
    BROKEN.update(at)
    family = Family(backend, workflow.enqueue())
    run_pending()
    assert family.result() == TaskResultStatus.FAILED
    BROKEN.clear()
    return family


@pytest.mark.parametrize("alarm", [None, call(alarm, "ops")], ids=["", "alarm"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_group(backend: VTQueueBackend, order: str, alarm: Any) -> None:
    """The whole takes its requeued calls for its own, and ends with their results."""
    calls = [call(send, number) for number in range(3)]
    family = broken(backend, group(calls, then=call(report), on_failure=alarm), 1, 2)
    family.requeue(order)
    assert family.result() == 30
    assert RUNS == {1: 1, 2: 1, "report": 1}
    assert family.remarks() == {None}


@pytest.mark.parametrize("order", ORDERS)
def test_wholes_inside_of_a_whole(backend: VTQueueBackend, order: str) -> None:
    """Each of them goes on where it was: what has succeeded inside of one is not made again."""
    parts = [chain(call(send, number), group([call(send), call(add_one)])) for number in (1, 2)]
    family = broken(backend, group(parts), 10)
    assert len(family.letters()) == 4
    family.requeue(order)
    assert family.result() == [[100, 11], [200, 21]]
    assert RUNS == {10: 1}


def test_a_call_that_was_discarded(backend: VTQueueBackend) -> None:
    """It is enqueued anew by the requeued whole; the other one is requeued by it."""
    family = broken(backend, group([call(send, 1), call(send, 2)]), 1, 2)
    first = DeadLetter.objects.using(backend.database).get(message="1").pk
    second = DeadLetter.objects.using(backend.database).get(message="2").pk
    control.discard(first)
    RUNS.clear()
    assert requeue(family.parent.id, by="ann")
    run_pending()
    assert (family.result(), RUNS) == ([10, 20], {1: 1, 2: 1})
    jobs = Job.objects.using(backend.database)
    assert jobs.get(pk=second).history[-1]["worker"] == "ann"
    assert not jobs.filter(pk=first).exists()


def test_a_call_that_was_requeued_while_its_whole_was_dead(backend: VTQueueBackend) -> None:
    """Its success is that of the whole when that is requeued; its failure is made good once more then."""
    family = broken(backend, group([call(send, 1), call(send, 2)]), 1, 2)
    BROKEN.add(2)
    RUNS.clear()
    requeue([letter for letter in family.letters() if str(letter) != family.parent.id])
    run_pending()
    assert RUNS == {1: 1, 2: 1}
    BROKEN.clear()
    assert requeue(family.parent.id)
    run_pending()
    assert (family.result(), RUNS) == ([10, 20], {1: 1, 2: 2})


@pytest.mark.parametrize("priority", [1, -1], ids=["before the whole", "behind the whole"])
@pytest.mark.parametrize("alarm", [None, call(alarm, "ops")], ids=["", "alarm"])
def test_a_call_that_fails_again(backend: VTQueueBackend, alarm: Any, priority: int) -> None:
    """It has failed once more, and the whole with it; it is not tried a third time by that."""
    family = broken(backend, group([call(send.using(priority=priority), 1)], on_failure=alarm).using(priority=0), 1)
    BROKEN.add(1)
    RUNS.clear()
    requeue(family.letters())
    run_pending()
    assert (family.result(), RUNS[1]) == (TaskResultStatus.FAILED, 1)
    assert len(family.letters()) == 2


# -- parents that gather by themselves ---------------------------------------------------------------------------------


def gathering(*calls: Any) -> Callable[[Any], list[Any]]:
    """Return code that gives up if one of its children has failed."""

    def code(context: Any) -> list[Any]:
        results = context.gather("all", calls)
        if any(result.status != TaskResultStatus.SUCCESSFUL for result in results):
            raise GiveUp
        return [result.return_value for result in results]

    return code


@pytest.mark.parametrize("order", [ALL_AT_ONCE, CALLS_FIRST])
def test_a_parent_that_gave_up(backend: VTQueueBackend, order: str) -> None:
    """It waits for the requeued children again, and goes on with their results."""
    BROKEN.update([1, 2])
    durable.CODE["run"] = gathering(*(call(send, number) for number in range(3)))
    family = Family(backend, durable.changed_code.enqueue())
    run_pending()
    assert len(family.letters()) == 3
    BROKEN.clear()
    family.requeue(order)
    assert (family.result(), RUNS) == ([0, 10, 20], {1: 1, 2: 1})
    assert family.remarks() == {None}


def test_children_that_are_requeued_while_their_parent_is_retried(backend: VTQueueBackend) -> None:
    """A parent that was requeued without them has them when it is tried again; one that is gone stays a failure."""
    seen = []

    def code(context: Any) -> None:
        seen.append([str(result.status) for result in context.gather("all", calls)])
        if seen[-1] != ["SUCCESSFUL", "FAILED"]:
            raise ConnectionError

    BROKEN.update([1, 2])
    calls = [call(send, 1), call(send, 2)]
    durable.CODE["run"] = code
    family = Family(backend, durable.changed_code.enqueue())
    run_pending(until=DAY)
    BROKEN.clear()
    seen.clear()
    requeue(family.parent.id)
    run_pending()
    assert seen == [["FAILED", "FAILED"]]
    control.discard(DeadLetter.objects.using(backend.database).get(message="2").pk)
    requeue(DeadLetter.objects.using(backend.database).get(message="1").pk)
    run_pending(until=DAY)
    assert seen == [["FAILED", "FAILED"], ["SUCCESSFUL", "FAILED"]]
    assert family.remarks() == {None}


@pytest.mark.parametrize("order", ORDERS)
def test_a_parent_that_was_cancelled(backend: VTQueueBackend, order: str) -> None:
    """It had not read its children, which were cancelled with it: they come back with it."""
    later = send.using(run_after=DAY)
    durable.CODE["run"] = gathering(call(later, 1), call(later, 2))
    family = Family(backend, durable.changed_code.enqueue())
    run_pending()
    control.cancel(family.parent.id)
    assert len(family.letters()) == 3
    family.requeue(order)
    run_pending()
    assert (family.result(), RUNS) == ([10, 20], {1: 1, 2: 1})


def test_a_child_of_a_parent_that_has_made_another_step(backend: VTQueueBackend) -> None:
    """That parent has gone on with the failure: the history of the requeued child says so, and nothing else changes."""

    def code(context: Any) -> list[str]:
        results = context.gather("all", [call(send, 1)])
        context.step("next", len, "x")
        if context.attempt == 1 and 0 in BROKEN:
            raise GiveUp
        return [str(result.status) for result in results]

    BROKEN.update([0, 1])
    durable.CODE["run"] = code
    family = Family(backend, durable.changed_code.enqueue())
    run_pending()
    BROKEN.clear()
    family.requeue(ALL_AT_ONCE)
    assert (family.result(), RUNS) == (["FAILED"], {1: 1})
    assert family.remarks() == {None, PARENT_WENT_ON}
