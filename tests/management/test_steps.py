"""What ``manage.py vtqueue show`` says of durable tasks."""

import re
from typing import Any

import pytest

from django_vtqueue import call, group, send_event
from django_vtqueue.fields import StoredText
from django_vtqueue.models import Job
from tests.pending import run_pending
from tests.project import durable, workflows
from tests.project.durable import CODE, DAY
from tests.project.models import Effect

from .test_looking import read, vtqueue

pytestmark = pytest.mark.django_db


def why(code: object) -> str:
    """Return why a task that does something does not run then."""
    CODE["run"] = code
    job_id = durable.changed_code.enqueue().id
    run_pending()
    return str(read("show", job_id)["why"])


def test_what_a_job_waits_for() -> None:
    """An event, with or without an end, the end of a sleep, or its children."""
    assert why(lambda context: context.wait_for("paid")) == "waiting for 'paid'; send_event wakes it"
    timed = why(lambda context: context.wait_for("paid", timeout=DAY))
    assert re.fullmatch(r"waiting for 'paid' until \d\S+ \S+; send_event wakes it before", timed)
    assert re.fullmatch(r"sleeping until \d\S+ \S+ \('nap'\)", why(lambda context: context.sleep("nap", DAY)))
    later = durable.child.using(run_after=DAY)
    found = why(lambda context: context.gather("mails", [call(later, "a"), call(durable.child, "b")]))
    assert found == "waiting for 1 of 2 children ('mails')"
    child = Job.objects.get(parent_id__isnull=False, state="SCHEDULED")
    assert read("show", str(child.pk))["parent"] == str(child.parent_id)
    assert "parent" not in read("show", str(child.parent_id))


def test_lists_of_what_waits() -> None:
    """What waits says for what, has no time if it waits without an end, and is not among what is scheduled."""
    codes = {
        "waiting for 'paid'": lambda context: context.wait_for("paid"),
        "sleeping until": lambda context: context.sleep("nap", DAY),
        "waiting for 1 of 1 child ('mail')": lambda context: context.gather(
            "mail", [call(durable.child.using(run_after=DAY), "a")]
        ),
    }
    for code in codes.values():
        why(code)
    found = read("list", "--state", "waiting")
    assert {job["state"] for job in found} == {"waiting"}
    assert len(found) == 3
    for text in codes:
        [job] = [job for job in found if job["waits_for"].startswith(text)]
        assert (job["due_at"] is None) is (text == "waiting for 'paid'")
        assert any(line.startswith("waiting") and text in line for line in vtqueue("list").splitlines())
    assert [job["task"] for job in read("list", "--state", "scheduled")] == ["tests.project.durable.child"]


def test_a_job_that_failed_before_it_asked_for_its_event_again() -> None:
    """It is retried: what it has waited for, and is stored still, says nothing of that."""
    CODE["run"] = lambda context: context.wait_for("paid", timeout=DAY)
    result = durable.changed_code.using(queue_name="a").enqueue()
    run_pending()
    enqueued_at = Job.objects.get().enqueued_at
    Job.objects.update(due_at=enqueued_at, wake_at=enqueued_at)
    CODE["run"] = lambda context: 1 // 0
    run_pending(raise_errors=False)
    found = read("show", result.id)
    assert (found["state"], "waits_for" in found) == ("retrying", False)
    assert found["why"].startswith("retrying at ")
    assert [job["state"] for job in read("list", "--state", "retrying")] == ["retrying"]


def test_what_was_done() -> None:
    """Each step: its kind and name, when, how long it took, and its result, without what is secret."""
    result = durable.order.enqueue(7)
    run_pending()
    send_event(result.id, "shipped", {"token": "x7", "parcel": 5})
    [told] = [line for line in vtqueue("show", result.id).splitlines() if line.startswith("event ")]
    assert re.fullmatch(r"event +shipped came at \S+ \S+, not asked for yet: .*parcel.*", told)
    assert "x7" not in told
    assert [event["name"] for event in read("show", result.id)["events"]] == ["shipped"]
    run_pending()
    lines = [line for line in vtqueue("show", result.id).splitlines() if line.startswith("step ")]
    assert re.fullmatch(r'step 1 +step charge at \S+ \S+ after .* m?s: \{"order": ?7, ?"paid": ?\[1, ?2\]\}', lines[0])
    assert re.search(r"^step 2 +event shipped at .*parcel", lines[1])
    assert "x7" not in lines[1]
    assert [step["name"] for step in read("show", result.id)["steps"]] == ["charge", "shipped"]


def test_a_loop_under_way() -> None:
    """It says after how many items it goes on; of a queryset, behind which key."""

    def stops(context: Any) -> None:
        for item in context.iterate("items", range(5)):
            if item == 3:
                raise ConnectionError

    CODE["run"] = stops
    result = durable.changed_code.enqueue()
    run_pending(raise_errors=False)
    assert "iterate items, goes on after 3 items" in vtqueue("show", result.id)


def test_a_loop_over_rows() -> None:
    """It says behind which key it goes on."""
    rows = [Effect.objects.create(name=name) for name in "ab"]

    def stops(context: Any) -> None:
        for row in context.iterate("rows", Effect.objects.all()):
            if row == rows[1]:
                raise ConnectionError

    CODE["run"] = stops
    result = durable.changed_code.enqueue()
    run_pending(raise_errors=False)
    assert f"iterate rows, goes on behind {rows[0].pk}" in vtqueue("show", result.id)


def test_children_of_a_step() -> None:
    """While it waits the state of each, then what each has returned, or why it has failed."""
    calls = [call(durable.child, "a"), call(durable.failing_child.using(run_after=DAY), "b")]
    CODE["run"] = lambda context: [result.status for result in context.gather("mails", calls)]
    result = durable.changed_code.enqueue()
    run_pending()

    def told() -> list[str]:
        lines = [line.split(maxsplit=1) for line in vtqueue("show", result.id).splitlines()]
        return [line[1] for line in lines if line[:1] == ["child"] or line[-1].startswith("1 ")]

    first, second = (f"…{child.pk.hex[-8:]}" for child in Job.objects.exclude(parent_id=None).order_by("pk"))
    assert told() == ["1         gather mails: 2 children", f"{first} done", f"{second} scheduled"]
    run_pending(until=2 * DAY, raise_errors=False)
    step, *children = told()
    assert re.fullmatch(r"1 +gather mails at \S+ \S+ after 1 d: 2 children", step)
    assert children == [f'{first} done: "aa"', f"{second} dead: ConnectionError: refused"]


def test_the_tree() -> None:
    """A job that belongs to others shows all of them, each below its parent, with its state."""
    result = group([call(workflows.send, 1), call(workflows.send, 2)]).enqueue()
    run_pending()
    lines = [line.split(maxsplit=1)[1] for line in vtqueue("show", result.id).splitlines() if line.startswith("tree ")]
    assert lines[0] == f"django_vtqueue.tasks.workflows.run_group {result.id} done"
    assert [re.sub(r"\S{36}", "ID", line) for line in lines[1:]] == ["tests.project.workflows.send ID done"] * 2
    assert "\ntree" not in vtqueue("show", workflows.send.enqueue(3).id)


def test_damaged_steps_are_not_shown() -> None:
    """They hide nothing else of the job."""
    result = durable.order.enqueue(7)
    run_pending()
    Job.objects.update(steps=StoredText("{"))
    assert read("show", result.id)["steps"] == []
