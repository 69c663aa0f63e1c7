"""Which growth of a worker in a long mix is a leak."""

from collections.abc import Callable
from pathlib import Path

import pytest

from . import vitals
from .vitals import Vitals

WORKER, LOOKS = 1, 900
GROWTHS: dict[str, tuple[Callable[[int], float], bool]] = {
    "none": (lambda look: 60, True),
    "one step": (lambda look: 60 + 9 * (look > LOOKS // 2), True),
    "that comes to its end": (lambda look: 55 + min(look / 50, 13), True),
    "for ever": (lambda look: 60 + look / 120, False),
    "for ever, in steps": (lambda look: 60 + 2 * (look // 150), False),
}


@pytest.mark.parametrize("growth", GROWTHS)
def test_growth_of_the_memory(monkeypatch: pytest.MonkeyPatch, growth: str) -> None:
    """Only one that goes on in each fifth of the time is refused."""
    monkeypatch.setattr(vitals, "MINUTES", 15)
    memory, allowed = GROWTHS[growth]
    found = Vitals(Path("db.sqlite3"), [WORKER])
    found.memory[WORKER] = [memory(look) for look in range(LOOKS)]
    found.files[WORKER], found.children[WORKER] = [10] * LOOKS, [0] * LOOKS
    if allowed:
        found.check()
        return
    with pytest.raises(AssertionError):
        found.check()
