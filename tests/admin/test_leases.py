"""Leases and time slots in the admin: who holds them, and the history of a row."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from django_vtqueue import Lease
from django_vtqueue.models import Job

from .rows import html, job, row_of
from .test_admin import act, client_with

__all__ = ["client_with"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def lease() -> Iterator[Lease]:
    """Return a lease that is held, for the second time."""
    lease = Lease("nightly", ttl=30)
    lease.acquire()
    lease.release()
    lease.acquire()
    yield lease
    lease.release()


def test_the_overview_has_them(admin_client: Client, lease: Lease) -> None:
    """The overview says who holds each, with which token, since when, and for how long; and what is free."""
    held = f"lease-{Job.objects.get().pk}"
    slot = job("slots:reconcile", task_path="", unique_key="3", worker_id="web1:7:ab", due=20, max_attempts=0)
    host = lease._holder._worker_id.rpartition(":")[0]
    assert row_of(admin_client, held).startswith(f"lease:nightly {host} 2 ")
    assert row_of(admin_client, f"lease-{slot.pk}").startswith("slots:reconcile 3 web1:7 1 ")
    lease.release()
    assert row_of(admin_client, held) == "lease:nightly free 2"


def test_a_holder_that_does_not_renew(admin_client: Client, lease: Lease) -> None:
    """A lease that has ended and was not taken yet is marked."""
    Job.objects.update(lease_until=1)
    assert "lease ended" in row_of(admin_client, f"lease-{Job.objects.get().pk}")


def test_without_any(admin_client: Client) -> None:
    """Where no lease is used, nothing is said of leases; where only leases are used, nobody is told to enqueue."""
    assert "Leases and slots" not in html(admin_client)
    with Lease("x"):
        assert 'data-key="queue-lease:x"' not in html(admin_client)


def test_who_may_see_them(client_with: Callable[..., Client], lease: Lease) -> None:
    """Who may view jobs sees them, and no other user does."""
    client = client_with()
    assert "Leases and slots" in html(client)
    Permission.objects.get(codename="view_job").user_set.clear()
    assert "Leases and slots" not in html(client)


def test_the_page_of_a_row(admin_client: Client, lease: Lease) -> None:
    """Its own page has the holder in a sentence and the history of hand-overs, and no button that changes it."""
    shown = html(admin_client, reverse("admin:vtqueue_job_change", args=[Job.objects.get().pk]))
    assert "with the token 2; renewed, or else free in" in shown
    assert "released" in shown
    lease.release()
    shown = html(admin_client, reverse("admin:vtqueue_job_change", args=[Job.objects.get().pk]))
    for action in ("run_now", "change_priority", "move", "cancel", "delete_selected"):
        assert action not in shown


@pytest.mark.parametrize("action", ["run_now", "cancel", "delete_selected"])
def test_actions_leave_them_out(admin_client: Client, lease: Lease, action: str) -> None:
    """An action that was forged changes nothing."""
    lease.release()
    before = Job.objects.values().get()
    act(admin_client, action, Job.objects.get(), post="yes")
    assert Job.objects.values().get() == before


def test_forms_refuse_the_queue(admin_client: Client) -> None:
    """No form takes the name of a reserved queue."""
    page = reverse("admin:vtqueue_queuestate_pause")
    shown = admin_client.post(page, {"queue_name": "lease:x", "reason": ""}).content.decode()
    assert "is reserved for leases and time slots" in shown
