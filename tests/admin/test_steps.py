"""The steps of durable tasks on the pages of jobs and dead letters."""

import html
import json
import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from django_vtqueue import call, requeue
from django_vtqueue.admin import step_table as admin_made
from django_vtqueue.core import clock, history, states
from django_vtqueue.core.clock import LAST_INSTANT
from django_vtqueue.fields import StoredText
from django_vtqueue.models import Job
from tests.pending import run_pending
from tests.project import workflows
from tests.project.durable import CODE, changed_code

from ..fake_clock import FakeClock
from .test_admin import EVIL, SECOND, job, letter, page, text

pytestmark = pytest.mark.django_db


def steps(waiting: Any = None) -> dict[str, Any]:
    """Return the steps of a task that has charged a card."""
    now = clock.now()
    step = {"kind": "step", "name": "charge", "began": now - 3 * SECOND, "at": now, "value": {"token": EVIL, "n": EVIL}}
    return {"done": [step], "waiting": waiting}


def test_what_was_done(admin_client: Client, time: FakeClock) -> None:
    """Kind, name, when, how long and the result of each step; what is secret is hidden, and what is hostile escaped."""
    for row in (job("scheduled", steps=steps()), letter(steps=json.dumps(steps()))):
        row.steps = steps()
        row.save()
        shown = page(admin_client, row)
        assert re.search(r'1 step charge .* 3 s \{"token": "••••"', html.unescape(text(shown)))
        assert EVIL not in shown


def test_a_wait_of_the_task_is_no_wait_for_a_worker(admin_client: Client, time: FakeClock) -> None:
    """The attempt of a task that has slept is shown with the start after that: it has not been due for so long."""
    now = clock.now()
    for began, waited in ((now - 5 * SECOND, "-"), (now - 50 * SECOND, "10 s"), (now + SECOND, "10 s")):
        nap = {"kind": "sleep", "name": "nap", "began": began, "at": now, "value": None}
        row = job("running", enqueued_at=now - 10 * SECOND, started_at=now, steps={"done": [nap]})
        row.steps = {"done": [nap]}
        row.save()
        assert re.search(rf"1 running web1:4711 {waited} ", text(page(admin_client, row))), waited


def test_what_it_waits_for(admin_client: Client, time: FakeClock) -> None:
    """A job that waits without an end says for what, and says so in the list as well."""
    row = waiting_job()
    assert "waiting for 'paid'; send_event wakes it" in html.unescape(text(page(admin_client, row)))
    for query in ("", "?state=waiting"):
        shown = html.unescape(text(admin_client.get(reverse("admin:vtqueue_job_changelist") + query).content.decode()))
        assert re.search(r"waiting +waiting for 'paid' +default", shown)
        assert "waiting (1)" in shown


def test_without_steps(admin_client: Client, time: FakeClock) -> None:
    """Other jobs have no such table; what is damaged is shown as it is."""
    assert "Steps" not in text(page(admin_client, job("scheduled")))
    row = job("scheduled")
    row.steps = StoredText("{damaged")
    row.save()
    assert "{damaged" in text(page(admin_client, row))


def test_a_child_that_was_requeued_too_late(admin_client: Client, time: FakeClock) -> None:
    """Its timeline says that the parent has gone on."""
    entry = {**history.requeued("ann", clock.now()), "message": history.PARENT_WENT_ON}
    assert history.PARENT_WENT_ON in text(page(admin_client, job("scheduled", history=json.dumps([entry]))))


def post(client: Client, row: Any, action: str, **values: Any) -> str:
    """Send the form of an action on a row; return what the next page says."""
    address = reverse(f"admin:vtqueue_{row._meta.model_name}_changelist")
    sent = {"action": action, "_selected_action": str(row.pk), "post": "yes", **values}
    return html.unescape(text(client.post(address, sent, follow=True).content.decode()))


def waiting_job() -> Any:
    row = job(state=states.WAITING, visible_at=LAST_INSTANT)
    row.steps = steps({"kind": "event", "name": "paid", "until": None, "since": clock.now()})
    row.save()
    return row


