"""What an order promises when the code that stored its jobs had another limit."""

import pytest

from .bench import Bench
from .test_limits import Limited, names


@pytest.fixture
def limited(bench: Bench) -> Limited:
    return Limited(bench)


def in_turn(limited: Limited, *moments: float) -> list[str]:
    """Claim at each moment, and have what is claimed done; return the names."""
    found = []
    for now in moments:
        jobs = limited.claim(now)
        found.append(names(jobs))
        limited.done(*jobs.values())
        limited.look()
    return found


def test_a_task_that_becomes_ordered(limited: Limited) -> None:
    """Its order holds for what was stored before, too: a stored job for later keeps those behind it waiting."""
    limited.tasks["app.changed"] = {"concurrency": 1}
    limited.publish("app.changed", "a", key="k", due=5)
    limited.publish("app.changed", "b", "c", key="k")
    limited.tasks["app.changed"] = {"order_key": str}
    limited.publish("app.changed", "d", key="k", priority=9)
    assert in_turn(limited, 0, 6, 7, 8, 9) == ["", "a", "b", "c", "d"]


def test_old_code_stores_jobs_during_a_deploy(limited: Limited) -> None:
    """What a process with the code of before stores meanwhile has its place in the order."""
    limited.tasks["app.changed"] = {"order_key": str}
    limited.publish("app.changed", "a", key="k")
    limited.tasks["app.changed"] = {"concurrency": 1}
    limited.publish("app.changed", "b", key="k", due=5)
    limited.tasks["app.changed"] = {"order_key": str}
    limited.publish("app.changed", "c", key="k")
    assert in_turn(limited, 0, 1, 6, 7) == ["a", "", "b", "c"]


def test_a_key_that_a_task_without_an_order_has_too(limited: Limited) -> None:
    """A key is one for the whole database: a job in order waits for all that was stored before it."""
    limited.publish("app.one", "a", key="k", due=5)
    limited.publish("app.ordered", "b", key="k")
    assert in_turn(limited, 0, 6, 7) == ["", "a", "b"]
