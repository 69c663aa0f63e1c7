"""Themes of the admin: Jazzmin, Grappelli and Unfold. What a page offers can be clicked; it need not be beautiful."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page

from ..browser.conftest import browser  # noqa: F401
from ..waiting import PATIENCE, wait_until
from .projects import Client

SETTINGS = """
INSTALLED_APPS = [
    {theme!r}, "django.contrib.admin", "django.contrib.sessions", "django.contrib.messages",
    "django.contrib.staticfiles", *INSTALLED_APPS,
]
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
DEBUG = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {{"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]}},
}}]
"""
URLS = """
from django.conf import settings
from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls)]
if "grappelli" in settings.INSTALLED_APPS:
    urlpatterns.append(path("grappelli/", include("grappelli.urls")))
"""
TASKS = """
from django_vtqueue import task

@task(max_attempts=1)
def fail(order):
    raise LookupError(f"no order {order}")
"""
FILL = """
from django.contrib.auth.models import User
from shop.tasks import fail
User.objects.create_superuser("anna", password="secret")
for order in range(4):
    fail.enqueue(order)
"""
LEFT = """
from django_vtqueue.models import DeadLetter, Job
print(DeadLetter.objects.count(), "dead", Job.objects.count(), "waiting")
"""


@contextmanager
def served(project: Client, folder: Path) -> Iterator[str]:
    """Serve a project; yield its address."""
    with project.started("-m", "django", "runserver", "127.0.0.1:0", "--noreload") as log:
        wait_until(lambda: "server at http" in log.read_text(), PATIENCE)
        found = re.search(r"server at (http://[\d.:]+)/", log.read_text())
        assert found
        yield found[1]


@pytest.mark.parametrize("theme", ["jazzmin", "grappelli", "unfold"])
def test_dead_letters_can_be_requeued_and_discarded(theme: str, tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    """By the buttons of their page, and by the actions of the list."""
    project = Client(tmp_path, SETTINGS.format(theme=theme))
    project.write("urls.py", URLS)
    project.write("shop/tasks.py", TASKS)
    project.manage("migrate", "-v0")
    project.python(FILL)
    said = project.manage("vtworker", "--drain")
    assert said.count("dead  shop.tasks.fail") == 4, said
    with served(project, tmp_path) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(f"{address}/admin/")
        page.fill("input[name=username]", "anna")
        page.fill("input[name=password]", "secret")
        page.press("input[name=password]", "Enter")
        page.wait_for_url("**/admin/")
        for button in ("Requeue", "Discard"):
            open_letter(page, address)
            press(page, page.get_by_role("button", name=button, exact=True))
            confirm(page)
        for action in ("requeue", "delete_selected"):
            page.goto(f"{address}/admin/vtqueue/deadletter/")
            page.locator("input[name=_selected_action]").first.check()
            page.locator("select[name=action]").first.select_option(action, force=True)  # some hide it behind their own
            press(page, page.locator("button[name=index]:visible").first)
            confirm(page)
        page.close()
    assert project.python(LEFT) == "exit 0\n0 dead 2 waiting\n"


def open_letter(page: Page, address: str) -> None:
    """Open the page of one of the dead letters."""
    page.goto(f"{address}/admin/vtqueue/deadletter/")
    page.locator("table a[href*='/change/']").first.click()
    page.wait_for_url("**/change/**")


def press(page: Page, button: Locator) -> None:
    """Click a button, where it is seen; wait for the page behind it."""
    with page.expect_navigation():
        button.click()


def confirm(page: Page) -> None:
    """Say yes to the page that asks, if there is one."""
    if page.locator("input[name=post]").count():
        press(page, page.locator(".submit-row input[type=submit]"))
