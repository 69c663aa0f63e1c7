"""What an order promises of jobs that were stored by other code: each job has the order that it was stored with."""

import pytest

from .bench import Bench, Limited, failure, names


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
    """What was stored before has no order: those jobs run one at a time, too, beside the line of the others."""
    limited.tasks["app.changed"] = {"concurrency": 2}
    limited.publish("app.changed", "a", "b", key="k")
    limited.publish("app.changed", "later", key="k", due=5)
    limited.tasks["app.changed"] = {"order_key": str}
    limited.publish("app.changed", "c", key="k", due=3)
    limited.publish("app.changed", "d", key="k", priority=9)
    assert in_turn(limited, 0, 1, 2, 3, 4, 5) == ["a", "b", "", "c", "d", "later"]


def test_old_code_stores_jobs_during_a_deploy(limited: Limited) -> None:
    """What a process with the code of before stores meanwhile keeps no job in order waiting but while it runs."""
    limited.tasks["app.changed"] = {"order_key": str}
    limited.publish("app.changed", "a", key="k")
    limited.tasks["app.changed"] = {"concurrency": 1}
    limited.publish("app.changed", "b", key="k", due=5)
    limited.tasks["app.changed"] = {"order_key": str}
    limited.publish("app.changed", "c", key="k")
    assert in_turn(limited, 0, 1, 2, 6) == ["a", "c", "", "b"]


def test_a_task_that_has_an_order_no_more(limited: Limited) -> None:
    """The limit in its code holds for what was stored in order, too."""
    limited.publish("app.changed", "a", "b", "c", key="k", ordered=True)
    limited.tasks["app.changed"] = {"concurrency": 2}
    assert in_turn(limited, 0, 1) == ["a b", "c"]


def test_parked_jobs_without_an_order_before_one_that_waits(limited: Limited) -> None:
    """Nobody tells of the end of a holder that vanished: the look puts back what has no order, and leaves the others.

    Those wait for the first of them, which is due later.
    """
    limited.tasks["app.changed"] = {"concurrency": 1}
    limited.publish("app.changed", "a", "b", key="k")
    limited.tasks["app.changed"] = {"order_key": str}
    limited.publish("app.changed", "first", key="k", due=9)
    limited.publish("app.changed", "second", key="k")
    [held] = limited.claim().values()
    assert limited.parked == {"b", "second"}
    limited.bench.jobs.filter(pk=held.id).delete()
    assert limited.look() == 1
    assert in_turn(limited, 1, 2, 9, 10) == ["b", "", "first", "second"]


def test_a_key_that_a_task_without_an_order_has_too(limited: Limited) -> None:
    """A key is one for the whole database: a job in order runs beside no other of its key, and waits for no other."""
    limited.publish("app.one", "a", key="k", due=5)
    limited.publish("app.one", "b", key="k")
    limited.publish("app.ordered", "c", key="k")
    assert in_turn(limited, 0, 1, 6) == ["b", "c", "a"]


def worked_off(limited: Limited, *moments: float) -> str:
    """Claim at each moment until nothing is found, as a worker does after each settlement; return the names."""
    found: list[str] = []
    for now in moments:
        while jobs := limited.claim(now):
            found += jobs
            limited.done(*jobs.values())
        limited.look()
    return names(found)


@pytest.mark.parametrize("later", ["", "stored first"])
def test_a_line_that_waits_for_long_holds_up_no_job_without_an_order(limited: Limited, later: str) -> None:
    """Jobs of the line that are parked, of whatever priority, take no place of those that have no order."""
    limited.tasks["app.changed"] = {"concurrency": 1}
    if later:
        limited.publish("app.ordered", "o1", key="k", due=1000)
        limited.publish("app.ordered", "o2", key="k", priority=5)
        assert limited.claim() == {}
    limited.publish("app.changed", "a", "b", "c", key="k")
    if not later:
        limited.tasks["app.changed"] = {"order_key": str}
        limited.publish("app.changed", "o1", key="k", due=1000)
        limited.publish("app.changed", "o2", key="k", priority=5)
    assert worked_off(limited, 1, 2) == "a b c"
    assert worked_off(limited, 1000) == "o1 o2"


def test_a_line_behind_a_holder_without_an_order(limited: Limited) -> None:
    """Its first job stays parked while that runs: nothing is written each second."""
    limited.tasks["app.changed"] = {"concurrency": 1}
    limited.publish("app.changed", "a", key="k")
    [held] = limited.claim().values()
    limited.tasks["app.changed"] = {"order_key": str}
    limited.publish("app.changed", "o", key="k")
    assert limited.claim(1) == {}
    assert (limited.parked, limited.look()) == ({"o"}, 0)
    limited.done(held)
    assert names(limited.claim(2)) == "o"


def test_a_dead_letter_comes_back_while_a_later_job_runs(limited: Limited) -> None:
    """It stays parked until that has ended, whichever of both is the first of the line."""
    limited.publish("app.ordered", "a", "b", key="k")
    limited.end(failure(limited.claim()["a"], 1, None))
    [letter], [held] = limited.bench.letters, limited.claim(2).values()
    assert limited.bench.requeue(letter.pk.hex, now=3) == {letter.pk.hex}
    assert limited.claim(4) == {}
    assert (limited.parked, limited.look()) == ({"a"}, 0)
    limited.done(held)
    assert names(limited.claim(5)) == "a"


def test_a_line_whose_task_is_not_loaded(limited: Limited) -> None:
    """A worker that serves others leaves it as it is, while its first job is not due."""
    limited.publish("app.ordered", "first", key="k", due=1000)
    limited.publish("app.ordered", "second", key="k")
    assert limited.claim() == {}
    del limited.tasks["app.ordered"]
    assert (limited.look(), limited.look(), limited.parked) == (0, 0, {"second"})
