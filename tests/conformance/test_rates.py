"""Rates: a job that comes too early is moved once, to the moment booked for it; a queue over its rate is left out."""

from time import monotonic
from typing import Any

import pytest

from django_vtqueue import control

from .bench import (
    OTHER_RATE_STAYS,
    Bench,
    Limited,
    Looks,
    failure,
    limits_clock,
    names,
    nothing_is_booked,
    payloads_of,
    release,
    small_looks,
    tasks_of,
    while_moments_are_booked,
)

TASKS: dict[str, dict[str, Any]] = {
    "app.second": {"rate": "1/s"},
    "app.burst": {"rate": "1/s", "burst": 3},
    "app.both": {"rate": "1/s", "concurrency": 1},
    "app.plain": {},
}


@pytest.fixture
def limited(bench: Bench) -> Limited:
    found = Limited(bench)
    found.tasks.update(TASKS)
    return found


def publish(limited: Limited, task: str, *texts: str, rate: str = "r", **options: Any) -> None:
    limited.publish(task, *texts, rate_keys=[rate] * len(texts), **options)


def test_too_early_is_moved_once(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each to its own moment, one interval apart; nothing else waits, and none of them is looked at before its time."""
    publish(limited, "app.second", "a", "b", "c", "d")
    limited.publish("app.plain", "x")
    assert names(limited.claim()) == "a x"
    assert limited.moments() == [1, 2, 3]
    nothing_is_booked(limited, monkeypatch)
    for now, expected in [(0.5, ""), (1, "b"), (1.5, ""), (2, "c"), (3, "d")]:
        assert names(limited.claim(now)) == expected
    assert limited.earliest(tasks_of()) is not None


def test_the_longest_names(limited: Limited) -> None:
    """A rate key and a queue with a rate may have as long a name as any."""
    publish(limited, "app.second", "a", "b", rate="ä" * 255)
    assert names(limited.claim()) == "a"
    assert limited.moments() == [1]
    limited.use_rate_of_queue("q" * 255, next_at=1, interval=2)
    assert limited.rate_of_queue("q" * 255) == pytest.approx((1, 2))


def test_burst(limited: Limited) -> None:
    """So many at once after a pause, then one for each interval; what comes later queues behind what waits."""
    publish(limited, "app.burst", *"abcde")
    assert names(limited.claim()) == "a b c"
    assert limited.moments() == [1, 2]
    publish(limited, "app.burst", "f", priority=5)
    assert limited.claim(0.5) == {}
    assert limited.moments() == [1, 2, 3]
    assert names(limited.claim(2)) == "d e"
    assert names(limited.claim(3)) == "f"
    publish(limited, "app.burst", *"ghij", due=10)
    assert names(limited.claim(10)) == "g h i"


def test_a_burst_beside_a_task_without_one(limited: Limited) -> None:
    """Tasks that share a key: what starts in a claim counts for all that it judges, and no job is moved twice."""
    limited.largest_burst = 3
    publish(limited, "app.burst", "x", "y")
    publish(limited, "app.second", "a", "b", "c")
    assert names(limited.claim()) == "x y"
    assert limited.moments() == [2, 3, 4]
    for now, expected in [(1, ""), (2, "a"), (3, "b"), (4, "c")]:
        assert names(limited.claim(now)) == expected


def test_a_burst_of_another_task_counts_later_too(limited: Limited) -> None:
    """A task without a burst waits for the time that the starts of all have used; each job is moved once."""
    limited.largest_burst = 3
    publish(limited, "app.burst", "x", "y", "z")
    assert names(limited.claim()) == "x y z"
    publish(limited, "app.burst", "u")
    publish(limited, "app.second", "a")
    publish(limited, "app.burst", "v", due=0.2)
    assert names(limited.claim(0.1)) + names(limited.claim(0.2)) == ""
    assert limited.moments() == [1, 4, 5]
    for now, expected in [(1, "u"), (3.9, ""), (4, "a"), (5, "v")]:
        assert names(limited.claim(now)) == expected


@pytest.mark.parametrize("looks", [True, False])
def test_a_slow_rate_with_another_burst(limited: Limited, looks: bool) -> None:
    """What the burst of one task has used is not taken for the state of a clock that was ahead by another task."""
    limited.tasks |= {"app.many": {"rate": "1/h", "burst": 5}, "app.one": {"rate": "1/h"}}
    limited.largest_burst = 5
    publish(limited, "app.many", *"abcdefghij", priority=1)
    publish(limited, "app.one", "x")
    looks_of_one, started = limited.looks(), 0
    for second in range(20):
        started += len(limited.claim(second))
        limited.bench.clock_at(second)
        assert not looks or looks_of_one.at_rates() == 0
    assert started == 5


def test_a_changed_rate_that_nothing_waits_for(limited: Limited) -> None:
    """It holds at once, also where the jobs come so seldom that none had to wait by the old one."""
    limited.tasks["app.second"] = {"rate": "1/m", "burst": 5}
    started = []
    for minute in range(60):
        if minute == 3:
            limited.tasks["app.second"] = {"rate": "1/h", "burst": 5}
        publish(limited, "app.second", f"{minute}", due=60 * minute)
        for name, job in limited.claim(60 * minute).items():
            started.append(name)
            limited.done(job)
    assert len(started) == 3 + 4  # of the old rate the last start counts


def test_a_new_job_does_not_take_the_last_moment(limited: Limited) -> None:
    """One of a higher priority that comes at the moment of another job goes behind it."""
    publish(limited, "app.second", "a", "b")
    assert names(limited.claim()) == "a"
    publish(limited, "app.second", "c", priority=5)
    assert names(limited.claim(1)) == "b"
    assert limited.moments() == [2]


def test_two_rates_of_one_key(limited: Limited) -> None:
    """The first one that is used is that of the key, and of the moments of all, until the key is unused."""
    limited.tasks["app.other"] = {"rate": "10/s"}
    publish(limited, "app.second", "a", "b")
    assert names(limited.claim()) == "a"
    publish(limited, "app.other", "x", "y")
    assert limited.claim(0.5) == {}
    assert limited.moments() == [1, 2, 3]
    assert [names(limited.claim(now)) for now in (1, 2, 3)] == ["b", "x", "y"]
    limited.bench.clock_at(4)
    limited.look_at_rates()
    publish(limited, "app.other", "z", "w")
    assert [names(limited.claim(now)) for now in (4, 4.1)] == ["z", "w"]


def test_late_jobs_do_not_start_together(limited: Limited) -> None:
    """Nothing ran for a while: of the jobs whose moments have passed one starts, the others get new ones, once each."""
    publish(limited, "app.second", *"abcdef")
    limited.done(*limited.claim().values())
    assert names(limited.claim(100)) == "b"
    assert limited.moments() == [101, 102, 103, 104]
    for now, expected in [(101, "c"), (102, "d"), (103.5, "e"), (104, ""), (104.5, "f")]:
        assert names(limited.claim(now)) == expected


def test_keys_have_their_own_rates(limited: Limited) -> None:
    """Another key is not held up."""
    publish(limited, "app.second", "a", "b", rate="r")
    publish(limited, "app.second", "c", "d", rate="s")
    assert names(limited.claim()) == "a c"


def test_with_concurrency(limited: Limited) -> None:
    """A job that waits for a place books no moment; one that comes to its moment waits for a place."""
    publish(limited, "app.both", "a", "b", "c", key="k")
    [job] = limited.claim().values()
    assert limited.claim(10) == {}
    limited.done(job)
    assert names(limited.claim(10)) == "b"


def test_a_retry_counts_as_a_start(limited: Limited) -> None:
    """So does a job that was released: it started."""
    publish(limited, "app.second", "a")
    [job] = limited.claim().values()
    limited.end(failure(job, 0, 0))
    assert limited.claim(0.5) == {}
    [job] = limited.claim(1).values()
    limited.end(release(job))
    assert limited.claim(1.5) == {}
    assert names(limited.claim(2)) == "a"


@pytest.mark.parametrize("which", ["b", "c", "d"])
def test_run_now_keeps_the_moment_of_a_booked_job(limited: Limited, which: str) -> None:
    """The rate is not broken for it, and it is not sent behind those that stood behind it."""
    publish(limited, "app.second", "a", "b", "c", "d")
    limited.claim()
    limited.bench.clock_at(0.5)
    row = limited.bench.jobs.get(payload=which)
    assert control.run_now(row.pk, using=limited.bench.alias) == []
    assert limited.claim(0.5) == {}
    assert [names(limited.claim(now)) for now in (1, 2, 3)] == ["b", "c", "d"]


@pytest.mark.parametrize(("rate", "expected"), [("100/s", "b c d"), (None, "b c d"), ("1/h", "")])
def test_a_changed_rate(limited: Limited, rate: str | None, expected: str) -> None:
    """Raised or removed: what waits for moments of the old rate is given back. Lowered: it is not exceeded."""
    limited.tasks["app.second"] = {"rate": "1/h", "burst": 1}
    publish(limited, "app.second", *"abcd")
    assert names(limited.claim()) == "a"
    assert limited.moments() == [3600, 7200, 10800]
    limited.bench.clock_at(5)
    limited.tasks["app.second"] = {} if rate is None else {"rate": rate}
    limited.look_at_rates()
    found = [name for now in (5, 5.01, 5.02, 5.03, 5.05) for name in limited.claim(now)]
    assert names(found) == expected
    limited.look_at_rates()
    if expected:
        assert limited.moments() == []


def test_many_moments_are_given_back(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few at a time: what claims meet meanwhile does not go to the end of the old line again."""
    small_looks(monkeypatch, jobs=2)
    limited.tasks["app.second"] = {"rate": "1/h"}
    publish(limited, "app.second", *"abcdef")
    assert names(limited.claim()) == "a"
    limited.tasks["app.second"] = {"rate": "1/s"}
    looks = limited.looks()
    for now, back in [(5, 2), (6, 2), (7, 1), (8, 0)]:
        limited.bench.clock_at(now)
        assert looks.at_rates() == back
        limited.claim(now)
    assert limited.moments()[-1] < 20
    assert limited.rates("r")["r"][1] == 1


@pytest.mark.parametrize("rate", ["1/s", None], ids=["changed", "removed"])
def test_a_rate_of_many_keys(limited: Limited, rate: str | None) -> None:
    """One sweep puts the jobs of all keys back, some hundred with each look; no look waits before it goes on."""
    limited.bench.clock_at(5)
    keys = [f"r{number % 300:03}" for number in range(1500)]
    limited.publish("app.second", *keys, rate_keys=keys)
    limited.book_all(3600)
    limited.use_rates(7200, 3600, *keys)
    limited.tasks["app.second"] = {} if rate is None else {"rate": rate}
    looks, number = limited.looks(), 0
    while limited.moments():
        assert looks.go_on() <= Looks.most
        number += 1
    assert number <= 10


def test_a_clock_that_was_ahead(limited: Limited) -> None:
    """What it has booked, and the state of the rate, are set right by the look."""
    publish(limited, "app.second", "a", "b", "c", due=-10)
    assert names(limited.claim(3600)) == "a"
    assert limited.moments() == [3601, 3602]
    limited.bench.clock_at(5)
    assert limited.claim(5) == {}
    assert limited.look_at_rates() == 2
    assert [name for now in (5, 6, 6.5, 7, 8) for name in limited.claim(now)] == ["b", "c"]


@pytest.mark.parametrize("ahead", [10, 3600])
def test_a_state_of_a_clock_that_was_ahead(limited: Limited, ahead: int) -> None:
    """Nothing was booked by it: a claim takes it for what starts up to now can have made."""
    publish(limited, "app.second", "a")
    assert names(limited.claim(5 + ahead)) == "a"
    publish(limited, "app.second", "b")
    assert limited.claim(5) == {}
    assert limited.moments() == [6]
    assert [names(limited.claim(now)) for now in (5.9, 6)] == ["", "b"]


def test_a_worker_that_died_while_jobs_were_put_back(limited: Limited) -> None:
    """Another one puts the rest back, also where the task is not loaded."""
    publish(limited, "app.second", "a", "b", "c")
    assert names(limited.claim()) == "a"
    limited.die_while_putting_back("r", next_at=1)
    limited.tasks.clear()
    limited.bench.clock_at(0)
    assert limited.look_at_rates() == 2
    assert limited.moments() == []


def test_unused_rates_are_forgotten(limited: Limited) -> None:
    """A state that is over says nothing any more; one with a line is kept."""
    publish(limited, "app.second", "a", "b", rate="r")
    publish(limited, "app.second", "c", rate="s")
    limited.claim()
    limited.bench.clock_at(50)
    limited.look_at_rates()
    assert limited.keys_in_use() == {"r"}


def test_a_task_that_is_not_loaded(limited: Limited) -> None:
    """Nothing is said of its rate, or of that of its queue, until its first jobs have loaded it: then they hold."""
    limited.queues(slow={"rate": "1/h"})
    limited.use_rates(0, 60, "t")
    publish(limited, "app.unknown", "a", "b", "c")
    publish(limited, "app.unknown", "d", "e", rate="t")
    publish(limited, "app.unknown", "f", rate="u", queue="slow")
    jobs = limited.claim()
    assert names(jobs) == "a b c d e f"
    assert limited.moments() == []
    assert limited.rates("r", "t", "u") == {"t": (0, 60)}
    assert limited.rate_of_queue("slow") is None
    limited.load("app.unknown", jobs.values(), rate="10/s")
    assert names(limited.claim(1)) == "a d f"
    assert [name for now in (1.05, 1.1, 1.2) for name in limited.claim(now)] == ["b", "e", "c"]
    assert limited.rates("r")["r"][1] == 0.1


def test_a_booked_job_of_a_task_that_is_not_loaded(limited: Limited) -> None:
    """Given back it has its moment and its place; if the import fails it has none, and waits for its next attempt."""
    publish(limited, "app.second", "a", "b", "c", "d")
    limited.claim()
    options = limited.tasks.pop("app.second")
    jobs = limited.claim(1)
    assert (names(jobs), limited.moments()) == ("b", [2, 3])
    limited.load("app.second", jobs.values(), **options)
    assert limited.moments() == [1, 2, 3]
    assert (names(limited.claim(1)), limited.moments()) == ("b", [2, 3])
    del limited.tasks["app.second"]
    limited.end(failure(limited.claim(2)["c"], 50, 60))
    assert limited.moments() == [3]


def test_a_task_that_is_loaded_while_its_jobs_are_claimed(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rate holds for those that are judged a second time, since the claim had to look behind others."""
    publish(limited, "app.second", "x", "y", rate="other")
    publish(limited, "app.unknown", "a", "b")
    while_moments_are_booked(limited, monkeypatch, lambda: limited.tasks.update({"app.unknown": {"rate": "1/s"}}))
    assert names(limited.claim()) == "x a"
    assert limited.moments() == [1, 1]


def test_the_look_at_a_task_that_is_not_loaded(limited: Limited) -> None:
    """Its rate is left as it is; once it is loaded, one that was changed is set right, though no job of it is due."""
    limited.tasks["app.second"] = {"rate": "1/d"}
    publish(limited, "app.second", "a", "b")
    limited.claim()
    limited.bench.clock_at(5)
    del limited.tasks["app.second"]
    assert limited.look_at_rates() == 0
    limited.tasks["app.second"] = {"rate": "1/s"}
    assert limited.look_at_rates() == 1


def test_two_rates_in_one_deploy(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers with the old and with the new code do not move all jobs against each other; one rate holds."""
    old, new = Limited(limited.bench), limited
    old.tasks["app.second"], new.tasks["app.second"] = {"rate": "1/h"}, {"rate": "1/m"}
    publish(old, "app.second", *"abcd")
    assert names(old.claim()) == "a"
    limited.bench.clock_at(1)
    moved: list[int] = []
    for _ in range(5):
        for each in (new, old):
            moved.append(each.look_at_rates())
            each.claim(1)
    assert moved == [3, 3, *[0] * 8]
    later = monotonic() + OTHER_RATE_STAYS
    limits_clock(monkeypatch, lambda: later)
    new.look_at_rates()
    new.claim(2)
    assert new.moments()[-1] < 200


# -- queues -----------------------------------------------------------------------------------------------------------


def test_rate_of_a_queue(bench: Bench) -> None:
    """Nothing is moved: the queue is left out until the next start, and then its best job starts."""
    limited = Limited(bench, q={"rate": "1/s", "burst": 2})
    limited.publish("app.plain", *"abcd")
    limited.publish("app.plain", "x", "y", queue="other", due=0.1)
    both = [tasks_of(), payloads_of("q")]
    assert names(limited.claim(0.2, served=both)) == "a b x y"
    limited.publish("app.plain", "u", priority=1)
    limited.publish("", "r", key="k", priority=2)
    found = [names(limited.claim(now, served=both)) for now in (0.5, 1.2, 1.3, 2.2, 2.3, 4.2)]
    assert found == ["", "r", "", "u", "", "c d"]
    assert limited.moments() == []


def test_earliest_of_a_queue_with_a_rate(bench: Bench) -> None:
    """A worker sleeps until the next start is allowed."""
    limited = Limited(bench, q={"rate": "1/m"})
    limited.bench.clock_at(5)
    limited.publish("app.plain", "a", "b")
    [job] = limited.claim(5).values()
    limited.done(job)
    assert limited.earliest(tasks_of()) == 65
    assert limited.claim(64) == {}
    assert names(limited.claim(65)) == "b"


def look_at(limited: Limited, now: float) -> None:
    """Look at the rates, as a worker does once a second."""
    limited.bench.clock_at(now)
    limited.look_at_rates()


@pytest.mark.parametrize("burst", [1, 5])
def test_the_rate_of_a_queue_is_faster_now(bench: Bench, burst: int) -> None:
    """The look has as many starts be owed to the new rate as were to the old one."""
    old = Limited(bench, q={"rate": "1/h", "burst": burst})
    old.publish("app.plain", *"abcdefghijklmn")
    assert len(old.claim()) == burst
    new = Limited(bench, q={"rate": "1/s", "burst": burst})
    assert new.claim(0.5) == {}
    look_at(new, 1)
    assert new.rate_of_queue("q") == pytest.approx((1 + burst, 1), abs=0.001)
    assert [len(new.claim(now)) for now in (1, 2, 2.5, 3)] == [0, 1, 0, 1]


def test_the_rate_of_a_queue_is_slower_now(bench: Bench) -> None:
    """The same."""
    old = Limited(bench, q={"rate": "1/s"})
    old.publish("app.plain", *"abc")
    assert len(old.claim()) == 1
    new = Limited(bench, q={"rate": "1/m"})
    look_at(new, 0.5)
    assert [len(new.claim(now)) for now in (1, 30, 31, 90, 91)] == [0, 0, 1, 0, 1]


def test_two_rates_of_a_queue_in_one_deploy(bench: Bench) -> None:
    """Old and new code take the state over by turns, a minute at least apart: no start is forgotten by that."""
    slow, fast = Limited(bench, q={"rate": "1/h", "burst": 3}), Limited(bench, q={"rate": "1/s", "burst": 3})
    slow.publish("app.plain", *"abcdefghijkl")
    assert len(slow.claim()) == 3
    started = 0
    for tenth in range(40):
        for each in (slow, fast):
            each.bench.clock_at(tenth / 10)
            each.look_at_rates()
            started += len(each.claim(tenth / 10))
    assert started <= 3 + 4


def test_two_bursts_of_a_queue_in_one_deploy(bench: Bench) -> None:
    """The smaller one waits until the bursts of the others are over: it does not give them room for further ones."""
    large, small = Limited(bench, q={"rate": "1/s", "burst": 10}), Limited(bench, q={"rate": "1/s"})
    large.publish("app.plain", *"abcdefghijklmnopqrstuvwxyz")
    assert len(small.claim()) == 1
    assert len(large.claim(0)) == 9
    for now in (0.1, 0.2, 0.3):
        look_at(small, now)
        assert (small.claim(now), large.claim(now)) == ({}, {})


def test_claims_that_come_a_bit_late(bench: Bench) -> None:
    """One that has read the time, and then waited for the lock, starts nothing more than one that has not."""
    claimers = [Limited(bench, q={"rate": "1/h"}) for _ in range(5)]
    claimers[0].publish("app.plain", *"abcdefgh")
    late = (0, 1e-6, 0.001, 0.5, 5)
    assert [len(each.claim(10 - seconds)) for each, seconds in zip(claimers, late, strict=True)] == [1, 0, 0, 0, 0]


def test_the_rate_of_a_queue_after_a_clock_that_was_ahead(bench: Bench) -> None:
    """It owes a burst, once that is known, and then the rate holds; a second worker that knows it cuts nothing more."""
    limited = Limited(bench, q={"rate": "1/s", "burst": 3})
    limited.publish("app.plain", *"abcdefghij")
    assert len(limited.claim(600)) == 3
    for now in (5, 5.5):
        limited.bench.clock_at(now)
        limited.notice_clock_ahead()
    assert [len(limited.claim(now)) for now in (5.5, 6, 6.5, 7, 20)] == [0, 1, 0, 1, 3]
