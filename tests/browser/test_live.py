"""Pages that refresh themselves beside real workers: what changes is seen without a reload, what people did stays."""

from pathlib import Path

from playwright.sync_api import Page, expect

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.running import Start
from ..waiting import wait_until
from .accessibility import faults_of
from .conftest import Visit
from .rows import fill
from .site import SETTINGS, Site, Visitors
from .tasks import send_receipt


def marked(page: Page) -> Page:
    """Have a page remember that it was loaded once."""
    page.evaluate("window.loaded = 'once'")
    return page


def loaded_once(page: Page) -> bool:
    return bool(page.evaluate("window.loaded") == "once")


def test_a_list(site: Site, visit: Visit, database: Database, tmp_path: Path) -> None:
    """A new job comes to the list; what was ticked, typed and opened stays, each box with its row."""
    first = database.enqueue(send_receipt, 1, str(tmp_path))
    with visit() as page:
        page.goto(f"{site.url}job/")
        marked(page).locator("input.action-select").check()
        page.locator("#searchbar").fill("half a wo")
        second = database.enqueue(send_receipt, 2, str(tmp_path))
        expect(page.locator("input.action-select")).to_have_count(2)
        ticked = page.locator("input.action-select:checked")
        expect(ticked).to_have_count(1)
        assert (ticked.get_attribute("value") or "").replace("-", "") == first != second
        expect(page.locator("tr.selected")).to_have_count(1)
        expect(page.locator("#searchbar")).to_have_value("half a wo")
        assert loaded_once(page)


def test_a_job(site: Site, visit: Visit, database: Database, start_worker: Start, tmp_path: Path) -> None:
    """One sees a job run and succeed; then nothing can change any more, and the page asks no more."""
    job_id = database.enqueue(send_receipt, 1, str(tmp_path / "mail"))
    with visit() as page:
        page.goto(f"{site.url}job/{job_id}/change/")
        expect(marked(page).locator(".vtq-word").first).to_have_text("due")
        (tmp_path / "mail").touch()
        start_worker(DJANGO_SETTINGS_MODULE=SETTINGS)
        wait_until(lambda: database.succeeded(job_id))
        expect(page.locator(".vtq-word").first).to_have_text("done")
        expect(page.get_by_role("button", name="Pause refreshing")).to_be_hidden()
        assert loaded_once(page)


def test_a_job_that_is_deleted(
    site: Site, visit: Visit, visitors: Visitors, database: Database, tmp_path: Path
) -> None:
    """A user who looks at it reads that it is gone."""
    job_id = database.enqueue(send_receipt, 1, str(tmp_path))
    with visit() as page:
        page.goto(f"{site.url}job/{job_id}/change/")
        database.write("DELETE FROM vtqueue_job")
        expect(page.get_by_text("No job and no dead letter has the id")).to_be_visible()
    assert all("404" in trouble for trouble in visitors.trouble)
    visitors.trouble.clear()


def test_a_server_that_cannot_be_reached(site: Site, visit: Visit, visitors: Visitors) -> None:
    """The page says that what it shows is old, and frames it; all can be read, also in the dark. Then it goes on."""
    fill(ALIAS, "refused")
    with visit(bypass_csp=True) as page:
        page.goto(f"{site.url}job/")
        page.context.set_offline(True)
        expect(page.get_by_role("status")).to_have_text("The last refresh failed; this page is old.")
        stale, content = (page.locator(name).bounding_box() for name in (".vtq-stale", "#content-main"))
        faults = faults_of(page)
        page.context.set_offline(False)
        expect(page.get_by_role("status")).to_have_text("")
    assert all("ERR_INTERNET_DISCONNECTED" in trouble for trouble in visitors.trouble)
    visitors.trouble.clear()
    assert faults == []
    assert stale
    assert content
    assert stale["height"] >= content["height"] > 0
