"""A browser that visits the shop's admin and takes pictures."""

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Literal

from playwright.sync_api import sync_playwright

from tests.browser.pages import every_page

from .day import PASSWORD

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
WIDE, PHONE = (1280, 1020), (390, 844)
Look = Literal["light", "dark", "phone"]
LOOKS: tuple[Look, ...] = ("light", "dark", "phone")


class Camera:
    """Somebody who has logged in to a site, with a camera."""

    def __init__(self, origin: str) -> None:
        self.url = f"{origin}/admin/vtqueue/"

    def __enter__(self) -> "Camera":
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright's loop is no part of what reads the database here
        self.playwright = sync_playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path=CHROMIUM)
        self.page = self.browser.new_page()
        self.page.goto(self.url)
        self.page.fill("#id_username", "anna")
        self.page.fill("#id_password", PASSWORD)
        self.page.press("#id_password", "Enter")
        self.page.wait_for_selector("#user-tools")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.browser.close()
        self.playwright.stop()

    def take_every(self, folder: Path) -> None:
        """Take pictures of every page there is, whole and in each look."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind, found in every_page(self.page, self.url).items():
            for look in LOOKS:
                self.look(look)
                self.page.goto(found.url)
                name = kind.removeprefix("vtqueue_").replace("?", "-filtered")
                self.page.screenshot(path=folder / f"{name}.{look}.png", full_page=True)

    def take(self, folder: Path) -> None:
        """Take the pictures of the documentation."""
        folder.mkdir(parents=True, exist_ok=True)
        found = every_page(self.page, self.url)
        self.picture(folder / "overview.png", self.url)
        self.picture(folder / "overview-dark.png", self.url, "dark")
        self.picture(folder / "overview-phone.png", self.url, "phone")
        self.picture(folder / "jobs.png", f"{self.url}job/?state=running")
        self.picture(folder / "groups.png", found["vtqueue_deadletter_groups"].url)
        self.picture(folder / "requeue.png", found["vtqueue_deadletter_requeue?"].url)
        self.picture(folder / "letter.png", found["vtqueue_deadletter_change"].url)

    def picture(self, path: Path, url: str, look: Look = "light") -> None:
        """Take a picture of what fits into the window."""
        self.look(look)
        self.page.goto(url)
        self.page.screenshot(path=path)

    def look(self, look: Look) -> None:
        width, height = PHONE if look == "phone" else WIDE
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if look == "dark" else "light", reduced_motion="reduce")
