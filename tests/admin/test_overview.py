"""The first page of the app in the admin: how each queue stands, what the workers do, and what is wrong."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path, reverse

from django_vtqueue.admin import DeadLetterAdmin, JobAdmin, overview
from django_vtqueue.core import clock
from django_vtqueue.core.clock import LAST_INSTANT, SECOND
from django_vtqueue.core.counts import hour_of, minute_of
from django_vtqueue.core.histograms import bucket_of
from django_vtqueue.models import DeadLetter, HourlyThroughput, Job, QueueState, Throughput
from tests.fake_clock import FakeClock

from .rows import OVERVIEW, WORKER, ago, html, job, letter, row_of, worker

pytestmark = pytest.mark.django_db

MINUTE = 60 * SECOND
EVIL = "<script>alert('x')</script>"


def counted(queue_name: str, minutes_ago: int, **values: Any) -> None:
    """Store what a worker did in a minute, and in its hour."""
    minute = minute_of(clock.now()) - minutes_ago * MINUTE
    row = {"queue_name": queue_name, "task_path": str(minutes_ago), "worker_id": WORKER, **values}
    Throughput.objects.create(starts_at=minute, **row)
    HourlyThroughput.objects.create(starts_at=hour_of(minute), **row)


# -- queues -----------------------------------------------------------------------------------------------------------


def test_numbers_of_a_queue(admin_client: Client, time: FakeClock) -> None:
    """Due and for how long, scheduled, retrying, running, expired, dead: each in its place, of its own queue."""
    worker()
    for due in (-1, -90, -2):
        job("emails", due)
    for values in ({}, {}, {"attempts": 1}, {"task_path": ""}):
        job("emails", 3600, **values)
    for due in (30, 30, -5):
        job("emails", due, worker_id=WORKER)
    letter("emails"), letter("other"), job("other")
    job("emails", worker_id=WORKER, state="SUCCESSFUL", finished_at=clock.now())
    assert row_of(admin_client, "queue-emails").startswith("emails 3 1.5 min 3 1 2 1 1 0 0 ")
    assert row_of(admin_client, "queue-other").startswith("other 1 1 s 0 0 0 0 1")


def test_what_waits_and_what_is_parked(admin_client: Client, time: FakeClock) -> None:
    """They stand below the name of the queue, as far as there are any, and lead to their lists."""
    job("other")
    assert row_of(admin_client, "queue-other").startswith("other no worker 1")
    waiting = {"kind": "event", "name": "paid", "until": None, "since": clock.now()}
    row, parked = job("emails", 60), job("emails", 60, concurrency_key="k")
    Job.objects.filter(pk=row.pk).update(state="WAITING", wake_at=LAST_INSTANT, steps={"waiting": waiting})
    Job.objects.filter(pk=parked.pk).update(state="BLOCKED", wake_at=LAST_INSTANT)
    assert row_of(admin_client, "queue-emails").startswith("emails 1 waiting 1 blocked 0 0 0 0 0 0 ")
    page = html(admin_client, OVERVIEW)
    for word, found in (("waiting", row), ("blocked", parked)):
        [url] = re.findall(rf'href="([^"]*\?state={word}&amp;queue_name=emails)"', page)
        listing = admin_client.get(url.replace("&amp;", "&")).context["cl"]
        assert [each.pk for each in listing.result_list] == [found.pk]


def test_each_number_leads_to_its_list(admin_client: Client) -> None:
    """Behind a number is the list of just those jobs, or dead letters; nothing is behind a 0."""
    name = "a b&c'd"
    retrying = (60, {"attempts": 1})
    states = ((-1, {}), (60, {}), retrying, (60, {"worker_id": WORKER}), (-1, {"worker_id": WORKER}))
    rows = [*(job(name, due, **values) for due, values in states), letter(name)]
    job("other"), letter("other")
    shown = html(admin_client)
    row = shown[shown.index('data-key="queue-a b&amp;c&#x27;d"') :].partition("</tr>")[0]
    links = re.findall(r'<a href="([^"]+queue_name=[^"]+)">1<', row)
    assert len(links) == 6
    for link, expected in zip(links, rows, strict=True):
        listed = html(admin_client, link.replace("&amp;", "&"))
        assert re.findall(r"/(?:job|deadletter)/([0-9a-f-]{36})/", listed) == [str(expected.pk)]


def test_capped_numbers(admin_client: Client, monkeypatch: pytest.MonkeyPatch, time: FakeClock) -> None:
    """No number is counted to its end: a plus says that there are more."""
    monkeypatch.setattr(overview, "MOST_COUNTED", 3)
    monkeypatch.setattr(overview, "FEWEST", 3)
    for number in range(5):
        job("emails", -1 - number), job("emails", 60), job("emails", 60, worker_id=WORKER), letter("emails")
    for _ in range(3):
        job("few"), letter("few")
    assert re.match(r"emails no worker 3\+ 5 s 3\+ 0\+ [0-3]\+ 0\+ 3\+", row_of(admin_client, "queue-emails"))
    assert re.match(r"few no worker 3 1 s 0 0 0\+ 0\+ 3 ", row_of(admin_client, "queue-few"))


def test_retries_are_told_of_few(admin_client: Client, monkeypatch: pytest.MonkeyPatch, time: FakeClock) -> None:
    """Of what is due later only some is read to tell retries from the others, and a plus says so."""
    monkeypatch.setattr("django_vtqueue.inspection.overview.READ", 3)
    monkeypatch.setattr("django_vtqueue.inspection.overview.LEAST_READ", 3)
    for number in range(5):
        job("emails", 60 + number, attempts=number % 2)
    assert re.match(r"emails 0 2\+ 1\+ ", row_of(admin_client, "queue-emails"))


def test_rates(admin_client: Client, time: FakeClock) -> None:
    """How many jobs came in the last minute, and how many attempts ended in the last whole one."""
    job("emails")
    counted("emails", 0, succeeded=1000)
    counted("emails", 1, succeeded=1200, failed=30, dead=4)
    assert re.search(r" \d 1,234 Attempts", row_of(admin_client, "queue-emails"))


def test_times(admin_client: Client) -> None:
    """How long jobs waited and attempts ran: half of them, and 95 of 100, no longer than this."""
    ran = {str(bucket_of(2_000_000)): 90, str(bucket_of(40_000_000)): 10}
    counted("emails", 3, succeeded=100, run_times=json.dumps(ran), wait_times=json.dumps({"1": 5}))
    counted("emails", 4, succeeded=1, run_times="{oops")
    found = re.search(r"0 ms 0 ms (\S+) s (\d+) s", row_of(admin_client, "queue-emails"))
    assert found
    assert float(found[1]) == pytest.approx(2, rel=0.1)
    assert float(found[2]) == pytest.approx(40, rel=0.1)


def test_plot(admin_client: Client) -> None:
    """A plot shows what was processed and what of it failed; a screen reader says its numbers."""
    counted("emails", 60, succeeded=1, failed=2, dead=3)
    counted("emails", 100, succeeded=4)
    said = "at most, 10 in all, of which 5 failed."
    assert f"over the last 3 hours: 6 {said}" in row_of(admin_client, "queue-emails")


def test_queues_without_jobs(admin_client: Client, settings: Any) -> None:
    """A queue is shown that the settings name, that did something lately, is paused, or has dead letters."""
    entry = settings.TASKS["default"]
    settings.TASKS = {"default": {**entry, "QUEUES": ["named"], "OPTIONS": {"queue_options": {"tuned": {}}}}}
    counted("active", 170), letter("dead")
    QueueState.objects.create(queue_name="paused", paused_at=ago(1))
    names = re.findall(r'data-key="queue-([^"]+)"', html(admin_client))
    assert names == ["active", "dead", "named", "paused", "tuned"]


def test_many_queues(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many queues those are shown that are paused, or have the most to do, and the page says so."""
    monkeypatch.setattr(overview, "SHOWN", 3)
    for number in range(6):
        for _ in range(number):
            job(f"q{number}")
    QueueState.objects.create(queue_name="idle", paused_at=ago(1))
    shown = html(admin_client)
    assert re.findall(r'data-key="queue-([^"]+)"', shown) == ["idle", "q4", "q5"]
    assert "The busiest queues are shown; 3 quieter ones are not." in shown
    monkeypatch.setattr(overview, "NAMES", 5)
    assert "Only the busiest of the first" in html(admin_client)


