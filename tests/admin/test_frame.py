"""What every page of the app has: its tabs, a title of its own, times with their zone, one word for each deed."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_vtqueue import requeueing

from .rows import html, worker
from .test_admin import act, job, letter, page, text
from .test_admin import client_with as client_with
from .tools import group

pytestmark = pytest.mark.django_db

TABS = ["Overview", "Jobs", "Dead letters", "Failures", "Requeues", "Schedules", "Workers", "Charts"]


def addresses() -> dict[str, str]:
    """Return a page of each kind, with the tab that leads there."""
    group("a", 2)
    seen, held = letter(), job("running", worker_id=worker().pk)
    run = requeueing.start(requeueing.Criteria())

    def the(name: str, *args: Any) -> str:
        return reverse(f"admin:vtqueue_{name}", args=args)

    jobs = ("job_changelist",), ("job_change", held.pk), ("job_enqueue",), ("job_history", held.pk)
    letters = [("deadletter_changelist",), ("deadletter_requeue",), ("deadletter_discard",)]
    letters += [(f"deadletter_{view}", seen.pk) for view in ("change", "edit", "review", "history")]
    found = {reverse("admin:app_list", args=["vtqueue"]): "Overview", the("deadletter_groups"): "Failures"}
    found |= {the(*each): "Jobs" for each in jobs} | {the(*each): "Dead letters" for each in letters}
    found |= {
        the("queuestate_charts"): "Charts",
        the("requeue_changelist"): "Requeues",
        the("requeue_change", run.pk): "Requeues",
    }
    return found | {the("workerprocess_changelist"): "Workers", the("workerprocess_change", held.worker_id): "Workers"}


def test_tabs(admin_client: Client) -> None:
    """Each page has the tabs of the app, says on which of them one is, and in which zone its times are."""
    for address, tab in addresses().items():
        nav = html(admin_client, address).partition('class="vtq-tabs"')[2].partition("</nav>")[0]
        assert re.findall(r">([^<>\n]+)</a>", nav) == TABS, address
        assert re.findall(r'aria-current="true">([^<]+)<', nav) == [tab], address
        assert "Times are in CST." in nav or "Times are in UTC." in nav


def test_tabs_of_who_may_not_see_all(client_with: Any) -> None:
    """A tab that its user may not open is left out."""
    client = client_with()
    client.get("/admin/")
    nav = html(client).partition('class="vtq-tabs"')[2].partition("</nav>")[0]
    assert re.findall(r">([^<>\n]+)</a>", nav) == [tab for tab in TABS if tab not in ("Requeues", "Schedules")]


def test_tables_have_captions(admin_client: Client) -> None:
    """Each table says of what it is to those who cannot see what is around it."""
    for address in addresses():
        shown = html(admin_client, address)
        if "_history" in address or address.endswith("/history/"):  # Django's own
            continue
        for table in re.findall(r"<table\b.*?</thead>|<table\b.*?</table>", shown, re.DOTALL):
            assert "<caption" in table or 'role="presentation"' in table, (address, table[:200])


def test_titles(admin_client: Client) -> None:
    """A page has the name of what it shows: nothing is selected to be viewed."""
    pages = {"job": ("Jobs", "Job"), "deadletter": ("Dead letters", "Dead letter")}
    rows = {"job": job().pk, "deadletter": letter().pk}
    for name, titles in pages.items():
        shown = [
            html(admin_client, reverse(f"admin:vtqueue_{name}_changelist")),
            html(admin_client, reverse(f"admin:vtqueue_{name}_change", args=[rows[name]])),
        ]
        assert [re.findall("<h1>(.*?)</h1>", each)[0] for each in shown] == list(titles)


def test_times_have_a_zone(admin_client: Client, settings: Any) -> None:
    """The whole of a time, which one reads when one points at it, has its zone."""
    settings.TIME_ZONE = "Asia/Tokyo"
    shown = html(admin_client, reverse("admin:vtqueue_deadletter_change", args=[letter().pk]))
    assert re.search(r'title="\d{4}-\d\d-\d\d \d\d:\d\d:\d\d JST"', shown)
    assert "Times are in JST." in shown


@pytest.mark.parametrize("name", ["job", "deadletter"])
def test_one_word_for_what_is_gone_for_good(admin_client: Client, name: str) -> None:
    """To discard is called so everywhere, looks like it, and asks; nothing is deleted anywhere."""
    row = job() if name == "job" else letter()
    own = page(admin_client, row)
    asked = act(admin_client, "delete_selected", row).content.decode()
    for shown in (own, html(admin_client, reverse(f"admin:vtqueue_{name}_changelist")), asked):
        assert "Discard" in text(shown)
        assert "elete" not in text(shown)
    assert '<button type="submit" class="vtq-danger">Discard</button>' in own
    assert "will be discarded for good." in asked
    assert 'class="vtq-danger" value="Discard"' in asked
    assert str(row.pk) in asked
    assert type(row).objects.get() == row
