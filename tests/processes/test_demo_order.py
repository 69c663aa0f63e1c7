"""The example of durable tasks, ``make demo-order``, in small, and the tests that its project has."""

import re
from pathlib import Path

from ..projects import ROOT, run

EXAMPLE = ROOT / "example_project"


def test_demo_order(tmp_path: Path) -> None:
    """Workers are killed: each order is charged once, and comes to its end; what is not shipped is refunded."""
    demo = str(EXAMPLE / "demo_order.py")
    said = run(demo, "--orders", "8", "--kills", "3", folder=EXAMPLE, DEMO_FOLDER=str(tmp_path))
    assert said.startswith("exit 0\n"), said
    found = dict(re.findall(r"^(\w[\w ]+?)  +(.*)$", said, re.MULTILINE))
    assert found["orders"].startswith("8, of which ")
    assert not found["workers killed"].startswith("0")
    assert found["charged twice"].startswith("0 ")
    assert re.fullmatch(r"(\d), refunded: \1, refunded twice: 0", found["never shipped"])
    assert not found["never shipped"].startswith("0")
    assert found["lost"] == "0 orders, 0 mails"


def test_tests_of_the_shop() -> None:
    """The page, and the 14 days of an order, as a project tests them: no process, no wait."""
    said = run("manage.py", "test", folder=EXAMPLE)
    assert said.startswith("exit 0\n"), said
    assert re.search(r"^Ran [1-9]\d* tests in ", said, re.MULTILINE), said
