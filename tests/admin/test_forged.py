"""Addresses and forms that no page of ours made: they are answered, and change nothing."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_vtqueue.models import Job

from .rows import worker
from .test_admin import act, job, letter, page, said
from .tools import shown

pytestmark = pytest.mark.django_db

HUGE = "9" * 30
LETTERS = ("requeue", "discard", "export")


@pytest.mark.parametrize("query", [{"died_from": HUGE}, {"died_to": f"-{HUGE}"}])
def test_instants_that_no_database_has(admin_client: Client, query: dict[str, str]) -> None:
    """An address with an instant that is none chooses no letters, and the person is told so."""
    letter()
    for view in LETTERS:
        response = admin_client.get(reverse(f"admin:vtqueue_deadletter_{view}"), query, follow=True)
        assert "choose by queue, task, exception, group and time only" in said(response)[0]  # type: ignore[arg-type]


def test_ids_that_are_none(admin_client: Client) -> None:
    """An action for something that is no id is for nothing; for the others it is carried out."""
    row = job("scheduled")
    where = reverse("admin:vtqueue_job_changelist")
    data: dict[str, Any] = {"action": "run_now", "_selected_action": ["x", "\0"], "page": "1"}
    nothing = said(admin_client.post(where, data, follow=True))  # type: ignore[arg-type]
    assert nothing == ["Your selection is not here any more."]
    one_is_none = ["1 of those selected is not here any more.", "1 job is due now."]
    assert said(act(admin_client, "run_now", row, Job(pk="x"))) == one_is_none


@pytest.mark.parametrize(
    "place",
    [
        "job/?queue_name=%00",
        "deadletter/?task_path=%00",
        "deadletter/groups/?exception_class=%00",
        "queuestate/charts/?task_path=%00",
        "schedule/edit/?name=%00",
        "schedule/%00/change/",
        "workerprocess/%00/change/",
    ],
)
def test_nul(admin_client: Client, place: str) -> None:
    """An address with a NUL character, which no text of PostgreSQL has, is refused and is no error of the server."""
    assert admin_client.get(f"{reverse('admin:app_list', args=['vtqueue'])}{place}").status_code == 400


@pytest.mark.parametrize(
    ("name", "data"), [("schedule_run", {"name": "\0"}), ("workerprocess_ask", {"worker_id": "\0"})]
)
def test_nul_of_a_form(admin_client: Client, name: str, data: dict[str, str]) -> None:
    """So is a form of ours with one."""
    assert admin_client.post(reverse(f"admin:vtqueue_{name}"), {"to": "quiet", **data}).status_code == 400


def test_a_page_to_return_to_is_an_address(admin_client: Client) -> None:
    """What a form names as the page to return to is taken for an address, never for the name of a view."""
    row = worker()
    for page_name in ("foo", "auth_user"):
        data = {"worker_id": row.pk, "to": "quiet", "next": page_name}
        assert admin_client.post(reverse("admin:vtqueue_workerprocess_ask"), data)["Location"] == page_name


def test_half_a_character(admin_client: Client) -> None:
    """A payload with half a character, which JSON can hold, is shown and edited by its escape."""
    payload = '{"args":[1,"\\ud800"],"kwargs":{}}'
    waiting, dead = job(payload=payload), letter(payload=payload)
    again = admin_client.get(reverse("admin:vtqueue_job_enqueue"), {"like": str(waiting.pk)}).content.decode()
    for html in (page(admin_client, waiting), page(admin_client, dead), shown(admin_client, "edit", dead.pk), again):
        assert "\\ud800" in html
