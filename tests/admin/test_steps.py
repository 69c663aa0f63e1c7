"""The steps of durable tasks on the pages of jobs and dead letters."""

import html
import json
import re
from typing import Any

import pytest
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
    assert "waits" in text(admin_client.get(reverse("admin:vtqueue_job_changelist")).content.decode())


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
