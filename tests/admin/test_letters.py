"""One dead letter: changed and requeued, reviewed; exports; and who may do what."""

import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ValidationError
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from django_vtqueue import requeueing
from django_vtqueue.admin import letter_bulk
from django_vtqueue.admin.fields import restored
from django_vtqueue.core import clock
from django_vtqueue.core.history import Entry, read
from django_vtqueue.core.masks import MASKED
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.queue import dead_letters

from .test_admin import EVIL, act, job, letter, listed, page, said, sign_in, text
from .test_admin import client_with as client_with
from .tools import send, shown

pytestmark = pytest.mark.django_db

SIGN_IN = f"{sign_in.module_path}"
SECRET = '{"args":["ann","hunter2"],"kwargs":{"api_token":"t0p","note":[{"secret":1}]}}'


def edited(client: Client, row: DeadLetter, payload: str | None = None, **values: Any) -> HttpResponse:
    """Send the form of a letter with changes."""
    html = shown(client, "edit", row.pk)
    form = client.get(reverse("admin:vtqueue_deadletter_edit", args=[row.pk])).context["form"]
    assert "hunter2" not in html
    data = {name: form[name].value() for name in form.fields} | values
    return send(client, "edit", row.pk, **data | ({} if payload is None else {"payload": payload}))


def test_requeue_with_changes(admin_client: Client) -> None:
    """Arguments, queue and priority are changed on the way; what is hidden stays as it is stored."""
    row = letter(task_path=SIGN_IN, payload=SECRET.replace(',"note":[{"secret":1}]', ""))
    new = '{"args": ["bob", "••••"], "kwargs": {"api_token": "••••"}}'
    response = edited(admin_client, row, new, queue_name="mail", priority="5")
    assert said(response) == ["The dead letter is a job again."]
    again = Job.objects.get()
    assert (again.pk, again.queue_name, again.priority, again.attempts) == (row.pk, "mail", 5, 0)
    assert again.payload == {"args": ["bob", "hunter2"], "kwargs": {"api_token": "t0p"}}
    assert read(again.history)[-1]["worker"] == "admin"
    assert LogEntry.objects.get().get_change_message() == "Requeued with changes: payload, queue_name, priority."


@pytest.mark.parametrize("new", ['["bob", "x"]', '{"user": "bob", "password": "x"}'])
def test_the_forms_of_arguments(admin_client: Client, new: str) -> None:
    """A list, and an object by the names of the parameters, are taken as where a job is enqueued."""
    row = letter(task_path=SIGN_IN, payload=SECRET)
    assert said(edited(admin_client, row, new)) == ["The dead letter is a job again."]
    match Job.objects.get().payload:
        case {"args": list(args), "kwargs": dict(kwargs)}:
            assert [*args, *kwargs.values()] == ["bob", "x"]


def test_requeue_without_changes_keeps_the_payload_as_it_was(admin_client: Client) -> None:
    """Also one that is no JSON, or that its task does not take any more."""
    for payload in ("{oops", '{"password": oops', '{ "args":[1,2,3,4,5],"kwargs":{}, "args":[1e2]}'):
        row = letter(payload=payload)
        edited(admin_client, row)
        with connection.cursor() as cursor:
            cursor.execute("SELECT payload FROM vtqueue_job WHERE id = %s", [row.pk.hex])
            assert cursor.fetchone() == (payload,)


