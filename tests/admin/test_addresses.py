"""One address for an id, whatever has become of the job: its page, the letter's, or the news that it is gone."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from django_vtqueue.core.ids import new_id
from django_vtqueue.queue import dead_letters
from tests.pending import run_pending

from ..fake_clock import FakeClock
from .test_admin import act, job, letter, said, text

pytestmark = pytest.mark.django_db


def address_of(row: Model | UUID, model: str = "") -> str:
    """Return the address of the page of a row, or of an id in the table of a model."""
    name = model or str(row._meta.model_name)
    return reverse(f"admin:vtqueue_{name}_change", args=[getattr(row, "pk", row)])


def visit(client: Client, address: str, **query: str) -> Any:
    return client.get(address, query, follow=True)


def landed(response: Any) -> str:
    """Return where a visit has ended."""
    return str(response.redirect_chain[-1][0]) if response.redirect_chain else str(response.request["PATH_INFO"])


def test_a_dead_job_is_its_letter(admin_client: Client) -> None:
    """The link of a job that has died since leads to its dead letter."""
    row = letter()
    response = visit(admin_client, address_of(row.pk, "job"))
    assert landed(response) == address_of(row)
    assert said(response)[0].startswith("It died at ")


def test_a_requeued_letter_is_its_job(admin_client: Client, time: FakeClock) -> None:
    """The link of a letter leads to the job again, and says by whom it was requeued and what came of it."""
    row = letter()
    dead_letters.requeue([row.pk], by="bob")
    response = visit(admin_client, address_of(row.pk, "deadletter"))
    assert landed(response) == address_of(row.pk, "job")
    assert said(response)[0].startswith("It was requeued by bob at ")
    time.advance(2)
    run_pending()
    [sentence] = said(visit(admin_client, address_of(row.pk, "deadletter")))
    assert sentence.endswith(", and done 2 s later.")


@pytest.mark.parametrize("page", ["edit", "review"])
def test_who_comes_second(admin_client: Client, page: str) -> None:
    """A user who acts on a letter that another user has requeued is led to the job, and reads who it was."""
    row = letter()
    dead_letters.requeue([row.pk], by="bob")
    response = visit(admin_client, reverse(f"admin:vtqueue_deadletter_{page}", args=[row.pk]))
    assert landed(response) == address_of(row.pk, "job")
    assert "It was requeued by bob at" in " ".join(said(response))


def test_after_requeue_one_stands_on_the_job(admin_client: Client) -> None:
    """After a requeue the page is that of the job; after a job that waits was cancelled, that of its dead letter."""
    dead, waiting = letter(), job()
    assert landed(act(admin_client, "requeue", dead, page="1")) == address_of(dead.pk, "job")
    assert landed(act(admin_client, "cancel", waiting, page="1")) == address_of(waiting.pk, "deadletter")


@pytest.mark.parametrize("model", ["job", "deadletter"])
@pytest.mark.parametrize("page", ["change", "history"])
def test_what_is_gone(admin_client: Client, model: str, page: str) -> None:
    """An id that is in neither table has a page inside the app that says so, not the index of the site."""
    response = visit(admin_client, reverse(f"admin:vtqueue_{model}_{page}", args=[UUID(new_id())]))
    assert (response.status_code, response.redirect_chain) == (404, [])
    assert "No job and no dead letter has the id" in text(response.content.decode())


def test_what_is_no_id(admin_client: Client) -> None:
    response = visit(admin_client, address_of("<oops>", "job"))  # type: ignore[arg-type]
    assert response.status_code == 404
    assert "“&lt;oops&gt;” is no id of a job." in response.content.decode()


def test_who_deleted_it(admin_client: Client) -> None:
    """The page of what is gone has the lines of the admin's log."""
    row = job()
    act(admin_client, "delete_selected", row, post="yes")
    shown = text(visit(admin_client, address_of(row)).content.decode())
    assert LogEntry.objects.get().user.get_username() in shown
    assert "Discarded." in shown


def test_only_for_those_who_may_see_it(staff: Callable[..., Client]) -> None:
    """A user is not led to a table that they may not see, and does not read its log."""
    row = letter()
    client = staff("view_job")
    response = visit(client, address_of(row.pk, "job"))
    assert (response.status_code, response.redirect_chain) == (403, [])  # it is not said to be gone
    assert visit(client, address_of(UUID(new_id()), "deadletter")).status_code == 403
    assert visit(client, reverse("admin:vtqueue_deadletter_history", args=[UUID(new_id())])).status_code == 403


@pytest.mark.parametrize("digits", [8, 12, 17, 32, 36])
def test_one_search_finds_an_id(admin_client: Client, digits: int) -> None:
    """Whatever its state: the search of jobs leads to a dead letter, and that of letters to a job."""
    dead, done = letter(), job("done")
    for row, other in ((dead, "job"), (done, "deadletter")):
        written = str(row.pk) if digits == 36 else row.pk.hex[-digits:]
        response = visit(admin_client, reverse(f"admin:vtqueue_{other}_changelist"), q=f"…{written}")
        assert landed(response) == address_of(row)


def test_a_search_for_several_or_for_text_stays_where_it_is(admin_client: Client) -> None:
    """Digits that end the ids of two letters lead to neither; a search that finds something here leads nowhere."""
    for begin in ("0", "1"):
        letter(id=UUID(begin * 24 + "deadbeef"))
    assert visit(admin_client, reverse("admin:vtqueue_job_changelist"), q="deadbeef").redirect_chain == []
    here = job(id=UUID("2" * 24 + "deadbeef"))
    response = visit(admin_client, reverse("admin:vtqueue_job_changelist"), q="deadbeef")
    assert [row.pk for row in response.context["cl"].result_list] == [here.pk]


def test_the_overview_has_a_search(admin_client: Client, staff: Callable[..., Client]) -> None:
    """It leads to the list of jobs, or to that of letters for those who may see these only."""
    address = reverse("admin:app_list", args=["vtqueue"])
    assert f'action="{reverse("admin:vtqueue_job_changelist")}"' in admin_client.get(address).content.decode()
    own = staff("view_deadletter").get(address).content.decode()
    assert f'action="{reverse("admin:vtqueue_deadletter_changelist")}"' in own


@pytest.mark.parametrize("ended", [None, "x", 1e400])
def test_a_damaged_history_is_no_reason_to_fail(admin_client: Client, ended: Any) -> None:
    """Who asks for the letter that a job was is led to the job, whatever its history says of the requeue."""
    row = job("done", history=json.dumps([{"outcome": "requeued", "ended": ended}]))
    assert landed(visit(admin_client, address_of(row.pk, "deadletter"))) == address_of(row)
