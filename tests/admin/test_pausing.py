"""Pausing and resuming a queue from the first page of the app."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_vtqueue import Queue
from django_vtqueue.models import QueueState
from django_vtqueue.queue import pauses

from .rows import OVERVIEW, html, job, row_of

pytestmark = pytest.mark.django_db

PAUSE, RESUME = f"{OVERVIEW}queuestate/pause/", f"{OVERVIEW}queuestate/resume/"


def pause(client: Client, queue_name: str = "emails", until: datetime | None = None, reason: str = "") -> HttpResponse:
    """Send the form."""
    data = {"queue_name": queue_name, "reason": reason, "until_0": "", "until_1": ""}
    if until:
        data |= {"until_0": f"{timezone.localtime(until):%Y-%m-%d}", "until_1": f"{timezone.localtime(until):%H:%M:%S}"}
    return client.post(PAUSE, data, follow=True)  # type: ignore[return-value]


def said(response: HttpResponse) -> list[str]:
    return [str(message) for message in response.context["messages"]]  # type: ignore[attr-defined]


def test_pause_and_resume(admin_client: Client) -> None:
    """A button leads to a form; what it pauses is not claimed, until the button beside it is pressed."""
    job("emails", task_path="")
    [form] = re.findall(r'href="([^"]+pause[^"]+)"', html(admin_client))
    assert 'value="emails"' in html(admin_client, form)

    until = timezone.now() + timedelta(hours=2)
    assert said(pause(admin_client, until=until, reason="SMTP is down")) == ["The queue “emails” is paused."]
    state = QueueState.objects.get()
    assert (state.queue_name, state.reason, state.paused_by) == ("emails", "SMTP is down", "admin")
    assert state.paused_until == until.replace(microsecond=0)
    assert Queue("emails").claim() is None
    assert row_of(admin_client, "queue-emails").startswith("emails paused 1")

    response = admin_client.post(RESUME, {"queue_name": "emails"}, follow=True)
    assert response.redirect_chain == [(OVERVIEW, 302)]
    assert said(response) == ["The queue “emails” goes on."]
    assert Queue("emails").claim()
    entries = LogEntry.objects.order_by("pk")
    assert [entry.object_repr for entry in entries] == ["emails", "emails"]
    assert re.fullmatch(r"Paused: SMTP is down, until \S+( \S+)?\.", entries[0].get_change_message())
    assert entries[1].get_change_message() == "Resumed."


@pytest.mark.parametrize(
    ("hours", "reason", "logged"),
    [(None, "", r"Paused\."), (None, "because", r"Paused: because\."), (2, "", r"Paused, until \S+( \S+)?\.")],
)
def test_reason_and_end_may_be_left_out(admin_client: Client, hours: int | None, reason: str, logged: str) -> None:
    """A pause needs neither; the log says what was given."""
    pause(admin_client, until=hours and timezone.now() + timedelta(hours=hours), reason=reason)  # type: ignore[arg-type]
    assert re.fullmatch(logged, LogEntry.objects.get().get_change_message())


def test_a_pause_is_changed(admin_client: Client) -> None:
    """The form for a paused queue begins with its pause, and replaces it."""
    pauses.pause("emails", reason="old", by="anna")
    assert 'value="old"' in html(admin_client, f"{PAUSE}?queue_name=emails")
    pause(admin_client, reason="new")
    assert QueueState.objects.get().reason == "new"


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"until_0": "2020-01-01", "until_1": "10:00"}, "has passed already; give a later time, or none."),
        ({"until_0": "2050-01-01", "until_1": ""}, "Enter a valid"),
        ({"until_0": "soon", "until_1": "10:00"}, "Enter a valid date."),
        ({"queue_name": ""}, "This field is required."),
        ({"queue_name": "x" * 256}, "Ensure this value has at most 255 characters"),
        ({"reason": "x" * 256}, "Ensure this value has at most 255 characters"),
    ],
)
def test_what_is_wrong_is_said(admin_client: Client, values: dict[str, str], error: str) -> None:
    """A form with something wrong comes back with what it is, and nothing is paused."""
    response = admin_client.post(PAUSE, {"queue_name": "emails", "until_0": "", "until_1": "", **values})
    assert error in response.content.decode()
    assert not QueueState.objects.exists()
    assert not LogEntry.objects.exists()


def test_resuming_what_goes_on(admin_client: Client) -> None:
    """If the pause has ended meanwhile, the page says so, and nothing is logged."""
    response = admin_client.post(RESUME, {"queue_name": "emails"}, follow=True)
    assert said(response) == ["The queue “emails” was not paused any more."]
    assert admin_client.post(RESUME).status_code == 400
    assert not LogEntry.objects.exists()


def test_permission(staff: Callable[..., Client]) -> None:
    """Without the permission there is no button."""
    client = staff("view_job")
    pauses.pause("paused")
    job("emails"), job("paused")
    shown = html(client)
    assert "“paused” is paused." in shown
    assert not re.search("queuestate/(pause|resume)", shown)


def test_whoever_sees_nothing_of_the_app(staff: Callable[..., Client]) -> None:
    """A user who may pause, but not look, is led to a page that is there."""
    client = staff("pause_queue")
    assert pause(client).redirect_chain[-1] == (reverse("admin:index"), 302)  # type: ignore[attr-defined]