def test_hidden_values_of_a_list(admin_client: Client) -> None:
    """They stay in their places; in a list with other entries no value is given to another entry."""
    row = letter(task_path="", payload='{"users":[{"name":"a","token":"1"},{"name":"b","token":"2"}]}')
    shorter = '{"users":[{"name":"b","token":"••••"}]}'
    assert "It is not clear which •••• is which" in text(edited(admin_client, row, shorter).content.decode())
    same = '{"users":[{"name":"a","token":"••••"},{"name":"b","token":"3"}]}'
    assert said(edited(admin_client, row, same)) == ["The dead letter is a job again."]
    assert Job.objects.get().payload["users"] == [{"name": "a", "token": "1"}, {"name": "b", "token": "3"}]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("{oops", "This is not JSON"),
        ("NaN", "This is not JSON"),
        ("7", "Give a list or an object."),
        ("[1]", "missing a required argument"),
        ('{"args": [], "kwargs": {}, "more": 1}', "The task does not take these arguments"),
        ('{"args": ["bob"], "kwargs": {}}', "missing a required argument"),
        ('{"args": ["••••", "x"], "kwargs": {}}', "none is hidden here"),
        ('{"args": ["bob", "x"], "kwargs": {"user": "••••"}}', "none is hidden here"),
        ('{"args": ["bob", "x"], "kwargs": {"api_token": {"a": ["••••"]}}}', "none is hidden here"),
        ('{"args": ["' + "x" * 300 + '", "x"], "kwargs": {}}', "max_payload_bytes allows 200"),
    ],
)
def test_changes_that_are_not_allowed(admin_client: Client, settings: Any, payload: str, why: str) -> None:
    """What is no JSON, no call that the task takes, too large, or hides nothing, is refused and nothing is changed."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"max_payload_bytes": 200}}}
    row = letter(task_path=SIGN_IN, payload=SECRET)
    before = DeadLetter.objects.values().get()
    assert why in text(edited(admin_client, row, payload).content.decode())
    assert DeadLetter.objects.values().get() == before


def test_edit_of_a_letter_that_has_moved_on(admin_client: Client) -> None:
    """When another user was faster, or the key is taken, the page says so, and nothing has changed."""
    row = letter(unique_key="k")
    before, rival = DeadLetter.objects.values().get(), job("scheduled", unique_key="k")
    seen = edited(admin_client, row, '{"args":[3,4],"kwargs":{}}').content.decode()
    assert "A waiting job has its unique key." in seen
    assert DeadLetter.objects.values().get() == before
    rival.delete()
    assert "Meanwhile it has died again" in edited(admin_client, row, seen="another death").content.decode()
    assert DeadLetter.objects.values().get() == before
    dead_letters.requeue(row)
    for view in ("edit", "review"):
        assert said(send(admin_client, view, row.pk))[0].startswith("It is no dead letter any more")


def test_review(admin_client: Client) -> None:
    """A letter is reviewed with a note, which is shown on its page and in the list, with who wrote it; a filter."""
    seen, other = letter(), letter()
    assert said(send(admin_client, "review", seen.pk, note="SMTP was down <b>")) == [
        "The dead letter is marked as reviewed."
    ]
    seen.refresh_from_db()
    assert (seen.reviewed_by, seen.note) == ("admin", "SMTP was down <b>")
    assert "SMTP was down &lt;b&gt;" in page(admin_client, seen)
    assert "SMTP was down &lt;b&gt;" in shown(admin_client, "changelist")
    assert listed(admin_client, "deadletter", reviewed="no") == {other.pk}
    assert listed(admin_client, "deadletter", reviewed="yes") == {seen.pk}
    act(admin_client, "review_selected", seen, other)
    seen.refresh_from_db()
    assert seen.note
    assert not DeadLetter.objects.filter(reviewed_at=None).exists()


def lines(response: Any) -> list[dict[str, Any]]:
    assert response["Content-Type"] == "application/x-ndjson"
    return [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]


def test_export(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that are listed, or selected, are written as JSON lines, each once, with what is secret hidden."""
    monkeypatch.setattr(letter_bulk, "SLICE", 2)
    now = clock.now()
    mine = [letter(task_path=SIGN_IN, payload=SECRET, died_at=now - 5) for _ in range(5)]
    damaged = letter(queue_name="other", payload='{"password": hunter2', history="{oops")
    url = reverse("admin:vtqueue_deadletter_export")
    found = lines(admin_client.get(url, {"queue_name": "default"}))
    assert {row["id"] for row in found} == {str(row.pk) for row in mine}
    assert len(found) == 5
    assert found[0]["arguments"] == {
        "user": "ann", "password": "••••", "api_token": "••••", "note": [{"secret": "••••"}]
    }  # fmt: skip
    assert found[0]["died_at"].endswith("+00:00")
    selected = lines(
        admin_client.post(
            reverse("admin:vtqueue_deadletter_changelist"),
            {"action": "export_selected", "_selected_action": [str(damaged.pk), str(mine[0].pk)]},
        )
    )
    assert {row["id"] for row in selected} == {str(damaged.pk), str(mine[0].pk)}
    assert "hunter2" not in json.dumps(selected)


