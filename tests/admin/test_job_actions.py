"""What people do with jobs in the admin: another priority, another queue, cancelling; one by one and many at once."""

import re
from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from django_vtqueue import control
from django_vtqueue.core import clock, states
from django_vtqueue.models import DeadLetter, Job

from .test_admin import HOUR, WORDS, act, client_with, job, letter, page, rung, said, snapshot, text

__all__ = ["client_with", "rung"]

pytestmark = pytest.mark.django_db

FREE = ("due", "scheduled", "retrying", "expired")


def reposted(client: Client, response: HttpResponse, **more: Any) -> HttpResponse:
    """Send the form of a page between, as a browser does: its hidden fields, and what was filled in."""
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]+)">', response.content.decode())
    data: dict[str, Any] = {**dict(hidden), **more}
    data["_selected_action"] = [value for name, value in hidden if name == "_selected_action"]
    return client.post(reverse("admin:vtqueue_job_changelist"), data, follow=True)  # type: ignore[return-value]


def test_change_priority(admin_client: Client, rung: list[str]) -> None:
    """The priority is asked for; then all jobs that are not held have it, workers are woken, and the log says so."""
    jobs = {word: job(word) for word in WORDS}
    asked = act(admin_client, "change_priority", *jobs.values())
    assert "from -100 to 100" in asked.content.decode()
    assert not Job.objects.filter(priority=7).exists()

    messages = said(reposted(admin_client, asked, priority="7"))
    assert messages[0] == "4 jobs have this priority now."
    assert sorted(message.partition(": ")[2] for message in messages[1:]) == ["it is done.", "web1:4711 holds it."]
    assert set(Job.objects.filter(priority=7)) == {jobs[word] for word in FREE}
    assert {entry.change_message for entry in LogEntry.objects.all()} == {"Priority set to 7."}
    assert LogEntry.objects.count() == 4
    assert rung == ["default"]


@pytest.mark.parametrize("wrong", ["", "101", "-101", "1.5", "high"])
def test_a_priority_that_is_none(admin_client: Client, wrong: str) -> None:
    """What is no priority is refused, and the form is shown again with its rows."""
    row = job()
    again = act(admin_client, "change_priority", row, post="yes", priority=wrong)
    assert "errorlist" in again.content.decode()
    assert again.context["rows"].get() == row  # type: ignore[attr-defined]
    assert Job.objects.get().priority == 0


def test_move(admin_client: Client, rung: list[str]) -> None:
    """Jobs that are not held go to another queue, with the policy they were enqueued under."""
    jobs = {word: job(word, max_attempts=3) for word in WORDS}
    messages = said(reposted(admin_client, act(admin_client, "move", *jobs.values()), queue_name="mail"))
    assert messages[0] == "4 jobs were moved."
    moved = Job.objects.filter(queue_name="mail")
    assert set(moved) == {jobs[word] for word in FREE}
    assert {(row.max_attempts, row.lease_us) for row in moved} == {(3, jobs["due"].lease_us)}
    assert {entry.change_message for entry in LogEntry.objects.all()} == {"Moved to queue “mail”."}
    assert rung == ["default"]


def test_a_taken_unique_key(admin_client: Client) -> None:
    """A job whose unique key is taken in the other queue stays, and the page says which, and why; the others go.

    Of two that bring the same key along, the first goes.
    """
    job(queue_name="mail", unique_key="k")
    stays, goes = job(unique_key="k"), job(unique_key="other")
    twin = job(unique_key="other", queue_name="third")
    there = job(queue_name="mail")
    messages = said(act(admin_client, "move", stays, goes, twin, there, post="yes", queue_name="mail"))
    assert messages[0] == "1 job was moved."
    assert len(messages) == 4
    taken = "an unfinished job of queue “mail” has its unique key “{}”."
    assert any(f"…{stays.pk.hex[-8:]}" in message and taken.format("k") in message for message in messages)
    assert any(taken.format("other") in message for message in messages)
    assert any(
        f"…{there.pk.hex[-8:]}" in message and "it is in queue “mail” already." in message for message in messages
    )
    assert Job.objects.filter(queue_name="mail", unique_key="other").count() == 1


