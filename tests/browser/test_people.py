"""What people do at these pages: work without a mouse, look without touching."""

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from ..conftest import ALIAS
from ..processes.database import Database
from ..processes.running import Start
from ..waiting import wait_until
from .conftest import Visit
from .forms import Post, posts
from .pages import every_page
from .rows import fill
from .site import SETTINGS, Site
from .tasks import send_receipt


def test_requeue_by_keyboard(site: Site, visit: Visit, database: Database, start_worker: Start, tmp_path: Path) -> None:
    """The button that requeues is reached by Tab, seen to have the focus, and pressed by Enter."""
    job_id = database.enqueue(send_receipt, 1, str(tmp_path / "mail"))
    start_worker(DJANGO_SETTINGS_MODULE=SETTINGS)
    wait_until(lambda: database.letter(job_id))
    (tmp_path / "mail").touch()
    with visit() as page:
        page.goto(f"{site.url}deadletter/{job_id}/change/")
        button = page.get_by_role("button", name="Requeue")
        before = style(button)
        tab_to(page, button)
        assert style(button) != before
        page.keyboard.press("Enter")
        expect(button).to_have_count(0)
        wait_until(lambda: database.succeeded(job_id))


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
    """Return what is more than reading: an export is allowed to each user who sees the list."""
    return [post for post in sent if "export" not in post.fields.get("action", "")]
