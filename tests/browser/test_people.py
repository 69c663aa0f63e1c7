"""What people do at these pages: mend what is broken, look without touching, work without a mouse."""

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from ..conftest import ALIAS
from ..processes.conftest import Start
from ..processes.database import Database
from ..processes.running import PATIENCE
from ..waiting import wait_until
from .conftest import Visit
from .forms import Post, posts
from .pages import every_page
from .rows import fill
from .site import SETTINGS, Site
from .tasks import send_receipt


@pytest.fixture
def broken(database: Database, start_worker: Start, tmp_path: Path) -> list[str]:
    """Return the ids of three jobs that failed for good in a worker, which goes on. ``mail`` is what they wait for."""
    ids = [database.enqueue(send_receipt, order, str(tmp_path / "mail")) for order in (1, 2, 3)]
    start_worker(DJANGO_SETTINGS_MODULE=SETTINGS)
    wait_until(lambda: all(database.letter(job_id) for job_id in ids))
    return ids


def test_from_a_failure_to_its_end(
    site: Site, visit: Visit, database: Database, broken: list[str], tmp_path: Path
) -> None:
    """What broke is found, read and understood, sent round again, and seen to end well, by clicks alone."""
    with visit() as page:
        page.goto(site.url)
        page.get_by_role("row").filter(has_text="default").get_by_role("link", name="3", exact=True).click()
        expect(page.locator("#result_list tbody tr")).to_have_count(3)
        page.locator("#result_list th a").first.click()
        expect(page.locator(".field-traceback").get_by_text("in send_receipt")).to_be_visible()
        page.go_back()
        page.get_by_role("link", name="Failures").click()
        (tmp_path / "mail").touch()
        page.get_by_role("link", name="Requeue group").click()
        expect(page.get_by_text("3 dead letters will be requeued.")).to_be_visible()
        page.get_by_label("One first").check()
        page.get_by_role("button", name="Requeue").click()
        wait_until(lambda: database.succeeded(*broken), PATIENCE)
        page.goto(f"{site.url}job/{broken[0]}/change/")
        expect(page.get_by_text("receipt 1 sent")).to_be_visible()


def test_requeue_by_keyboard(site: Site, visit: Visit, database: Database, broken: list[str], tmp_path: Path) -> None:
    """The button that requeues is reached by Tab, seen to have the focus, and pressed by Enter."""
    (tmp_path / "mail").touch()
    with visit() as page:
        page.goto(f"{site.url}deadletter/{broken[0]}/change/")
        button = page.get_by_role("button", name="Requeue")
        before = style(button)
        tab_to(page, button)
        assert style(button) != before
        page.keyboard.press("Enter")
        expect(button).to_have_count(0)
        wait_until(lambda: database.succeeded(broken[0]))


def style(button: Locator) -> str:
    look = "button => { const {backgroundColor, outline} = getComputedStyle(button); return backgroundColor + outline }"
    return str(button.evaluate(look))


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(100):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            return
    pytest.fail(f"Tab does not lead to {wanted}")


def test_looking_only(site: Site, visit: Visit) -> None:
    """Who may only look sees the pages that an administrator sees, and on none of them a button that changes."""
    fill(ALIAS, "refused")
    with visit("otto") as page:
        found = every_page(page, site.url)
        offered = {kind: changing(posts(page, each)) for kind, each in found.items()}
    assert {kind: posts for kind, posts in offered.items() if posts} == {}
    assert {"vtqueue_job_change", "vtqueue_deadletter_change", "vtqueue_workerprocess_changelist"} <= offered.keys()


def test_forged_posts(site: Site, visit: Visit) -> None:
    """Whatever an administrator can send, who may only look is answered 403, and nothing has changed."""
    fill(ALIAS, "refused")
    with visit() as page:
        forged = changing([post for each in every_page(page, site.url).values() for post in posts(page, each)])
    before = site.dump()
    with visit("otto") as page:
        page.goto(site.url)
        answers = [(post.send(page), post) for post in forged]
    assert site.dump() == before
    assert [(status, post) for status, post in answers if status != 403] == []
    assert len(answers) > 10


def changing(sent: list[Post]) -> list[Post]:
    """Return what is more than reading: an export is allowed to everybody who sees the list."""
    return [post for post in sent if "export" not in post.fields.get("action", "")]
