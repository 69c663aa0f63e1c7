"""The page of a job: its steps with their waits, what is asked of it, how far it is, and where its links lead."""

import html
import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.utils import quote as admin_quoted
from django.test import Client
from django.urls import reverse

from django_vtqueue import Queue
from django_vtqueue.core import clock
from django_vtqueue.core.history import Entry
from django_vtqueue.models import Job, WorkerProcess

from ..fake_clock import FakeClock
from .test_admin import EVIL, HOUR, SECOND, job, letter, listed, page, text

pytestmark = pytest.mark.django_db

WEB1 = "web1:4711:abcd"


def failed(number: int, started: int, ended: int, **more: Any) -> Entry:
    """Return a failed attempt."""
    return Entry(number=number, worker=WEB1, started=started, ended=ended, outcome="failed", **more)


def test_each_step_with_its_wait(admin_client: Client, time: FakeClock) -> None:
    """From the enqueueing on: the wait before each attempt, how long it took, what people did, what is next."""
    begin = clock.now() - HOUR
    history = [
        failed(1, begin + 3 * SECOND, begin + 5 * SECOND),
        failed(2, begin + 65 * SECOND, begin + 66 * SECOND),
        {"worker": "ann", "ended": begin + 100 * SECOND, "outcome": "requeued"},
        failed(3, begin + 102 * SECOND, begin + 103 * SECOND),
    ]
    waiting = job("retrying", enqueued_at=begin, history=json.dumps(history))
    shown = text(page(admin_client, waiting))
    assert re.search(
        r"enqueued .* 1 failed web1:4711 3 s .* 2 s 2 failed web1:4711 1 min .* 1 s requeued ann .* "
        r"3 failed web1:4711 2 s .* 1 s retrying due in 1 h",
        shown,
    )


def test_steps_of_a_job_that_nobody_has_run(admin_client: Client, time: FakeClock) -> None:
    """One that waits has been enqueued and says when it is due; one that was cancelled then says by whom."""
    assert re.search(r"enqueued .* scheduled due in 1 h", text(page(admin_client, job("scheduled"))))
    cancelled = [Entry(number=0, worker="ann", started=None, ended=clock.now(), outcome="cancelled")]
    assert re.search(r"enqueued .* cancelled ann", text(page(admin_client, letter(history=json.dumps(cancelled)))))


def test_the_lease(admin_client: Client, time: FakeClock) -> None:
    """Of a running job one reads for how long, how far and where; of its lease only under details."""
    now = clock.now()
    row = job("running", visible_at=now + 30 * SECOND, started_at=now - 48 * SECOND, progress=0.06)
    shown = admin_client.get(reverse("admin:vtqueue_job_changelist")).content.decode()
    assert "48 s, 6 %, web1:4711" in text(shown)
    assert "lease ends" not in text(shown)
    top, details = text(page(admin_client, row)).split("Details", 1)
    assert "48 s, 6 %, web1:4711" in top
    assert "ease ends" not in top
    assert "Lease: lease ends in 30 s" in details
    ahead = job("running", started_at=None)
    assert "waits for a slot of web1:4711" in text(page(admin_client, ahead))


def test_links(admin_client: Client) -> None:
    """From a job one comes to the jobs of its queue and of its task, and to the page of a worker that is there."""
    worker_id = f"web/1:4711:{EVIL}"
    row = job("done", queue_name="a&b", worker_id=worker_id)
    other = job()
    before = page(admin_client, row)
    WorkerProcess.objects.create(
        worker_id=worker_id, host="web1", pid=1, slots=1, started_at=clock.now(), heartbeat_at=clock.now()
    )
    shown = page(admin_client, row)
    links = set(re.findall(r'href="([^"]+)"', shown)) - set(re.findall(r'href="([^"]+)"', before))
    assert len(links) == 1
    assert admin_client.get(html.unescape(links.pop())).context["original"].pk == worker_id
    assert f'href="{reverse("admin:vtqueue_job_changelist")}?queue_name={quote("a&b")}"' in shown
    assert listed(admin_client, queue_name="a&b") == {row.pk}
    assert listed(admin_client, task_path=row.task_path) == {row.pk, other.pk}
    assert "<script>alert" not in shown


@pytest.mark.parametrize(("progress", "percent"), [(0.4, 40), (0.0, 0), (1.0, 100), (7.5, 100), (-1.0, 0)])
def test_progress(admin_client: Client, progress: float, percent: int) -> None:
    """What a task has said of its progress is a bar with its words; one that says nothing has none."""
    shown = page(admin_client, job("running", progress=progress, progress_text=f"page 4 {EVIL}"))
    assert f'max="100" value="{percent}" aria-label="Progress"' in shown
    assert f"{percent}% page 4" in text(shown)
    assert "<script>alert" not in shown
    assert "<progress" not in page(admin_client, job("running"))


def test_asked_to_stop(admin_client: Client) -> None:
    """A job that was asked to stop says so, since when and by whom, and is not asked again."""
    shown = page(admin_client, job("running", cancelled_at=clock.now(), cancelled_by="ann"))
    assert text(shown).count("ann") >= 2
    assert 'value="cancel"' not in shown
    assert "Asked to stop" not in page(admin_client, job("running"))


