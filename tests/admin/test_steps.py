"""The steps of durable tasks on the pages of jobs and dead letters."""

import html
import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from django_vtqueue.core import clock, history
from django_vtqueue.core.steps import NEVER
from django_vtqueue.fields import StoredText

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


def test_what_it_waits_for(admin_client: Client, time: FakeClock) -> None:
    """A job that waits without an end says for what, and says so in the list as well."""
    waiting = {"kind": "event", "name": "paid", "until": None, "since": clock.now()}
    row = job("scheduled", steps=steps(waiting), due_at=NEVER)
    row.steps, row.due_at = steps(waiting), clock.from_instant(NEVER)
    row.save()
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
    row = job("scheduled")
    waiting = {"kind": "event", "name": "paid", "until": None, "since": clock.now()}
    row.steps, row.due_at = steps(waiting), clock.from_instant(NEVER)
    row.save()
    return row


def test_skip_and_repeat(admin_client: Client, time: FakeClock) -> None:
    """What a job waits for is skipped with a result, and steps are made anew; both are in its timeline."""
    row = waiting_job()
    assert "Skip step" in text(page(admin_client, row))
    assert "Of what the job waits for" in post(admin_client, row, "skip_step", name="")
    assert "The steps of 1 job were changed." in post(
        admin_client, row, "skip_step", name="paid", value='{"by": "card"}'
    )
    row.refresh_from_db()
    assert (row.steps["done"][1]["value"], row.due_at) == ({"by": "card"}, clock.from_instant(clock.now()))
    assert "The steps of 1 job were changed." in post(admin_client, row, "repeat_steps", first=1)
    row.refresh_from_db()
    assert row.steps["done"] == []
    shown = html.unescape(text(page(admin_client, row)))
    assert re.search(r"step skipped admin .*'paid' steps repeated admin .*from step 1 on", shown)


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