# -- workers ----------------------------------------------------------------------------------------------------------


def test_workers(admin_client: Client, time: FakeClock) -> None:
    """Host, pid, queues, slots in use, memory, heartbeat, and what each runs, for how long and how far it is."""
    worker(queues="a,b", memory=93_400_000, silent=2)
    job("a", 60, worker_id=WORKER, started_at=ago(12), progress=0.42, progress_text="page 4 of 10")
    job("b", 60, worker_id=WORKER, started_at=None)
    row = row_of(admin_client, f"worker-{WORKER}")
    assert row.startswith(
        "web1:4711 alive a, b 1 of 4 93 MB 2 s ago shop.tasks.welcome in a, for 12 s 42 % page 4 of 10"
    )
    job("a", 60, worker_id=WORKER, cancelled_at=ago(1)), job("a", -1, worker_id=WORKER)
    row = row_of(admin_client, f"worker-{WORKER}")
    assert " 2 of 4 " in row
    assert "asked to stop" in row
    assert "lease ended" in row


def test_copies(admin_client: Client, time: FakeClock) -> None:
    """A worker that runs an older copy of a job is not idle; it says since when, and how many copies run."""
    other, now = "web1:4712:abcd", clock.now()
    worker(), worker(4712)
    runs = {"1": [WORKER, now - 9 * SECOND, now + MINUTE, 2], "2": [other, now - SECOND, now + MINUTE, 2]}
    job("a", 60, worker_id=other, copies=runs, started_at=ago(1))
    assert row_of(admin_client, f"worker-{WORKER}").startswith(
        "web1:4711 alive (all) 1 of 4 - 0 ms ago shop.tasks.welcome in a, for 9 s 2 copies "
    )
    assert "in a, for 1 s 2 copies" in row_of(admin_client, f"worker-{other}")


