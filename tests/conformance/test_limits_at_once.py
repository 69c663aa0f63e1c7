"""Limits of several kinds in one claim, and claims that come between the reads and the writes of a look."""

from typing import Any

import pytest

from .bench import Bench, Limited, before_the_next_write, tasks_of


def test_a_rate_holds_beside_a_limited_queue(bench: Bench) -> None:
    """A job that was allowed uses its rate before those that come up ahead of it when others were parked."""
    limited = Limited(bench, small={"concurrency": 1})
    limited.tasks["app.rated"] = {"rate": "1/h"}
    limited.publish("app.one", "runs", key="k")
    assert set(limited.claim(0)) == {"runs"}
    limited.publish("app.one", "is parked", key="k", queue="small", priority=5)
    limited.publish("app.rated", "comes up", queue="small", priority=4, rate_keys=["r"])
    limited.publish("app.rated", "was allowed", rate_keys=["r"])
    assert set(limited.claim(1, 4)) == {"was allowed"}


def test_a_start_beside_a_look(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that sets a changed rate right does not take back the start that another claim has made meanwhile."""
    limited = Limited(bench)
    limited.tasks["app.rated"] = {"rate": "10/m"}
    limited.publish("app.rated", *map(str, range(20)), rate_keys=["r"] * 20)
    assert len(limited.claim(0)) == 1
    limited.tasks["app.rated"] = {"rate": "1/m"}
    limited.queues()
    bench.clock_at(7)
    started: list[str] = []
    before_the_next_write(bench, monkeypatch, lambda: started.extend(limited.claim(7)))
    limited.look_at_rates()
    assert len(started) == 1
    assert [len(limited.claim(seconds)) for seconds in (7.5, 10, 12.1, 13)] == [0, 0, 0, 0]


def test_a_queue_named_twice(bench: Bench) -> None:
    """It is one queue: no job of it is claimed twice."""
    limited = Limited(bench)
    limited.publish("app.plain", "a", "b")
    limited.weigh(q=2)
    assert limited.take(10, 4, served=[tasks_of("q", "q")]).count == 2


@pytest.mark.parametrize("policy", [{"concurrency": 1}, {"rate": "1/s"}], ids=["concurrency", "rate"])
def test_overdue_jobs_of_a_limited_queue(bench: Bench, policy: dict[str, Any]) -> None:
    """A claim that buried some says that there may be more: they took the room of those behind them."""
    limited = Limited(bench, q=policy)
    limited.publish("app.plain", "1", "2", "3", start_by=1)
    limited.publish("app.plain", "behind", due=1)
    taken = limited.take(10, 1)
    while not (taken.count or taken.everything):
        taken = limited.take(10, 1)
    assert taken.count == 1


def test_what_another_backend_serves(bench: Bench) -> None:
    """The look leaves parked jobs of its queues alone: their limits are not known here."""
    limited = Limited(bench, q={"concurrency": 1})
    limited.publish("", "1", "2", "3", key="k")
    assert len(limited.claim(0, raw=True)) == 1
    other = Limited(bench)
    other.serve_only("others")
    assert other.look() == 0
