"""What holds of every page; they are found by following the links from the first one."""

from playwright.sync_api import Page, expect

from django_vtqueue import requeueing
from django_vtqueue.models import DeadLetter, Job

from ..conftest import ALIAS
from .accessibility import faults_of
from .conftest import Visit
from .pages import every_page
from .rows import TRACEBACK, fill
from .site import PHONE, Site

EVIL = "\"'><script>alert('x')</script><img src=x onerror=alert(1)>"
LONG = "a_name_without_any_gap_" * 5
WORDS = """() => Object.fromEntries([...document.querySelectorAll(".vtq-word")].map(word => [
    word.textContent, getComputedStyle(word).color + getComputedStyle(word).backgroundColor]))"""
TOUCHED = ".vtq-cards .vtq-button, .object-tools a, .object-tools button, .actions button, .action-select"
CARDS = {
    f"vtqueue_{name}"
    for name in (
        "job_changelist",
        "deadletter_changelist",
        "deadletter_groups",
        "requeue_changelist",
        "workerprocess_changelist",
    )
}
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def test_markup_and_accessibility(site: Site, visit: Visit) -> None:
    """Markup in arguments, results, exceptions, names of tasks, queues, workers and people is shown as text.

    No page has what axe calls a serious fault, nor, in the dark, too little contrast.
    """
    fill(ALIAS, EVIL)
    shown, faults = set(), []
    # The policy is lifted for styles that axe and this test set, and keeps no markup from acting. That no page needs it
    # is seen by every other test.
    with visit(bypass_csp=True) as page:
        found = every_page(page, site.url)
        for kind, each in found.items():
            if EVIL in text_of(page, each.url):
                shown.add(kind)
            if not kind.endswith("?"):
                faults += [f"{kind}{fault}" for fault in faults_of(page)]
    assert {view for view in shown if view.endswith("_change")} == {view for view in found if view.endswith("_change")}
    assert {"vtqueue_job_changelist", "vtqueue_deadletter_changelist"} <= shown
    assert faults == []


def text_of(page: Page, url: str) -> str:
    """Return the text of a page on which nothing from outside has become an element."""
    page.goto(url)
    assert page.locator("img[src=x], script:not([src]):not([type='application/json'])").count() == 0, url
    return str(page.evaluate("document.body.textContent"))


def test_phone(site: Site, visit: Visit) -> None:
    """On a phone no page is wider than the screen, however long the names are: what is wide scrolls inside itself.

    Groups, jobs, dead letters, requeues and workers are cards, with all that can be touched on the screen and 44 pixels
    high.
    """
    fill(ALIAS, LONG)
    requeueing.start(requeueing.Criteria(), rate=1, using=ALIAS)
    with visit(viewport=PHONE, is_mobile=True, has_touch=True) as page:
        wider = {}
        found = every_page(page, site.url)
        for kind, each in found.items():
            page.goto(each.url)
            wider[kind] = page.evaluate(WIDER)
            if kind in CARDS:
                check_cards(page)
        django_own = {kind for kind in found if "_history" in kind}  # pages without a style of ours
        assert {kind: pixels for kind, pixels in wider.items() if pixels > 0 and kind not in django_own} == {}
        assert found.keys() >= CARDS


def check_cards(page: Page) -> None:
    row = page.locator(".vtq-cards tbody tr").first
    assert row.evaluate("each => getComputedStyle(each).display") == "grid", page.url
    for control in page.locator(TOUCHED).filter(visible=True).all():
        box = control.bounding_box()
        assert box, page.url
        assert box["height"] >= 44, (page.url, control.inner_text(), box)
        assert box["x"] + box["width"] <= PHONE["width"], (page.url, control.inner_text(), box)


def test_dark_mode(site: Site, visit: Visit) -> None:
    """The words for states have other colours in the dark; that they can be read there is what axe has looked for."""
    fill(ALIAS, "refused")
    with visit() as page:
        page.goto(f"{site.url}job/")
        light = page.evaluate(WORDS)
        page.emulate_media(color_scheme="dark")
        dark = page.evaluate(WORDS)
    assert {"due", "scheduled", "retrying", "running", "expired", "done"} <= light.keys()
    assert [word for word in light if light[word] == dark[word]] == []


def test_labels(site: Site, visit: Visit) -> None:
    """The word for a state stands apart from its label."""
    fill(ALIAS, "refused")
    with visit() as page:
        page.goto(f"{site.url}job/{Job.objects.using(ALIAS).filter(state='READY')[0].pk}/change/")
        label, word = (page.locator(f".field-word {part}").first.bounding_box() for part in ("label", ".vtq-word"))
    assert label
    assert word
    assert word["y"] >= label["y"] + label["height"] + 2


def test_fields_are_in_a_line(site: Site, visit: Visit) -> None:
    """In a form the arguments begin where the other fields do."""
    with visit() as page:
        page.goto(f"{site.url}schedule/add/")
        one, other = (page.locator(f"#id_{name}").bounding_box() for name in ("expression", "arguments"))
    assert one
    assert other
    assert one["x"] == other["x"]


def test_copy(site: Site, visit: Visit) -> None:
    """A button copies what stands beside it; without JavaScript there is none, and all else is there."""
    fill(ALIAS, "refused")
    letter = DeadLetter.objects.using(ALIAS).first()
    assert letter
    address = f"{site.url}deadletter/{letter.pk}/change/"
    with visit(permissions=["clipboard-read", "clipboard-write"]) as page:
        page.add_init_script("window.setTimeout = () => 0")  # no refresh, nor anything else, ends what a button says
        page.goto(address)
        for field, copied in {"copied_id": str(letter.pk), "traceback": TRACEBACK.format("refused").rstrip()}.items():
            page.locator(f".field-{field} .vtq-copy").first.click()
            expect(page.locator(f".field-{field} .vtq-copy").first).to_have_text("Copied")
            assert page.evaluate("navigator.clipboard.readText()").strip() == copied
    with visit(java_script_enabled=False) as page:
        page.goto(address)
        assert page.locator(".vtq-copy").count() >= 3
        assert not any(button.is_visible() for button in page.locator(".vtq-copy").all())
        assert page.locator(".field-traceback pre").first.is_visible()
