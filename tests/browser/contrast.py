"""The colours of what is on a page, as the browser has computed them."""

import re
from dataclasses import dataclass

from playwright.sync_api import Page

Colour = tuple[float, float, float]

# The text's colour, and the backgrounds of the element and of all that it lies in, from the inside to the outside.
BADGES = """() => [...document.querySelectorAll('.vtq-word')].map(element => {
    const backgrounds = [];
    for (let each = element; each; each = each.parentElement) backgrounds.push(getComputedStyle(each).backgroundColor);
    return [element.textContent, getComputedStyle(element).color, backgrounds];
})"""


@dataclass(frozen=True)
class Badge:
    """A word on its background."""

    colours: tuple[Colour, Colour]

    @property
    def contrast(self) -> float:
        """Return the ratio of WCAG 2, from 1 to 21."""
        bright, dim = sorted(map(luminance, self.colours), reverse=True)
        return (bright + 0.05) / (dim + 0.05)


def badges(page: Page) -> dict[str, Badge]:
    """Return the words for states on a page, by their text."""
    found = {}
    for text, colour, backgrounds in page.evaluate(BADGES):
        behind = over([(255, 255, 255, 1), *map(parsed, reversed(backgrounds))])
        found[text] = Badge((over([(*behind, 1), parsed(colour)]), behind))
    return found


def parsed(colour: str) -> tuple[float, float, float, float]:
    """Return red, green and blue from 0 to 255, and the opacity from 0 to 1."""
    red, green, blue, *opacity = map(float, re.findall(r"[\d.]+", colour))
    return red, green, blue, opacity[0] if opacity else 1.0


def over(layers: list[tuple[float, float, float, float]]) -> Colour:
    """Return what is seen of layers, the lowest of which comes first and is opaque."""
    seen = layers[0][:3]
    for *colour, opacity in layers[1:]:
        seen = tuple(new * opacity + old * (1 - opacity) for new, old in zip(colour, seen, strict=True))  # type: ignore[assignment]
    return seen


def luminance(colour: Colour) -> float:
    """Return the relative luminance of WCAG 2, from 0 to 1."""
    parts = [part / 255 for part in colour]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
