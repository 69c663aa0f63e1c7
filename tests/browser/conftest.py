"""A real browser, Debian's Chromium, at a real server; workers in processes of their own on the same file."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from pytest_django import DjangoDbBlocker

from ..conftest import connected
from ..processes.conftest import start, start_worker  # noqa: F401
from ..processes.database import Database
from ..processes.running import PATIENCE
from .site import Site, Visitors

Visit = Callable[..., AbstractContextManager[Page]]

# The one that has no window takes two thirds of the time of the other.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
QUIET = [
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no theme of the admin waits for fonts from elsewhere
]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Return the browser of all these tests. Playwright's event loop ends with it: other tests have loops too."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium; on Debian: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as environment:
        environment.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # the tests are no part of that loop, but look so
        expect.set_options(timeout=PATIENCE * 1000)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu", *QUIET])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def visitors(
    browser: Browser,
    empty_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[Visitors]:
    """Return the visitors of a site; its server and its users stay, its rows go with each test."""
    folder = tmp_path_factory.mktemp("site")
    path = shutil.copy(empty_file, folder / "db.sqlite3")
    with tempfile.TemporaryDirectory(prefix="vtq-") as bells, django_db_blocker.unblock(), connected(path) as alias:
        site = Site(Database(path, bells), folder / "log")
        try:
            site.add_users(alias)
            site.wait_ready()
            yield Visitors(browser, site)
        finally:
            site.server.clean_up()


@pytest.fixture
def site(visitors: Visitors) -> Iterator[Site]:
    """Return the site without any rows. Whatever goes wrong in a browser fails the test."""
    visitors.site.empty()
    visitors.trouble.clear()
    yield visitors.site
    assert visitors.trouble == []


@pytest.fixture
def database(site: Site) -> Database:
    """Return the file on which the site, and the workers of the test, do their work."""
    return site.database


@pytest.fixture
def visit(site: Site, visitors: Visitors) -> Visit:
    """Return a function that opens a window of a logged-in user, as a context manager; see Visitors.visit."""
    return visitors.visit
