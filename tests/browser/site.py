"""A site in a process of its own, and browsers that have logged in to it."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Permission, User
from playwright.sync_api import Browser, BrowserContext, Error, Page

from ..processes.conftest import environment
from ..processes.database import Database
from ..processes.running import MANAGE, PATIENCE, Running, python
from ..waiting import wait_until

SETTINGS = "tests.browser.settings"
ADDRESS = re.compile(r"development server at (http://[\d.:]+)/")
PASSWORD = "correct horse battery staple"
VIEW_ONLY = "view_"  # the permissions whose names begin so
LEFT = "net::ERR_ABORTED"  # the page was left before all of it was there
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 700}

# A page refreshes itself each half second, instead of each five seconds.
SOON = """const later = window.setTimeout;
window.setTimeout = (act, pause, ...given) => later(act, pause < 5000 ? pause : pause / 10, ...given);"""


class Site:
    """A server on a database file, with administrators ``anna`` and ``bob``, and ``otto``, who may only look.

    ``url``: of the pages of the app in the admin.
    """

    def __init__(self, database: Database, log: Path) -> None:
        self.database = database
        self.server = Running(
            python(MANAGE, "runserver", "127.0.0.1:0", "--noreload", "--insecure"),
            environment(database, DJANGO_SETTINGS_MODULE=SETTINGS),
            log,
        )

    def wait_ready(self) -> None:
        """Wait until it answers; only then it has a url."""
        wait_until(lambda: ADDRESS.search(self.server.log) or self.server.ended(), PATIENCE)
        found = ADDRESS.search(self.server.log)
        assert found, self.server.log
        self.origin = found[1]
        self.url = f"{self.origin}/admin/vtqueue/"

    def add_users(self, alias: str) -> None:
        users = User.objects.db_manager(alias)
        for name in ("anna", "bob"):
            users.create_superuser(name, password=PASSWORD)
        otto = users.create_user("otto", password=PASSWORD, is_staff=True)
        looking = Permission.objects.using(alias).filter(
            content_type__app_label="vtqueue", codename__startswith=VIEW_ONLY
        )
        otto.user_permissions.set(looking)

    def empty(self) -> None:
        """Leave no row of the queue and of the admin's log."""
        with closing(sqlite3.connect(self.database.path, timeout=30)) as connection, connection:
            for table in tables(connection):
                connection.execute(f"DELETE FROM {table}")

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return all rows of these tables."""
        with closing(sqlite3.connect(self.database.path, timeout=30)) as connection:
            return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables(connection)}


def tables(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the tables that these pages show or change."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [name for (name,) in names if name.startswith("vtqueue_") or name == "django_admin_log"]


class Visitors:
    """Browser windows of people who have logged in. What goes wrong in any of them is in ``trouble``.

    Each has a browser of his own, which stays, with its cache: one more window takes half the time of a new browser.
    """

    def __init__(self, browser: Browser, site: Site) -> None:
        self.browser, self.site = browser, site
        self.trouble: list[str] = []
        self.cookies: dict[str, Any] = {}
        self.own: dict[str, BrowserContext] = {}

    @contextmanager
    def visit(self, name: str = "anna", **options: Any) -> Iterator[Page]:
        """Open a window of a logged-in user, and close it; what goes wrong in it is noted.

        ``options``: of Playwright's ``new_context``, as ``color_scheme``, of a browser that goes with the window.
        """
        if name not in self.own and not options:
            self.own[name] = self.new_context(name)
            self.own[name].new_page()  # which stays open, and with it the process behind the windows
        context = self.new_context(name, **options) if options else self.own[name]
        page = context.new_page()
        try:
            yield page
        finally:
            with suppress(Error):  # it is closed already
                page.goto("about:blank")  # Chromium may never close a window whose page is on its way
            if options:
                context.close()
            else:
                page.close()
                context.clear_cookies()
                context.add_cookies(self.cookies[name]["cookies"])

    def new_context(self, name: str, **options: Any) -> BrowserContext:
        options = {"viewport": WIDE, "reduced_motion": "reduce", "storage_state": self.logged_in(name), **options}
        context = self.browser.new_context(**options)
        context.add_init_script(SOON)
        self.watch(context)
        return context

    def logged_in(self, name: str) -> Any:
        """Return the cookies of a user, who logs in the first time; without a window, which would take a second."""
        if name not in self.cookies:
            address = f"{self.site.origin}/admin/login/"
            with closing(self.browser.new_context()) as context:
                form = context.request.get(address).text()
                token = re.search('name="csrfmiddlewaretoken" value="(.*?)"', form)
                assert token, form
                given = {"username": name, "password": PASSWORD, "csrfmiddlewaretoken": token[1]}
                context.request.post(address, form=given, headers={"Referer": address})
                self.cookies[name] = {"cookies": context.cookies()}
        return self.cookies[name]

    def watch(self, context: BrowserContext) -> None:
        """Note every error on the console, exception, dialog, failed request and error page."""
        note = self.trouble.append
        context.set_default_timeout(PATIENCE * 1000)
        context.on("console", lambda line: line.type in ("error", "warning") and note(f"console: {line.text}"))
        context.on("weberror", lambda error: note(f"exception: {error.error}"))
        context.on("response", lambda answer: answer.status >= 400 and note(f"{answer.status}: {answer.url}"))
        context.on(
            "requestfailed", lambda request: request.failure != LEFT and note(f"{request.failure}: {request.url}")
        )

        def dismiss(dialog: Any) -> None:
            note(f"dialog: {dialog.message}")
            dialog.dismiss()

        context.on("dialog", dismiss)
