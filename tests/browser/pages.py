"""What there is to visit: one page of each kind, found by following the links as a person would."""

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import parse_qs, urljoin, urlsplit

from django.urls import resolve
from playwright.sync_api import Page

HREF = re.compile(r'<a\b[^>]*?href="([^"]*)"')


def every_page(page: Page, start: str) -> dict[str, str]:
    """Return the addresses of all kinds of pages below an address, by their kinds; see ``kind_of``."""
    found: dict[str, str] = {}
    views: set[str] = set()
    waiting = [start]
    while waiting:
        url = waiting.pop(0)
        view, parameters = kind_of(url)
        kind = "?".join([view, *parameters])
        if kind in found or (view in views and (len(parameters) > 1 or kind.partition("?")[2].startswith("_"))):
            continue
        answer = page.context.request.get(url)
        assert answer.ok, f"{answer.status}: {url}"
        if answer.headers["content-type"].startswith("text/html"):
            views.add(view)
            found[kind] = url
            waiting += links(answer.text(), url, start)
    return found


def kind_of(url: str) -> tuple[str, list[str]]:
    """Return the name of a page's view, and of its parameters; of several parameters one combination is enough."""
    parts = urlsplit(url)
    return resolve(parts.path).url_name or parts.path, sorted(parse_qs(parts.query, keep_blank_values=True))


def links(html: str, url: str, start: str) -> Iterator[str]:
    """Yield where the links of a page lead, as far as that is below an address."""
    for href in HREF.findall(html):
        target = urljoin(url, unescape(href)).partition("#")[0]
        if target.startswith(start):
            yield target
