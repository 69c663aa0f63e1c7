"""How often a claim asks the database."""

import pytest

from django_vtqueue.queue import claims
from tests.conformance import conftest as both
from tests.conformance.bench import Bench, Limited, names

alias, traced, bench = both.alias, both.traced, both.bench  # of each engine


def test_what_limits_need_is_asked_for_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim asks once what it must know of queues and keys, and not at all if no row that it finds has a limit."""
    limited = Limited(bench)
    looks, look_up = [], limited.engine.look_up
    monkeypatch.setattr(limited.engine, "look_up", lambda **asked: looks.append(asked) or look_up(**asked))
    limited.queues(few={"concurrency": 5, "rate": "10/s", "burst": 5})
    limited.publish("app.plain", "a")
    assert names(limited.claim()) == "a"
    assert looks == []
    limited.publish("app.two", "b", key="k", queue="few", rate_keys=["r"])
    assert names(limited.claim()) == "b"
    assert len(looks) == 1


def test_without_expiry_nothing_is_looked_for_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim of jobs that have not expired looks once for what is due."""
    bench.publish(*range(10), start_by=50)
    looks = []
    find_due = claims.find_due
    monkeypatch.setattr(claims, "find_due", lambda *args: looks.append(args) or find_due(*args))
    assert len(bench.claim(5, limit=3)) == 3
    assert len(looks) == 1
