"""The charts: what was done over an hour, a day and a week, of all, a queue or a task."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from django_vtqueue.core import clock
from django_vtqueue.core.counts import HOUR, MINUTE, hour_of, minute_of
from django_vtqueue.core.histograms import bucket_of
from django_vtqueue.inspection.charts import charted
from django_vtqueue.models import HourlyThroughput, Throughput

from .rows import worker
from .test_admin import text
from .tools import group, shown

pytestmark = pytest.mark.django_db
SECOND = 1_000_000
MAIL = "shop.tasks.mail"


def stored(
    model: Any, minute: int, queue_name: str = "mail", task_path: str = "shop.tasks.mail", **values: Any
) -> None:
    """Store what a worker did."""
    model.objects.create(starts_at=minute, queue_name=queue_name, task_path=task_path, worker_id="w", **values)


def page(client: Client, **query: str) -> str:
    response = client.get(reverse("admin:vtqueue_queuestate_charts"), query)
    assert response.status_code == 200
    return response.content.decode()


def test_what_is_chosen(admin_client: Client) -> None:
    """The charts are of all queues, of one of them, or of one task; only what is chosen is counted."""
    now = minute_of(clock.now())
    times = json.dumps({bucket_of(2 * SECOND): 3})
    stored(Throughput, now, succeeded=3, dead=1, run_times=times, depth=40)
    stored(Throughput, now, "other", "shop.tasks.other", succeeded=10, failed=2, depth=2)
    html = page(admin_client)
    assert "Attempts: 13 succeeded, 3 failed." in html
    assert "Failures: 1 died, 2 to be retried." in html
    assert "at most 42 due" in html
    of_queue = page(admin_client, queue_name="mail")
    assert "Attempts: 3 succeeded, 1 failed. At most 4," in of_queue
    assert "at most 40 due" in of_queue
    of_task = page(admin_client, task_path="shop.tasks.other")
    assert "Attempts: 10 succeeded, 2 failed." in of_task
    assert "Run: nothing was measured." in of_task
    assert "at most" not in of_task


@pytest.mark.parametrize(("span", "slots", "sums"), [("hour", 60, [1]), ("day", 96, [1, 2]), ("week", 168, [4, 8])])
def test_spans(span: str, slots: int, sums: list[int]) -> None:
    """An hour is read by the minute, a day by 15 minutes, a week by the hour; what is older is left out."""
    now = clock.now()
    stored(Throughput, minute_of(now), succeeded=1)
    stored(Throughput, minute_of(now) - 5 * HOUR, succeeded=2)
    stored(Throughput, minute_of(now) - 25 * HOUR, succeeded=9)
    stored(HourlyThroughput, hour_of(now), succeeded=4)
    stored(HourlyThroughput, hour_of(now) - 6 * 24 * HOUR, succeeded=8)
    stored(HourlyThroughput, hour_of(now) - 8 * 24 * HOUR, succeeded=9)
    found, _ = charted("default", now, span)
    assert slots - 4 < len(found) <= slots
    assert sorted(slot.succeeded for slot in found if slot.succeeded) == sums
    assert found[-1].succeeded == sums[0]


def test_nothing_and_nonsense(admin_client: Client) -> None:
    """A page without any numbers is a page, whatever its address asks for; damaged rows are left out."""
    stored(Throughput, minute_of(clock.now()), succeeded=1, run_times="{", wait_times="[]")
    assert "Attempts: 1 succeeded, 0 failed." in page(admin_client, span="century")
    html = page(admin_client, span="week", queue_name="<script>alert('x')</script>")
    assert "<script>alert" not in html
    assert "Attempts: 0 succeeded, 0 failed." in html


def test_permission(client: Client) -> None:
    """The charts are for those who may see jobs, and only they find links to them."""
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_deadletter"))
    client.force_login(user)
    assert client.get(reverse("admin:vtqueue_queuestate_charts")).status_code == 403
    group("a", 1, task_path=MAIL)
    assert "queuestate/charts" not in shown(client, "groups")


def test_the_overview_leads_there(admin_client: Client) -> None:
    """The plot of a queue, and a button, lead to the charts."""
    worker(), stored(Throughput, minute_of(clock.now()), succeeded=1)
    html = admin_client.get("/admin/vtqueue/").content.decode()
    assert 'queuestate/charts/?queue_name=mail"' in html
    assert 'queuestate/charts/"' in html


def test_did_the_fix_work(admin_client: Client) -> None:
    """A group says whether it still fails, and how many attempts at its task have succeeded since its last death."""
    group("a", 1, task_path="shop.tasks.mail")
    said = text(shown(admin_client, "groups"))
    assert "still fails" in said
    assert "none succeeded since" in said
    stored(Throughput, minute_of(clock.now()) + MINUTE, succeeded=7)
    stored(Throughput, minute_of(clock.now()) - MINUTE, succeeded=100)
    said = text(shown(admin_client, "groups"))
    assert "still fails" not in said
    assert "7 succeeded since" in said