def test_copies(admin_client: Client, time: FakeClock) -> None:
    """Of a job that several workers run one reads which, each with a link to its page, and for how long."""
    now = clock.now()
    WorkerProcess.objects.create(worker_id=WEB1, host="web1", pid=1, slots=1, started_at=now, heartbeat_at=now)
    runs = {"1": [WEB1, now - 9 * SECOND, now], "2": [f"web1:4712:{EVIL}", now, now]}
    shown = page(admin_client, job("running", copies=runs))
    assert "Copies: web1:4711 (9 s), web1:4712 (0 ms)" in text(shown)
    assert reverse("admin:vtqueue_workerprocess_change", args=(admin_quoted(WEB1),)) in shown
    assert "<script>alert" not in shown
    runs = {"1": [WEB1, now - 9 * SECOND, now + 1, 2], "2": ["web1:4712:x", now - SECOND, now + 1, 2]}
    shown = text(page(admin_client, job("expired", copies=runs)))
    assert "9 s, 2 copies" in shown  # not the last one only, which is not lost either
    assert re.search(r"1 running web1:4711 .* 1 running web1:4712 ", shown)
    assert "Copies:" not in text(page(admin_client, job("done", copies=runs)))
    assert "Copies: -" not in text(page(admin_client, job("running", copies="damaged")))


def test_a_traceback_is_folded(admin_client: Client) -> None:
    """A traceback is there, below its attempt, and folded."""
    now = clock.now()
    history = [failed(1, now, now, exception_class="KeyError", message="'id'", traceback="Traceback: here")]
    shown = page(admin_client, letter(history=json.dumps(history)))
    assert '<details><summary>Traceback</summary><div class="vtq-copyable">' in shown
    assert '<pre class="vtq-text">Traceback: here</pre></div></details>' in shown


@pytest.mark.parametrize(
    ("until", "words"),
    [("done", "until it is done"), ("start", "until it starts"), ("started", "free since it has started")],
)
def test_the_unique_key(admin_client: Client, until: str, words: str) -> None:
    """Of a job and of a letter, with until when no other job has it; in the list of jobs beside the queue.

    Of a job that is done it is the key alone.
    """
    for row in (job(unique_key="report:7", unique_until=until), letter(unique_key="report:7", unique_until=until)):
        assert f"report:7 {words}" in text(page(admin_client, row))
    changelist = admin_client.get(reverse("admin:vtqueue_job_changelist")).content.decode()
    assert "default · report:7" in text(changelist)
    shown = text(page(admin_client, job("done", unique_key="report:7", unique_until=until)))
    assert "report:7" in shown
    assert words not in shown


def test_the_expiry(admin_client: Client, time: FakeClock) -> None:
    """Of a job that waits, with the time left, once on its page and in the list; of one that runs, or has any time,
    not. One whose time has come is not due any more, but has expired.
    """
    now = clock.now()
    row = job(start_by=now + 90 * SECOND)
    assert text(page(admin_client, row)).count("expires in 1.5 min") == 1
    changelist = text(admin_client.get(reverse("admin:vtqueue_job_changelist")).content.decode())
    assert "; expires in 1.5 min" in changelist
    Job.objects.update(start_by=now - 90 * SECOND)
    assert "expired 1.5 min ago, so a worker will" in text(page(admin_client, row))
    changelist = text(admin_client.get(reverse("admin:vtqueue_job_changelist")).content.decode())
    for shown in (changelist, text(page(admin_client, row))):
        assert "expired expired 1.5 min ago" in re.sub("State: |When: ", "", shown)
        assert "due for" not in shown
    row.delete()
    for other in (job(), job("running", start_by=now + SECOND)):
        assert "expire" not in text(page(admin_client, other)).lower().replace("expired leases", "")


def test_an_expired_letter(admin_client: Client, time: FakeClock) -> None:
    """Its history says that it has expired, as a deed of nobody."""
    entry = Entry(number=0, worker="", started=None, ended=clock.now(), outcome="expired")
    assert re.search(r"enqueued .* expired", text(page(admin_client, letter(history=json.dumps([entry])))))


TURNED = "a\u202eb"


def test_a_worker_whose_name_turns_lines_has_its_link(admin_client: Client, time: FakeClock) -> None:
    """Its name is shown with the escape of the mark, and leads to its page."""
    name, now = f"{TURNED}:1:ff", clock.now()
    WorkerProcess.objects.create(worker_id=name, host=TURNED, pid=1, slots=1, started_at=now, heartbeat_at=now)
    shown = page(admin_client, job("running", worker_id=name))
    url = reverse("admin:vtqueue_workerprocess_change", args=(admin_quoted(name),))
    assert rf'<a href="{url}">a\u202eb:1</a>' in shown
    assert admin_client.get(url).context["original"].pk == name


def test_what_users_wrote_turns_no_line(admin_client: Client, time: FakeClock) -> None:
    """A reason, a progress text, an argument or a message with a mark that turns what follows is shown with its escape.

    Only a link, a field or a name in a cell of its own has it as it is.
    """
    Queue("default").pause(TURNED)
    shown = [
        page(admin_client, job(payload=json.dumps({"args": [TURNED, 2], "kwargs": {}}, ensure_ascii=False))),
        page(admin_client, job("running", progress=0.5, progress_text=TURNED)),
        page(admin_client, letter(message=TURNED, history=json.dumps([failed(1, 1, 2, message=TURNED)]))),
        admin_client.get(reverse("admin:app_list", args=["vtqueue"])).content.decode(),
    ]
    assert [html.count(TURNED) for html in shown] == [0] * 4
    assert all(r"a\u202eb" in html for html in shown)
