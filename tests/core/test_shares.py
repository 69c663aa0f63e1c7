"""Shares: turns in proportion to the weights, as evenly as they can be, and none saved up."""

import random
from collections import Counter

import pytest

from django_vtqueue.core.shares import Shares


def serve(shares: Shares, waiting: dict[str, int], limit: int) -> str:
    """Serve as claims do; return the names in their order."""
    names = shares.order({name: [name] * min(count, limit) for name, count in waiting.items()}, limit)
    shares.note_served(names)
    for name in names:
        waiting[name] -= 1
    return "".join(names)


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_proportions(limit: int) -> None:
    """3 to 1, claim by claim or many at once, however many wait in each."""
    shares, waiting = Shares({"a": 3, "b": 1}), {"a": 10_000, "b": 300}
    order = "".join(serve(shares, waiting, limit) for _ in range(400 // limit))
    for begin in range(0, len(order) - 40, 7):
        assert abs(order[begin : begin + 40].count("b") - 10) <= 1


def test_an_empty_queue_leaves_its_turns() -> None:
    """The others share them; what comes later does not catch up on what it missed."""
    shares, waiting = Shares({"a": 1, "b": 1, "c": 2}), {"a": 1000, "c": 1000}
    assert Counter(serve(shares, waiting, 90)) == {"a": 30, "c": 60}
    waiting["b"] = 1000
    found = Counter(serve(shares, waiting, 40))
    assert all(abs(found[name] - turns) <= 1 for name, turns in {"a": 10, "b": 10, "c": 20}.items())
    assert serve(shares, {"b": 3}, 10) == "bbb"


def test_any_course() -> None:
    """Queues that come and go: nothing is lost, and of those that always wait each gets its part to within one turn."""
    chance, shares = random.Random(3), Shares({"a": 5, "b": 2, "c": 1})
    waiting, served = {"a": 10**6, "b": 10**6, "c": 0}, Counter[str]()
    for _ in range(2000):
        waiting["c"] += chance.choice([0, 0, 3])
        served.update(serve(shares, waiting, chance.randrange(1, 6)))
    assert served["a"] / served["b"] == pytest.approx(2.5, rel=0.01)
    assert served["c"] > 0