def test_export_of_a_search(admin_client: Client) -> None:
    """A search is no choice of letters: nothing is exported, and that is said."""
    response = admin_client.get(reverse("admin:vtqueue_deadletter_export"), {"q": "x"}, follow=True)
    assert said(response)[0].startswith("Nothing was done")  # type: ignore[arg-type]


def test_letters_of_a_later_page_are_meant_too(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buttons for all that a filter chooses are on each page of the list, and mean the same on each."""
    monkeypatch.setattr("django_vtqueue.admin.base.ReadOnlyAdmin.list_per_page", 1)
    letter(queue_name="a"), letter(queue_name="a")
    address = reverse("admin:vtqueue_deadletter_changelist")
    first = admin_client.get(address, {"queue_name": "a"})
    second = admin_client.get(address + first.context["cl"].next_link)
    assert second.context["cl"].after
    assert second.context["selected"] == first.context["selected"] == "queue_name=a"


def test_everything_is_escaped(admin_client: Client) -> None:
    """Nothing that a letter brings along becomes markup on these pages."""
    history = json.dumps([Entry(outcome="failed", traceback=EVIL)])
    values = {"task_path": f"a.{EVIL}", "queue_name": EVIL, "message": EVIL, "fingerprint": EVIL, "history": history}
    row = letter(**values, exception_class=EVIL, payload=json.dumps([EVIL]), unique_key=EVIL)
    run = requeueing.start(requeueing.Criteria(queue_name=EVIL, task_path=f"a.{EVIL}"), rate=1, by=EVIL)
    dead_letters.mark_reviewed(row, by=EVIL, note=EVIL)
    run_page = admin_client.get(reverse("admin:vtqueue_requeue_change", args=[run.pk])).content.decode()
    runs = admin_client.get(reverse("admin:vtqueue_requeue_changelist")).content.decode()
    pages = [run_page, runs, shown(admin_client, "groups"), shown(admin_client, "groups", queue_name=EVIL)]
    pages += [shown(admin_client, "edit", row.pk), shown(admin_client, "review", row.pk), page(admin_client, row)]
    pages += [shown(admin_client, view, queue_name=EVIL) for view in ("requeue", "discard", "changelist")]
    for html in pages:
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert" in html


def test_a_note_on_what_another_operator_has_not_seen(admin_client: Client) -> None:
    """A note does not overwrite another one, nor stand on a death that its author has not seen."""
    row = letter()
    page = admin_client.get(reverse("admin:vtqueue_deadletter_review", args=[row.pk]))
    before = page.context["form"].initial["seen"]
    send(admin_client, "review", row.pk, note="the first one", seen=before)
    answer = send(admin_client, "review", row.pk, note="the second one", seen=before)
    assert "look at it once more" in answer.content.decode()
    row.refresh_from_db()
    assert row.note == "the first one"


def test_hidden_values_of_a_list_in_another_order() -> None:
    """Which dots are whose is not guessed: entries may be changed in their place, one at a time, and not be moved."""
    stored = [{"user": "ann", "password": "A"}, {"user": "bob", "password": "B"}]
    shown = [{**entry, "password": MASKED} for entry in stored]
    changed = [{**shown[0], "user": "eve"}, shown[1]]
    assert restored(changed, shown, stored) == [{"user": "eve", "password": "A"}, stored[1]]
    with pytest.raises(ValidationError):
        restored(shown[::-1], shown, stored)
