"""Leases and time slots on the overview, beside real instances."""

import re
from pathlib import Path

from playwright.sync_api import expect

from ..processes.database import Database
from ..processes.running import Start
from .conftest import Visit
from .site import PHONE, SETTINGS, Site
from .test_overview import row


def test_a_hand_over(site: Site, visit: Visit, database: Database, start: Start, tmp_path: Path) -> None:
    """The page shows the leader, and, without a reload, the one that takes over; the row's page has the history."""
    options = {"DJANGO_SETTINGS_MODULE": SETTINGS}
    instances = [
        start("-m", "tests.processes.instance", "shop", "20", str(tmp_path / f"held{number}"), **options)
        for number in range(2)
    ]
    with visit() as page:
        page.goto(site.url)
        lease = row(page, "lease:shop")
        expect(lease).to_have_text(re.compile(r":\d+"))
        page.evaluate("window.loaded = 'once'")
        first = next(each for each in instances if f":{each.pid}" in lease.inner_text())
        second = next(each for each in instances if each is not first)
        first.kill()
        expect(lease).to_contain_text(f":{second.pid}")
        assert page.evaluate("window.loaded") == "once"
        page.set_viewport_size(PHONE)
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wider) <= 0
        holder = lease.locator("td").first  # takes the whole width: its label and a sentence stand beside each other
        assert holder.evaluate("cell => cell.clientWidth > 0.9 * cell.parentElement.clientWidth")
        lease.get_by_role("link").click()
        expect(page.get_by_text(f":{first.pid}").first).to_be_visible()
        expect(page.get_by_text("renewed, or else free in").first).to_be_visible()
        expect(page.locator(".field-timeline")).to_contain_text("worker died")
        second.kill()
        expect(page.get_by_text("is dead; the last token was 2").first).to_be_visible()
        page.goto(site.url)
        expect(row(page, "lease:shop")).to_contain_text(f"{second.pid} is dead")