def test_a_worker_with_many_jobs(admin_client: Client) -> None:
    """A few of them are listed, and how many more there are."""
    worker(slots=50)
    for _ in range(8):
        job("a", 60, worker_id=WORKER)
    assert "and 3 more" in row_of(admin_client, f"worker-{WORKER}")


# -- the page ---------------------------------------------------------------------------------------------------------


def test_nothing_yet(admin_client: Client) -> None:
    """Before the first job the page says how to come by one; afterwards it does not."""
    assert "Nothing here yet" in html(admin_client)
    job(state="SUCCESSFUL", worker_id=WORKER, finished_at=clock.now())
    assert "Nothing here yet" not in html(admin_client)


def test_few_queries(admin_client: Client) -> None:
    """As many queries for many queues and workers as for one, and 21 at the most."""

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            html(admin_client)
        return len(captured)

    job(), worker(), html(admin_client)
    first = queries()
    for number in range(10):
        job(f"q{number}"), letter(f"q{number}"), counted(f"q{number}", number), worker(number)
        job(f"q{number}", 60, worker_id=f"web1:{number}:abcd")
    assert queries() == first <= 21


def test_everything_is_escaped(admin_client: Client) -> None:
    """No name becomes markup: not of a queue, a task, a worker, a host, nor what is said of progress."""
    job(EVIL), letter(EVIL), counted(EVIL, 1), worker(worker_id=EVIL, host=EVIL, queues=EVIL)
    job(EVIL, 60, worker_id=EVIL, task_path=EVIL, progress=0.1, progress_text=EVIL)
    QueueState.objects.create(queue_name=EVIL, paused_at=ago(1), paused_by=EVIL, reason=EVIL)
    shown = html(admin_client)
    assert "<script>alert" not in shown
    assert shown.count("&lt;script&gt;alert") > 10


def test_nothing_inline(admin_client: Client) -> None:
    """A content security policy may forbid inline scripts, handlers and styles: the page has none of its own."""
    job(), worker(), counted("default", 1, succeeded=1)
    shown = html(admin_client)
    own = shown[shown.index('id="vtq-refreshing"') : shown.index('id="content-main"')]
    assert not re.search(r"<script|<style|\sstyle=|\son[a-z]+=", own)


def test_the_lists_stay_reachable(admin_client: Client) -> None:
    """Below it is Django's own list of the app's models; the admin's index has the app as ever."""
    below = html(admin_client).partition('id="content-main"')[2]
    for model in ("job", "deadletter", "workerprocess"):
        assert reverse(f"admin:vtqueue_{model}_changelist") in below
    index = html(admin_client, reverse("admin:index"))
    assert OVERVIEW in index
    assert "queuestate" not in index
    assert "vtq-overview" not in html(admin_client, "/admin/auth/")


# -- who may see what -------------------------------------------------------------------------------------------------

MARKS = {
    "queues": "vtq-queues-title",
    "dead": ">Dead<",
    "workers": "vtq-workers-title",
    "pause": "queuestate/pause/",
    "ask": "workerprocess/ask/",
    "running": ">shop.",
}


@pytest.mark.parametrize(
    ("permissions", "seen"),
    [
        (["view_job"], {"queues"}),
        (["view_job", "view_deadletter"], {"queues", "dead"}),
        (["view_workerprocess"], {"workers"}),
        (["view_workerprocess", "stop_worker"], {"workers", "ask"}),
        (["view_job", "pause_queue"], {"queues", "pause"}),
        (["view_job", "view_workerprocess"], {"queues", "workers", "running"}),
        (["view_deadletter"], set()),
    ],
)
def test_permissions(staff: Callable[..., Client], permissions: list[str], seen: set[str]) -> None:
    """Everybody sees what they may see, and the buttons that they may press."""
    client = staff(*permissions)
    job(), job(due=60, worker_id=WORKER), letter(), worker()
    shown = html(client).partition('id="vtq-overview"')[2].partition('id="content-main"')[0]
    assert {name for name, mark in MARKS.items() if mark in shown} == seen


def test_without_permissions(staff: Callable[..., Client]) -> None:
    """Whoever may see nothing of the app has no such page."""
    assert staff().get(OVERVIEW).status_code == 404


# -- a site of one's own ----------------------------------------------------------------------------------------------

site = admin.AdminSite(name="office")
site.register(Job, JobAdmin)
site.register(DeadLetter, DeadLetterAdmin)
urlpatterns = [path("office/", site.urls), path("admin/", admin.site.urls)]


@pytest.mark.urls(__name__)
def test_another_site(admin_client: Client) -> None:
    """On another admin site every link stays on that site; what is not registered there is not linked."""
    job("emails"), letter("emails"), worker()
    job("emails", 60, worker_id=WORKER)
    shown = html(admin_client, "/office/vtqueue/")
    own = shown[shown.index('id="vtq-overview"') : shown.index('id="content-main"')]
    links = re.findall(r'(?:href|action)="([^"]+)"', own)
    assert len(links) >= 3
    assert all(link.startswith("/office/") for link in links)
    assert "vtq-workers-title" not in own
    assert "Pause" not in own
