"""Leases and time slots in the admin: who holds them, and the history of a row."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from django_vtqueue import Lease
from django_vtqueue.core import clock
from django_vtqueue.core.clock import SECOND
from django_vtqueue.models import Job
from django_vtqueue.queue.proof_of_death import declare_dead

from ..fake_clock import FakeClock
from .rows import html, job, row_of
from .test_admin import act, client_with, text

__all__ = ["client_with"]

pytestmark = pytest.mark.django_db


def shown(client: Client) -> str:
    """Return what people read on the page of the one row."""
    return text(html(client, reverse("admin:vtqueue_job_change", args=[Job.objects.get().pk])))


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
    assert row_of(admin_client, held).startswith("lease:nightly free: last acquired ")


def test_a_holder_that_does_not_renew(time: FakeClock, admin_client: Client, lease: Lease) -> None:
    """A lease that has ended is free, also before another instance takes it: that waits for a whole lease; nothing of
    it grows any more.
    """
    until, since = clock.now() - 5 * SECOND, clock.now() - 12 * SECOND
    Job.objects.update(lease_until=until, started_at=since)
    row = row_of(admin_client, f"lease-{Job.objects.get().pk}")
    host = Job.objects.get().worker_id.rpartition(":")[0]
    assert re.fullmatch(
        rf"lease:nightly free: the lease of {host} ended 5 s ago; an instance that asks now waits 30 s 2", row
    )
    term = shown(admin_client)
    assert re.search(rf"lease expired {host} .* 7 s", term)  # from its beginning to the end of the lease
    assert "Holder: free Token: 2 Lease: - " in term


def test_a_dead_holder(admin_client: Client, lease: Lease) -> None:
    """A holder whose process is proven dead holds it no more: the next instance has it at once."""
    bell = lease._holder._bell
    assert bell
    declare_dead(Path(bell.path))
    host = Job.objects.get().worker_id.rpartition(":")[0]
    dead = f"free: the process of {host} is dead"
    assert row_of(admin_client, f"lease-{Job.objects.get().pk}") == f"lease:nightly {dead} 2"
    assert f"{dead}; the last token was 2" in shown(admin_client)
    assert f"worker died {host}" in shown(admin_client)


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
    """Its own page has the holder, the token, until when, and the terms; nothing of a job, and no button."""
    host = Job.objects.get().worker_id.rpartition(":")[0]
    term = shown(admin_client)
    assert f"Holder: {host} Token: 2 Lease: lease ends in " in term
    assert "with the token 2; renewed, or else free in" in term
    assert re.search(rf"Terms .* released {host} .* running {host} ", term)
    assert not re.search("Priority|Attempts|Arguments|enqueued|Queue:", term)
    lease.release()
    page = html(admin_client, reverse("admin:vtqueue_job_change", args=[Job.objects.get().pk]))
    for action in ("run_now", "change_priority", "move", "cancel", "delete_selected"):
        assert action not in page
    assert "due for" not in page


def test_no_list_has_them(admin_client: Client, lease: Lease) -> None:
    """Neither the list of their queue nor a search for an id finds them, so no action is offered for them."""
    row = Job.objects.get()
    for query in ({"queue_name": row.queue_name}, {"q": str(row.pk)}, {"q": row.pk.hex[-8:]}):
        page = admin_client.get(reverse("admin:vtqueue_job_changelist"), query).content.decode()
        assert reverse("admin:vtqueue_job_change", args=[row.pk]) not in page


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