def test_skip_and_repeat(admin_client: Client, time: FakeClock) -> None:
    """What a job waits for is skipped with a result, and steps are made anew; both are in its timeline."""
    row = waiting_job()
    assert "Skip step" in text(page(admin_client, row))
    assert "Of the step that the job waits for" in post(admin_client, row, "skip_step", name="")
    for value, says in (('["\\u0000"]', "value[0] has a NUL character"), ("NaN", "value is not JSON")):
        assert says in post(admin_client, row, "skip_step", name="paid", value=value)
    assert "The steps of 1 job were changed." in post(
        admin_client, row, "skip_step", name="paid", value='{"by": "card"}'
    )
    row.refresh_from_db()
    assert (row.steps["done"][1]["value"], row.due_at) == ({"by": "card"}, clock.from_instant(clock.now()))
    assert (row.state, row.wake_at) == ("READY", None)
    assert "The steps of 1 job were changed." in post(admin_client, row, "repeat_steps", first=1)
    row.refresh_from_db()
    assert row.steps["done"] == []
    shown = html.unescape(text(page(admin_client, row)))
    assert re.search(r"step skipped admin .*'paid' steps repeated admin .*from step 1 on", shown)


def test_skip_with_a_result_that_is_too_large(admin_client: Client, time: FakeClock, settings: Settings) -> None:
    """The form says so, and nothing is changed."""
    options = {"max_steps_bytes": 1000}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    row = waiting_job()
    value = json.dumps("x" * 1000)
    assert "max_steps_bytes allows 1,000" in post(admin_client, row, "skip_step", name="paid", value=value)
    row.refresh_from_db()
    assert (len(row.steps["done"]), row.history) == (1, [])


def test_skip_what_it_does_not_wait_for(admin_client: Client, time: FakeClock) -> None:
    """The row is left as it is, and the user is told."""
    row = waiting_job()
    assert "1 job was left as it is" in post(admin_client, row, "skip_step", name="other")
    assert "1 job was left as it is" in post(admin_client, row, "repeat_steps", first=7)


