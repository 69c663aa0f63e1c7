"""What the overview says of limits: those of a queue, and the keys for which jobs are parked."""

import re
from typing import Any

import pytest
from django.test import Client

from django_vtqueue.core import clock
from django_vtqueue.core.clock import LAST_INSTANT
from django_vtqueue.inspection import parked_keys
from django_vtqueue.inspection.state import limits_for
from django_vtqueue.inspection.why import why
from django_vtqueue.models import Job
from tests.project.limited import in_order

from .rows import OVERVIEW, WORKER, html, job, row_of

pytestmark = pytest.mark.django_db

IN_ORDER = in_order.module_path


@pytest.fixture(autouse=True)
def limited(settings: Any) -> None:
    """Have two queues with limits of their own."""
    queues = {"narrow": {"concurrency": 2}, "slow": {"concurrency": 3, "rate": "100/m"}}
    settings.TASKS = {
        "default": {
            "BACKEND": "django_vtqueue.backend.VTQueueBackend",
            "QUEUES": ["narrow", "slow", "plain"],
            "OPTIONS": {"queue_options": queues},
        }
    }


def parked(key: str, count: int, **values: Any) -> list[Any]:
    """Store parked jobs of a key; return their ids in the order in which they are listed."""
    rows = [job("narrow", concurrency_key=key, **({"task_path": ""} | values)) for _ in range(count)]
    Job.objects.filter(concurrency_key=key, worker_id="").update(state="BLOCKED", wake_at=LAST_INSTANT)
    return [row.pk for row in rows]


def test_limits_of_a_queue(admin_client: Client) -> None:
    """How many of its jobs run at once, and how often they start; nothing of a queue without limits."""
    job("plain")
    assert row_of(admin_client, "queue-narrow").startswith("narrow 2 at once 0")
    assert row_of(admin_client, "queue-slow").startswith("slow 3 at once, 100/m 0")
    assert row_of(admin_client, "queue-plain").startswith("plain no worker 1")


def test_keys_with_parked_jobs(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys with the most come first, with how many jobs run, and lead to their jobs; numbers stop somewhere."""
    monkeypatch.setattr("django_vtqueue.admin.overview.MOST_PARKED", 3)
    monkeypatch.setattr("django_vtqueue.admin.overview.KEYS_SHOWN", 2)
    assert "Held up by limits" not in html(admin_client, OVERVIEW)
    parked("b", 1), parked("<i>", 5)
    mine = parked("a", 2, task_path=IN_ORDER)
    job("narrow", 60, concurrency_key="<i>", worker_id=WORKER)
    assert row_of(admin_client, "limit-&lt;i&gt;") == "&lt;i&gt; narrow 1 of 2 3+"
    assert row_of(admin_client, "limit-a") == f"a {IN_ORDER} 0 of 1, in order 2"
    page = html(admin_client, OVERVIEW)
    assert "1 more key has blocked jobs." in page
    [url] = re.findall(r'href="([^"]*state=blocked[^"]*%22a%22[^"]*)"', page)
    listing = admin_client.get(url.replace("&amp;", "&")).context["cl"]
    assert [row.pk for row in listing.result_list][:2] == mine
    assert len(listing.result_list) == 3


def test_few_keys_are_looked_at(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are."""
    monkeypatch.setattr(parked_keys, "KEYS", 2)
    for key in "abcd":
        parked(key, 1)
    found, left = parked_keys.parked_keys("default", 1, 10)
    assert ([each.key for each in found], left) == (["a"], 1)


def test_a_task_that_is_not_loaded(admin_client: Client) -> None:
    """What its limit is, is not known here, so neither the overview nor ``why`` says one."""
    first, second = parked("k", 2, task_path="shop.tasks.gone")
    assert row_of(admin_client, "limit-k") == "k shop.tasks.gone 0 2"
    for pk in (first, second):
        told = why(Job.objects.get(pk=pk), clock.now(), limits_for("narrow"))
        assert told.startswith("blocked by the limit 'k': jobs with this key that run: 0; this process has not loaded")
