"""A night of two operators, from the first look to "it works again": a service fails, and a worker is killed."""

from pathlib import Path
from uuid import UUID

from playwright.sync_api import Locator, Page, expect

from ..processes.database import Database
from ..processes.running import Start
from ..waiting import wait_until
from .conftest import Visit
from .site import SETTINGS, Site
from .tasks import print_label, send_receipt

ORDERS = 40


class Operator:
    """A user in front of a page that was loaded once: every click is counted, and nothing is reloaded."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def sees(self, text: str) -> Locator:
        """Return what has a text on it, as soon as it is there."""
        seen = self.page.get_by_text(text).first
        expect(seen).to_be_visible()
        return seen


def test_the_night(site: Site, visit: Visit, database: Database, start_worker: Start, tmp_path: Path) -> None:
    """40 jobs die of a service and a worker is killed; anna finds both, mends it, and sees that it works again, in five
    clicks and without a reload; bob, who looked at one of the letters, reads who was first."""
    mail_server, printer = tmp_path / "mail", tmp_path / "printer"
    killed = start_worker(DJANGO_SETTINGS_MODULE=SETTINGS)
    label = database.enqueue(print_label, 1, str(printer))
    wait_until(lambda: database.job(label)["started_at"])
    start_worker(DJANGO_SETTINGS_MODULE=SETTINGS)
    with visit("anna") as annas, visit("bob") as bobs:
        anna, bob = Operator(annas), Operator(bobs)
        annas.goto(site.url)
        orders = [database.enqueue(send_receipt, order, str(mail_server)) for order in range(ORDERS)]
        anna.sees(f"{ORDERS} jobs of {send_receipt.module_path} died in the last minute:")
        bobs.goto(f"{site.url}deadletter/{orders[-1]}/change/")
        killed.kill()
        anna.sees("1 job went on")

        banners = annas.locator("#vtq-banners")
        anna.click(banners.get_by_role("link", name="ConnectionRefusedError"))
        anna.sees("still fails")
        anna.click(annas.get_by_text("A sample traceback"))
        anna.sees("the mail server does not answer")
        mail_server.touch()
        anna.click(annas.get_by_role("link", name="Requeue group"))
        anna.sees(f"{ORDERS} dead letters will be requeued.")
        expect(annas.get_by_label("One first")).to_be_checked()
        anna.click(annas.get_by_role("button", name="Requeue"))
        anna.sees(f"{ORDERS} requeued: {ORDERS} succeeded")

        bob.sees("It was requeued by anna at")
        expect(bobs).to_have_url(f"{site.url}job/{UUID(orders[-1])}/change/")
        expect(bobs.locator(".vtq-word").first).to_have_text("done")

        anna.click(annas.get_by_role("link", name="Overview"))
        expect(banners.get_by_role("link", name="ConnectionRefusedError")).to_have_count(0)
        printer.touch()
        wait_until(lambda: database.succeeded(label, *orders))
    assert (anna.clicks, bob.clicks) == (5, 0)
