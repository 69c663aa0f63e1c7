"""Queues with weights: a claim serves them in proportion, whatever their depths and priorities are."""

from collections import Counter

import pytest

from .bench import Bench, Limited, names, payloads_of, tasks_of

BOTH = [tasks_of("a", "b"), payloads_of("a")]


@pytest.mark.parametrize("limit", [1, 4, 40])
def test_proportions(bench: Bench, limit: int) -> None:
    """A queue that is flooded, and of high priority, gets its share; within a queue the usual order holds."""
    limited = Limited(bench).weigh(a=3, b=1)
    limited.publish("app.plain", *(f"a{n}" for n in range(60)), queue="a")
    limited.publish("app.plain", *(f"b{n}" for n in range(200)), queue="b", priority=9)
    limited.publish("app.plain", "b-first", queue="b", priority=10)
    found = [name for _ in range(40 // limit) for name in limited.claim(limit=limit, served=BOTH)]
    assert Counter(name[0] for name in found) == {"a": 30, "b": 10}
    assert [name for name in found if name[0] == "a"] == [f"a{n}" for n in range(30)]
    assert [name for name in found if name[0] == "b"][:2] == ["b-first", "b0"]


def test_what_is_claimed_ahead(bench: Bench) -> None:
    """Also in proportion."""
    limited = Limited(bench).weigh(a=1, b=1)
    limited.publish("app.plain", *(f"a{n}" for n in range(20)), queue="a")
    limited.publish("app.plain", *(f"b{n}" for n in range(20)), queue="b", priority=9)
    assert Counter(name[0] for name in limited.claim(limit=2, ahead=8, served=BOTH)) == {"a": 5, "b": 5}


def test_with_limits_and_payloads(bench: Bench) -> None:
    """A queue without room leaves its turns to the others; tasks and payloads of a queue share its turns."""
    limited = Limited(bench, b={"concurrency": 2}).weigh(a=1, b=1)
    limited.publish("app.plain", *(f"a{n}" for n in range(4)), queue="a")
    limited.publish("", *(f"r{n}" for n in range(4)), queue="a", priority=1)
    limited.publish("app.plain", *(f"b{n}" for n in range(20)), queue="b")
    limited.publish("app.one", "k0", "k1", queue="a", key="k", priority=2)
    assert names(limited.claim(limit=7, served=BOTH)) == "k0 b0 r0 b1 r1 r2 r3"
    assert names(limited.claim(limit=7, served=BOTH)) == "a0 a1 a2 a3"


def test_without_weights_nothing_changes(bench: Bench) -> None:
    """By priority, then by time."""
    limited = Limited(bench)
    limited.publish("app.plain", "a", queue="a")
    limited.publish("app.plain", "b", "c", queue="b", priority=1)
    assert names(limited.claim(served=BOTH)) == "b c a"