def test_who_may_change_steps(client: Client, django_user_model: Any, time: FakeClock) -> None:
    """Whoever may run jobs may; a user who may only look has no button, and is refused."""
    row = waiting_job()
    for names, status in ((["view_job"], 403), (["view_job", "run_job"], 302)):
        user = django_user_model.objects.create_user(names[-1], is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        client.force_login(user)
        assert ("Skip step" in page(client, row)) is (status == 302)
        sent = {"action": "skip_step", "_selected_action": str(row.pk), "post": "yes", "name": "paid"}
        assert client.post(reverse("admin:vtqueue_job_changelist"), sent).status_code == status


def test_skip_begins_with_what_it_waits_for(admin_client: Client, time: FakeClock) -> None:
    """The form has the name of the event; for jobs that wait for several, or for none, it is empty."""
    row = waiting_job()
    address = reverse("admin:vtqueue_job_changelist")
    for rows, name in (([row], "paid"), ([row, job("scheduled")], "paid"), ([job("scheduled")], None)):
        sent = {"action": "skip_step", "_selected_action": [str(each.pk) for each in rows]}
        form = admin_client.post(address, sent).context["form"]
        assert form.initial.get("name") == name


def test_events_that_no_step_has_taken(admin_client: Client, time: FakeClock) -> None:
    """They are shown with their values, without what is secret, also before the first step."""
    events = [{"name": "shipped", "value": {"token": "a secret", "n": EVIL}, "at": clock.now()}, {"name": 7}]
    row = job("scheduled")
    row.steps = {"events": events}
    row.save()
    shown = page(admin_client, row)
    assert re.search(r'has not asked for yet .* shipped .*"token": "••••".* 7 - ', html.unescape(text(shown)))
    assert "a secret" not in shown
    assert EVIL not in shown


def test_children_of_a_step(admin_client: Client) -> None:
    """While it waits the state of each child; then its result, or why it has failed. Each is a link.

    One that has failed, and is requeued, has a state again.
    """
    calls = [call(workflows.send, 1), call(workflows.send.using(run_after=timedelta(days=1)), 2)]
    CODE["run"] = lambda context: [each.status for each in context.gather("mails", calls)]
    result = changed_code.enqueue()
    run_pending()
    parent = Job.objects.get(pk=result.id)
    first, second = Job.objects.filter(parent_id=parent.pk).order_by("pk")
    told = text(page(admin_client, parent))
    assert "waiting for 1 of 2 children ('mails')" in html.unescape(told)
    assert re.search(rf"child state result …{first.pk.hex[-8:]} done …{second.pk.hex[-8:]} scheduled", told)
    workflows.BROKEN.add("2")
    try:
        run_pending(until=timedelta(days=30), raise_errors=False)
    finally:
        workflows.BROKEN.clear()
    shown = page(admin_client, Job.objects.get(pk=result.id))
    assert re.search(rf"…{first.pk.hex[-8:]} done .*…{second.pk.hex[-8:]} dead \w+: ", text(shown))
    for child in (first, second):
        assert f"{child.pk}/change/" in shown
    assert requeue(second.pk)
    again = text(page(admin_client, Job.objects.get(pk=result.id)))
    assert re.search(rf"…{first.pk.hex[-8:]} done .*…{second.pk.hex[-8:]} due", again)
    run_pending()
    assert f"…{second.pk.hex[-8:]} done" in text(page(admin_client, Job.objects.get(pk=result.id)))
    assert "is not here any more" not in text(page(admin_client, first))
    assert re.search(rf'<a href="[^"]*/{parent.pk}/change/">[^"]*…{parent.pk.hex[-8:]}', page(admin_client, first))


def test_failed_children_of_many_steps(admin_client: Client) -> None:
    """They are looked for at once, however many steps there are."""
    failed = [{"state": "FAILED", "history": []}]
    row, counts = job("scheduled"), []
    for many in (1, 20):
        row.steps = {"done": [{"kind": "children", "children": [UUID(int=1).hex], "value": failed}] * many}
        row.save()
        with CaptureQueriesContext(connection) as captured:
            page(admin_client, row)
        counts.append(len(captured))
    assert counts[0] == counts[1]


def test_a_child_whose_parent_is_gone(admin_client: Client) -> None:
    """Its page says so; a job without a parent says nothing of one."""
    assert "00000007, which is not here any more" in text(page(admin_client, job(parent_id=UUID(int=7))))
    assert "Parent" not in text(page(admin_client, job()))


def test_more_children_than_are_shown(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are shown, the others counted; damage of any kind is borne."""
    monkeypatch.setattr(admin_made, "CHILDREN", 2)
    records = [
        {"kind": "children", "name": "a", "children": [UUID(int=1).hex, "x", UUID(int=3).hex, 7]},
        {"kind": "children", "name": "b", "children": [1, None], "value": [{"state": 5}, 7]},
        {"kind": "children", "name": "c", "children": ["x"], "value": [{"state": "SUCCESSFUL", "result": "{"}]},
    ]
    row = job("scheduled")
    row.steps = {"done": records}
    row.save()
    assert "… and 2 other children" in text(page(admin_client, row))


def test_a_loop_under_way(admin_client: Client) -> None:
    """It says after how many items, or behind which key, it goes on, as long as it has not ended."""
    for record, told in (
        ({"next": 17}, "goes on behind 17"),
        ({"next": 17, "counted": True}, "goes on after 17 items"),
        ({"next": "x", "counted": True}, "goes on behind x"),
        ({"ended": True}, ""),
        ({}, ""),
    ):
        row = job("running")
        row.steps = {"done": [{"kind": "iterate", "name": "items", "began": clock.now(), **record}]}
        row.save()
        shown = text(page(admin_client, row))
        assert told in shown if told else "goes on" not in shown


@pytest.mark.parametrize("kind", ["sleep", "event", "gather"])
def test_a_name_that_cannot_be_sent(admin_client: Client, time: FakeClock, kind: str) -> None:
    """Half of a pair of surrogates in what a job waits for is damage: lists and its page show the job without it."""
    row = job(state=states.WAITING, visible_at=LAST_INSTANT)
    waiting = json.dumps({"kind": kind, "name": "\ud800", "until": None, "since": clock.now()})
    row.steps = StoredText(f'{{"waiting": {waiting}}}')
    row.save()
    assert "waiting for" not in text(page(admin_client, row))
    listing = reverse("admin:vtqueue_job_changelist")
    for query in ("", "?state=waiting"):
        assert str(row.pk) in admin_client.get(listing + query).content.decode()
