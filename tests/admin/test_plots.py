"""The plots of the admin: SVG that a browser draws in any theme, and that a screen reader can say."""

import re
from xml.etree import ElementTree

import pytest

from django_vtqueue.admin.plots import HEIGHT, sparkline


def drawn(svg: str, kind: str) -> str:
    """Return the path of one class in a plot, which must be well-formed."""
    root = ElementTree.fromstring(svg)
    [path] = [each for each in root.iter("path") if each.get("class") == f"vtq-{kind}"]
    return path.get("d") or ""


def points(path: str) -> list[tuple[int, float]]:
    return [(int(x), float(y)) for x, y in re.findall(r"L(\d+) ([\d.]+)", path)]


def test_scale() -> None:
    """The highest number lies at the top, 0 at the bottom, what is between them in proportion, oldest to the left."""
    [first, low, half, high] = points(drawn(sparkline([0, 25, 50, 100], "It grows."), "area"))
    assert (first, high) == ((0, HEIGHT), (3, 1.5))
    assert HEIGHT - low[1] == pytest.approx((HEIGHT - half[1]) / 2, abs=0.1)


def test_a_small_number_is_seen() -> None:
    """One among millions is not drawn as none."""
    [_, (_, y), _] = points(drawn(sparkline([0, 1, 10_000_000], "One."), "area"))
    assert y <= HEIGHT - 1


def test_bars() -> None:
    """What is drawn over the numbers has their scale, and is seen only where it is not 0."""
    path = drawn(sparkline([10, 10, 10], "Some failed.", bars=[0, 10, 0]), "bars")
    assert path == f"M1 {HEIGHT}V1.5"


def test_a_straight_line_needs_no_points() -> None:
    """The page of many quiet queues stays small."""
    assert len(points(drawn(sparkline([7] * 180, "Steady."), "area"))) == 2
    assert drawn(sparkline([0] * 180, "Nothing."), "area") == ""


@pytest.mark.parametrize("numbers", [[], [0], [5]])
def test_few_numbers(numbers: list[int]) -> None:
    """A plot of one number, or none, is a plot."""
    assert ElementTree.fromstring(sparkline(numbers, "Few.")).findtext("title") == "Few."


def test_words() -> None:
    """A screen reader has its sentence, in which nothing becomes markup; and no style is inline, so that a policy may
    forbid that."""
    svg = sparkline([1, 2], "<script>alert('x')</script> & more.")
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.findtext("title") == "<script>alert('x')</script> & more."
    assert "style=" not in svg
