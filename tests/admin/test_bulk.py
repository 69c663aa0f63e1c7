"""Many dead letters at once: requeued, discarded, exported."""

import json
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, connections
from django.test import Client
from django.urls import reverse

from django_vtqueue import Queue, requeueing
from django_vtqueue.admin import letter_bulk, letter_selection
from django_vtqueue.core import clock
from django_vtqueue.core.history import Entry
from django_vtqueue.models import DeadLetter, Job, Requeue
from django_vtqueue.queue import dead_letters
from django_vtqueue.queue.dead_letters import Criteria
from tests.pending import run_pending

from .test_admin import client_with as client_with
from .test_admin import letter, page, said, text
from .test_forged import HUGE
from .tools import criteria_in, group, send, shown

pytestmark = pytest.mark.django_db

UNCLEAR = ("", "[]", "{}x", "[" * 100_000, '{"queue": "a"}', f'{{"died_to": {HUGE}}}', '{"queue_name": "\\ud800"}')


def test_requeue_of_a_few_is_done_at_once(admin_client: Client) -> None:
    """A small group is requeued while one waits, after its count was said; each letter stands in the log."""
    mine, [other] = group("a", 2), group("b", 1)
    html = shown(admin_client, "requeue", fingerprint="a")
    assert "2 dead letters will be requeued." in html
    assert DeadLetter.objects.count() == 3
    response = send(admin_client, "requeue", criteria=criteria_in(html), queue_name="slow", priority="7")
    assert said(response) == ["2 dead letters are jobs again."]
    assert {(row.pk, row.queue_name, row.priority) for row in Job.objects.all()} == {(m.pk, "slow", 7) for m in mine}
    assert DeadLetter.objects.get() == other
    assert LogEntry.objects.count() == 2


def test_what_dies_after_the_question_stays(admin_client: Client) -> None:
    """What is carried out is what was counted: a letter that comes after the question is not meant."""
    group("a", 1)
    criteria = criteria_in(shown(admin_client, "requeue"))
    late = letter()
    send(admin_client, "requeue", criteria=criteria)
    assert DeadLetter.objects.get() == late


def test_requeue_of_many_goes_on_in_the_background(admin_client: Client) -> None:
    """With a rate or a canary it is a run of its own, with a page that shows how far it is; one line in the log."""
    group("a", 3)
    html = shown(admin_client, "requeue", queue_name="default")
    response = send(admin_client, "requeue", criteria=criteria_in(html), rate="50", canary="on")
    run = Requeue.objects.get()
    assert (run.rate, run.state, run.matched, run.created_by) == (50, "canary", 3, "admin")
    assert response.request["PATH_INFO"] == reverse("admin:vtqueue_requeue_change", args=[run.pk])  # type: ignore[attr-defined]
    seen = text(response.content.decode())
    assert "0 of 3 requeued, 0 skipped" in seen
    assert "no worker is alive" in seen
    [entry] = LogEntry.objects.all()
    assert "3" in entry.get_change_message()
    assert "queue: default" in entry.get_change_message()


def test_a_step_while_the_page_is_read(admin_client: Client) -> None:
    """A run that goes on between two queries of its page is not said to be lost."""
    group("a", 3)
    run = requeueing.start(letter_selection.Criteria(fingerprint="a"), rate=1)
    address, steps = reverse("admin:vtqueue_requeue_change", args=[run.pk]), []

    def step_in_between(execute: Any, sql: str, *arguments: Any) -> Any:
        found = execute(sql, *arguments)
        if 'FROM "vtqueue_requeue"' in sql and not steps:
            steps.append(run.step)
            run_pending()
        return found

    with connection.execute_wrapper(step_in_between):
        html = admin_client.get(address).content.decode()
    run.refresh_from_db()
    assert run.step not in steps
    assert "was discarded, purged, or has died" not in html
    assert "Continue" not in html


def test_stop_and_continue(admin_client: Client) -> None:
    """A run is stopped from its page; one whose next step is lost says so, and can be continued from there."""
    group("a", 3)
    run = requeueing.start(requeueing.Criteria(), rate=1)
    urls = {name: reverse(f"admin:vtqueue_requeue_{name}", args=[run.pk]) for name in ("stop", "resume", "change")}
    assert urls["resume"] not in admin_client.get(urls["change"]).content.decode()
    Job.objects.all().delete()
    html = admin_client.get(urls["change"]).content.decode()
    assert "was discarded, purged, or has died" in html
    assert urls["resume"] in html
    assert said(admin_client.post(urls["resume"], follow=True)) == ["It goes on."]  # type: ignore[arg-type]
    run_pending()
    run.refresh_from_db()
    assert run.requeued == 1
    assert said(admin_client.post(urls["stop"], follow=True)) == ["It is stopped."]  # type: ignore[arg-type]
    assert said(admin_client.post(urls["stop"], follow=True)) == ["It has ended already."]  # type: ignore[arg-type]
    seen = admin_client.get(urls["change"]).content.decode()
    assert "Stopped by admin." in seen
    assert urls["stop"] not in seen
    assert "1 of 3 requeued" in admin_client.get(reverse("admin:vtqueue_requeue_changelist")).content.decode()
    assert admin_client.get(urls["stop"]).status_code == 405


