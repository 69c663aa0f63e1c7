"""The example of time slots, ``make demo-slots``, in small: it counts what it promises."""

import re

import pytest

from ..projects import ROOT, run

DEMO = str(ROOT / "example_project" / "demo_slots.py")
SMALL = ("--instances", "3", "--children", "20", "--period", "3")


def counted(said: str) -> dict[str, str]:
    """Return what the demo counted, by the beginnings of its lines."""
    return dict(re.findall(r"^(\w[\w ]+?)  +(.*)$", said, re.MULTILINE))


@pytest.mark.parametrize("how", [("--seconds", "4"), ("--seconds", "1", "--without-slots")])
def test_demo_slots(how: tuple[str, ...]) -> None:
    """Nothing is started twice, and no lock is refused; what was killed runs again within a cycle and a turn.

    Without slots it only counts. A machine that stands still longer than a guard breaks any such promise: one of three
    runs must keep it.
    """
    for _ in range(3):
        said = run(DEMO, *SMALL, *how, folder=ROOT / "example_project")
        if said.startswith("exit 0\n"):
            break
    assert said.startswith("exit 0\n"), said
    found = counted(said)
    assert re.fullmatch(r"[1-9]\d* children, \d instances", found["killed"])
    assert "a cycle and a turn: 4.00 s" in found["running again"]
    if "--without-slots" not in how:
        assert found["started twice"] == "0"
        assert found["SQLITE_BUSY"].startswith("0, met by the instances; ")
