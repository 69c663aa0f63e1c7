"""What there is to visit: one page of each kind, found by following the links as a person would."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from urllib.parse import urljoin, urlsplit

from django.urls import resolve
from playwright.sync_api import Page

HREF = re.compile(r'<a\b[^>]*?href="([^"]*)"')


@dataclass(frozen=True)
class Found:
    """A page as a request has brought it, before any browser has seen it."""

    url: str
    html: str


def every_page(page: Page, start: str) -> dict[str, Found]:
    """Return a page of each kind below an address, as the user of a window gets them; see ``kind_of``."""
    found: dict[str, Found] = {}
    waiting = [start]
    while waiting:
        url = waiting.pop(0)
        kind = kind_of(url)
        if kind in found or "?_" in url:  # a list remembered, or its counts
            continue
        answer = page.context.request.get(url)
        assert answer.ok, f"{answer.status}: {url}"
        if answer.headers["content-type"].startswith("text/html"):
            found[kind] = Found(url, answer.text())
            waiting += links(found[kind])
    return found


def kind_of(url: str) -> str:
    """Return the name of a page's view, and whether it has parameters: one choice of them stands for all."""
    parts = urlsplit(url)
    return (resolve(parts.path).url_name or parts.path) + ("?" if parts.query else "")


def links(found: Found) -> Iterator[str]:
    """Yield where the links of a page lead, as far as that is a page of the app."""
    for href in HREF.findall(found.html):
        target = urljoin(found.url, unescape(href)).partition("#")[0]
        if "/vtqueue/" in urlsplit(target).path:
            yield target
