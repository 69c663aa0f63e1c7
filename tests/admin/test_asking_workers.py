"""Asking a worker to be quiet, to work again or to stop, and the page of one."""

import re
from collections.abc import Callable

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client

from django_vtqueue.models import WorkerProcess
from tests.fake_clock import FakeClock

from .rows import OVERVIEW, WORKER, ago, html, job, part, row_of, worker

pytestmark = pytest.mark.django_db

ASK = f"{OVERVIEW}workerprocess/ask/"
PAGE = f"{OVERVIEW}workerprocess/web1_3A4711_3Aabcd/change/"


def ask(client: Client, to: str, worker_id: str = WORKER, **more: str) -> HttpResponse:
    """Press a button."""
    return client.post(ASK, {"worker_id": worker_id, "to": to, **more}, follow=True)  # type: ignore[return-value]


def said(response: HttpResponse) -> list[str]:
    return [str(message) for message in response.context["messages"]]  # type: ignore[attr-defined]


def buttons(client: Client, page: str) -> set[str]:
    """Return what the worker can be asked to do on a page."""
    return set(re.findall(r'name="to" value="(\w*)"', html(client, page)))


@pytest.mark.parametrize(
    ("to", "message", "logged", "word", "next_buttons"),
    [
        (
            "quiet",
            "The worker web1:4711 is asked to claim nothing more.",
            "Asked to claim nothing more.",
            "quiet",
            {"", "stop"},
        ),
        ("", "The worker web1:4711 is asked to work again.", "Asked to work again.", "alive", {"quiet", "stop"}),
        ("stop", "The worker web1:4711 is asked to stop.", "Asked to stop.", "stopping", set()),
    ],
)
def test_ask(admin_client: Client, to: str, message: str, logged: str, word: str, next_buttons: set[str]) -> None:
    """What a worker is asked to do is stored for it, said, and logged; both pages offer what can be asked next."""
    worker(), worker(4712, silent=60)
    response = ask(admin_client, to)
    assert said(response) == [message]
    assert response.redirect_chain == [(OVERVIEW, 302)]  # type: ignore[attr-defined]
    assert WorkerProcess.objects.get(pk=WORKER).asked_to == to
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.get_change_message()) == (WORKER, logged)
    assert row_of(admin_client, f"worker-{WORKER}").startswith(f"web1:4711 {word} ")
    assert buttons(admin_client, OVERVIEW) == buttons(admin_client, PAGE) == next_buttons


def test_back_to_where_the_button_was(admin_client: Client) -> None:
    """After a button on the worker's page comes that page again, but never one of another site."""
    worker()
    assert ask(admin_client, "quiet", next=PAGE).redirect_chain == [(PAGE, 302)]  # type: ignore[attr-defined]
    for evil in ("https://evil.example/", "//evil.example/", "javascript:alert(1)"):
        assert ask(admin_client, "", next=evil).redirect_chain == [(OVERVIEW, 302)]  # type: ignore[attr-defined]


def test_a_worker_that_is_gone(admin_client: Client) -> None:
    """A worker that has left cannot be asked; the page says so, and nothing is logged."""
    assert said(ask(admin_client, "stop")) == ["The worker web1:4711 is not here any more."]
    assert not LogEntry.objects.exists()
    worker(silent=60)
    assert buttons(admin_client, OVERVIEW) == buttons(admin_client, PAGE) == set()


def test_what_nobody_can_be_asked(admin_client: Client) -> None:
    """A worker is asked to do what it knows."""
    worker()
    assert ask(admin_client, "explode").status_code == 400
    assert admin_client.post(ASK, {"worker_id": WORKER}).status_code == 400
    assert WorkerProcess.objects.get().asked_to == ""


def test_permission(staff: Callable[..., Client]) -> None:
    """Without the permission there are no buttons, and without that to see jobs none of what it runs."""
    client = staff("view_workerprocess")
    worker(), job("emails", 60, worker_id=WORKER)
    assert buttons(client, OVERVIEW) == buttons(client, PAGE) == set()
    assert "shop." not in html(client, PAGE)


def test_page_of_a_worker(admin_client: Client, time: FakeClock) -> None:
    """It shows what the overview shows, and all jobs that the worker runs, not only a few, and not those of others."""
    worker(memory=50_000_000)
    for number in range(9):
        job("a", 60, worker_id=WORKER, started_at=ago(12), progress=0.1, progress_text=f"page {number}")
    job("a", 60, worker_id="web1:4712:abcd")
    shown = part(html(admin_client, PAGE), '<div id="content-main"', "<footer")
    assert all(f"in a, for 12 s 10 % page {number}" in shown for number in range(9))
    assert shown.count("shop.tasks.welcome") == 9
    assert "50 MB" in shown