def test_discard_of_many(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is discarded after its count was said, so many with a click, with one line in the log."""
    group("a", 5), group("b", 1)
    html = shown(admin_client, "discard", fingerprint="a")
    assert "5 dead letters will be discarded for good." in html
    monkeypatch.setattr(letter_bulk, "MOST_DISCARDED", 4)
    values = {"criteria": criteria_in(html)}
    assert said(send(admin_client, "discard", **values)) == [
        "4 dead letters were discarded.",
        "There may be more: discard again.",
    ]
    assert said(send(admin_client, "discard", **values)) == ["1 dead letter was discarded."]
    assert DeadLetter.objects.get().fingerprint == "b"
    assert LogEntry.objects.count() == 2


@pytest.mark.parametrize("view", ["requeue", "discard"])
def test_nothing_is_done_to_letters_that_nobody_chose(admin_client: Client, view: str) -> None:
    """A search, or criteria that are not understood, choose no letters: nothing is done to any, and that is said."""
    group("a", 1)
    response = admin_client.get(reverse(f"admin:vtqueue_deadletter_{view}"), {"q": "add"}, follow=True)
    assert said(response)[0].startswith("Nothing was done")  # type: ignore[arg-type]
    for criteria in UNCLEAR:
        assert said(send(admin_client, view, criteria=criteria))[0].startswith("Nothing was done")
    assert "No dead letter meets this filter." in shown(admin_client, view, queue_name="nobody")
    assert DeadLetter.objects.count() == 1


def test_values_of_a_requeue_that_are_not_allowed(admin_client: Client, settings: Any) -> None:
    """A rate below one, a priority out of range, or a queue that the settings do not know is refused, and said."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default", "mail"]}}
    group("a", 1)
    html = send(admin_client, "requeue", criteria="{}", rate="0", priority="101", queue_name="nowhere")
    seen = text(html.content.decode())
    assert "greater than or equal to 1" in seen
    assert "less than or equal to 100" in seen
    assert "they name these: default, mail." in seen
    assert DeadLetter.objects.exists()


def test_numbers_in_the_language_of_the_reader(admin_client: Client, settings: Any) -> None:
    """Wherever a page has a large number, its digits are grouped as its reader groups them."""
    settings.LANGUAGE_CODE = "de"
    run = requeueing.start(requeueing.Criteria(), rate=1)
    Requeue.objects.update(matched=54_321, requeued=12_345)
    seen = text(page(admin_client, run))
    assert "12.345" in seen
    assert "54.321" in seen


def test_question_before_a_group(admin_client: Client) -> None:
    """The question before a group shows how its latest letter failed, no fingerprint; one first is chosen already."""
    history = json.dumps([Entry(number=1, outcome="failed", traceback="Traceback: here")])
    group("f0" * 8, 2, message="declined", history=history)
    html = shown(admin_client, "requeue", fingerprint="f0" * 8, task_path="tests.project.tasks.add")
    assert "ConnectionError declined" in text(html)
    assert "Traceback: here" in html
    assert "fingerprint" not in text(html).lower()
    assert "f0" * 8 not in text(html)
    assert re.search(r'<input type="checkbox" name="canary"[^>]* checked', html)
    assert not re.search(r'<input type="checkbox" name="canary"[^>]* checked', shown(admin_client, "requeue"))


def test_what_became_of_a_run(admin_client: Client) -> None:
    """A run has the name of what it is about, and says what its jobs have become, as long as that can still change."""
    group("a", 3)
    [bad] = group("a", 1, payload='{"args":["1",2],"kwargs":{}}', max_attempts=1)
    run = requeueing.start(letter_selection.Criteria(fingerprint="a"))
    run_pending()
    html = page(admin_client, run)
    assert "tests.project.tasks.add: ConnectionError" in text(html)
    assert "4 requeued: 3 succeeded, 1 died again" in text(html)
    assert 'data-seconds=""' in html
    Job.objects.exclude(task_path=requeueing.PATH).first().delete()  # type: ignore[union-attr]
    dead_letters.requeue(bad)
    html = page(admin_client, run)
    assert "4 requeued: 2 succeeded, 1 waits, 1 is not kept any more" in text(html)
    assert 'data-seconds="5"' in html
    runs = text(admin_client.get(reverse("admin:vtqueue_requeue_changelist")).content.decode())
    assert "tests.project.tasks.add: ConnectionError" in runs
    assert str(run) == "tests.project.tasks.add: ConnectionError"


def test_what_became_of_many(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run of very many the jobs that went last are counted, and that is said; one of several failures says so."""
    monkeypatch.setattr(requeueing, "BATCH", 2)
    monkeypatch.setattr(requeueing, "FOLLOWED", 3)
    group("a", 4), group("b", 1, exception_class="builtins.KeyError")
    run = requeueing.start(letter_selection.Criteria())
    run_pending()
    seen = text(page(admin_client, run))
    assert "tests.project.tasks.add: several exceptions" in seen
    assert "5 requeued; of the last 3: 3 succeeded" in seen


def die(queue: Queue) -> None:
    """Have a job become a dead letter."""
    queue.publish(1, immediate=True)
    job = queue.claim()
    assert job
    job.nack()


def test_nothing_is_read_while_an_export_is_sent(sqlite_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a line that was sent, with more to come, no reader is open: a slow download does not keep the log long."""
    monkeypatch.setattr(letter_bulk, "SLICE", 2)
    queue = Queue("default", using=sqlite_file, max_attempts=1)
    for _ in range(5):
        die(queue)
    lines = iter(letter_bulk.as_file(letter_bulk.slices(Criteria(died_to=clock.now()), sqlite_file)))
    next(lines)
    die(queue)  # there is something in the log
    path = connections[sqlite_file].settings_dict["NAME"]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    assert len(list(lines)) == 4
