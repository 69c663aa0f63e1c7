"""The overview beside real workers: it refreshes itself in its place, and its buttons do what they say."""

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from ..processes.database import Database
from ..processes.running import Start
from ..waiting import wait_until
from .conftest import Visit
from .site import SETTINGS, Site
from .tasks import send_receipt

LOW = {"width": 1280, "height": 300}


def row(page: Page, name: str) -> Locator:
    """Return the row of a queue, or of a worker."""
    return page.locator("#vtq-overview").get_by_role("row").filter(has_text=name)


def test_it_refreshes_itself(site: Site, visit: Visit, database: Database, tmp_path: Path) -> None:
    """A job that is enqueued is counted without a reload; what had the focus, and the scrolling, stay."""
    database.enqueue(send_receipt, 1, str(tmp_path))
    with visit() as page:
        page.set_viewport_size(LOW)
        page.goto(site.url)
        due = row(page, "default").get_by_role("cell").first
        expect(due).to_have_text("1")
        page.evaluate("window.loaded = 'once'")
        button = row(page, "default").get_by_role("link", name="Pause")
        button.focus()
        page.evaluate("window.scrollTo(0, 150)")  # at once, where a wheel may go on for a while
        scrolled = page.evaluate("window.scrollY")
        database.enqueue(send_receipt, 2, str(tmp_path))
        expect(due).to_have_text("2")
        assert page.evaluate("[window.loaded, window.scrollY]") == ["once", scrolled]
        expect(button).to_be_focused()


def test_pause_and_resume(site: Site, visit: Visit, database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Nothing of a queue that was paused here runs, with a banner that says so, until it is resumed here."""
    mail = tmp_path / "mail"
    mail.touch()
    first = database.enqueue(send_receipt, 1, str(mail))
    start_worker(DJANGO_SETTINGS_MODULE=SETTINGS)
    wait_until(lambda: database.succeeded(first))
    with visit() as page:
        page.goto(site.url)
        row(page, "default").get_by_role("link", name="Pause").click()
        page.get_by_label("Reason").fill("the mail server is down")
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("is paused by anna: the mail server is down.")).to_be_visible()
        waiting = database.enqueue(send_receipt, 2, str(mail))
        expect(row(page, "default").get_by_role("cell").first).to_have_text("1")
        assert database.job(waiting)["state"] == "READY"
        row(page, "default").get_by_role("button", name="Resume").click()
        wait_until(lambda: database.succeeded(waiting))
        expect(row(page, "default").get_by_role("link", name="Pause")).to_be_visible()


def test_quiet_and_stop(site: Site, visit: Visit, database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A worker that is made quiet here takes nothing, works again when it is told to, and stops when it is told to."""
    worker = start_worker(DJANGO_SETTINGS_MODULE=SETTINGS)
    with visit() as page:
        page.goto(site.url)
        name = f":{worker.process.pid}"
        row(page, name).get_by_role("button", name="Quiet").click()
        wait_until(lambda: "quiet" in worker.log)
        waiting = database.enqueue(send_receipt, 1, str(tmp_path))
        expect(row(page, "default").get_by_role("cell").first).to_have_text("1")
        assert database.job(waiting)["state"] == "READY"
        row(page, name).get_by_role("button", name="Work again").click()
        wait_until(lambda: database.succeeded(waiting))
        row(page, name).locator("summary").click()
        row(page, name).get_by_role("button", name="Stop it").click()
        assert worker.wait() == 0
