"""What axe finds on a page."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

BY_DJANGO = {"exclude": [["#searchbar"], [".breadcrumbs"]]}  # a label that is an image; links told by colour alone
VIOLATIONS = {"preload": False, "resultTypes": ["violations"]}  # of all else it need not tell
AT_ONCE = "* { transition: none !important }"  # colours do not fade over
RUN = "async given => (await axe.run(...given)).violations"


def faults_of(page: Page) -> list[str]:
    """Return what axe finds on a page, in the light and in the dark."""
    page.add_style_tag(content=AT_ONCE)
    page.evaluate(AXE_SCRIPT)
    light = serious(page)
    page.emulate_media(color_scheme="dark")
    dark = serious(page, runOnly=["color-contrast"])
    page.emulate_media(color_scheme="light")
    return [*(f": {fault}" for fault in light), *(f", dark: {fault}" for fault in dark)]


def serious(page: Page, **options: Any) -> list[str]:
    """Return what axe, which is there already, finds; it shall not load style sheets again, from wrong places."""
    violations: list[dict[str, Any]] = page.evaluate(RUN, [BY_DJANGO, {**VIOLATIONS, **options}])
    return [
        f"{each['id']} {[node['target'][0] for node in each['nodes']]}"
        for each in violations
        if each["impact"] in ("serious", "critical")
    ]