def test_a_finished_job_keeps_no_key(admin_client: Client) -> None:
    """The key of a job that is done is free again, there too."""
    job("done", queue_name="mail", unique_key="k")
    assert said(act(admin_client, "move", job(unique_key="k"), post="yes", queue_name="mail")) == ["1 job was moved."]


def test_queues_that_the_settings_do_not_allow(admin_client: Client, settings: Any) -> None:
    """Where QUEUES names the queues, a job goes to no other one: no worker would be there."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default", "mail"]}}
    row = job()
    refused = act(admin_client, "move", row, post="yes", queue_name="mial").content.decode()
    assert "The settings allow no queue “mial”; they name these: default, mail." in refused
    assert said(act(admin_client, "move", row, post="yes", queue_name="mail")) == ["1 job was moved."]


@pytest.mark.parametrize("action", ["change_priority", "move"])
def test_jobs_that_have_moved_on(admin_client: Client, action: str) -> None:
    """A job that is claimed, done, dead or deleted between the form and its answer is left alone, and that is said."""
    jobs = [job() for _ in range(4)]
    asked = act(admin_client, action, *jobs)
    claimed, done, dead, gone = (row.pk for row in jobs)
    held = {"state": states.RUNNING, "worker_id": "web1:4711:abcd", "lease_until": clock.now() + HOUR}
    Job.objects.filter(pk=claimed).update(**held)
    Job.objects.filter(pk=done).update(state=states.SUCCESSFUL, worker_id="w", finished_at=clock.now())
    Job.objects.filter(pk__in=[dead, gone]).delete()
    letter(id=dead)
    before = snapshot()
    messages = said(reposted(admin_client, asked, priority="3", queue_name="mail"))
    assert {*messages} == {
        "2 of those selected are not here any more.",
        f"…{claimed.hex[-8:]} was left as it is: web1:4711 holds it.",
        f"…{done.hex[-8:]} was left as it is: it is done.",
    }
    assert snapshot() == before


def test_control_refuses_what_is_none() -> None:
    """The functions refuse what is no priority, no name, and no id; then nothing is changed."""
    row = job()
    for priority in (101, -101, True, "5", 1.5):
        with pytest.raises(ValueError, match="whole number from -100 to 100"):
            control.change_priority([row.pk], priority)  # type: ignore[arg-type]
    for name in ("", "x" * 256, None):
        with pytest.raises(ValueError, match="text of 1 to 255 characters"):
            control.move([row.pk], name)  # type: ignore[arg-type]
    before = snapshot()
    for verb in (partial(control.move, queue_name="mail"), partial(control.change_priority, priority=5)):
        with pytest.raises(ValueError, match="'no id' is no id"):
            verb(iter([row.pk, "no id"]))
    assert snapshot() == before
    assert control.move(iter([str(row.pk)]), "mail") == [row.pk]
    assert control.change_priority(iter([row.pk]), 5) == [row.pk]


def test_cancel(admin_client: Client) -> None:
    """A job that waits becomes a dead letter, one that runs is asked to stop, with the name of who did it."""
    waiting, held, done = job("scheduled"), job("running"), job("done")
    messages = said(act(admin_client, "cancel", waiting, held, done))
    assert messages[0].startswith("2 jobs were cancelled")
    assert messages[1].startswith("1 job was skipped: it is done")
    assert DeadLetter.objects.get().pk == waiting.pk
    asked = Job.objects.get(pk=held.pk)
    assert (asked.cancelled_by, asked.cancelled_at is None) == ("admin", False)
    shown = text(page(admin_client, asked))
    assert "asked to stop" in shown
    assert "Cancelled." in {entry.change_message for entry in LogEntry.objects.all()}


def test_back_to_the_page(admin_client: Client) -> None:
    """A button on the page of a job leads back to it, with what was done; if it is gone, to the list."""
    row = job("scheduled")
    address = reverse("admin:vtqueue_job_change", args=[row.pk])
    response = act(admin_client, "run_now", row, page="1")
    assert response.redirect_chain[-1][0] == address  # type: ignore[attr-defined]
    assert said(response) == ["1 job is due now."]
    asked = act(admin_client, "move", row, page="1")
    assert asked.context["page"]  # type: ignore[attr-defined]
    gone = act(admin_client, "delete_selected", row, post="yes", page="1")
    assert gone.redirect_chain[-1][0] == reverse("admin:vtqueue_job_changelist")  # type: ignore[attr-defined]
