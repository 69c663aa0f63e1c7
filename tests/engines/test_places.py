"""Claims on PostgreSQL while another transaction keeps the rows of the past, which all stand before those that wait."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from django_vtqueue.core.job import Due, Scope
from django_vtqueue.core.settlement import succeeded
from django_vtqueue.engines import Engine, new_engine
from django_vtqueue.engines.postgresql import aside, places
from tests.conformance.bench import Bench
from tests.fake_clock import at

ALL, ONE, SEVERAL = Scope(None, raw=True), Scope(("q",), raw=True), Scope(("q", "other"), raw=True)
GONE = 300


@pytest.fixture
def snapshot(migrated: dict[str, Any], postgresql_database: str) -> Iterator[None]:
    """Keep a transaction open that sees the database as it is now."""
    with closing(psycopg.connect(host=migrated["HOST"], user=migrated["USER"], dbname=migrated["NAME"])) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT count(*) FROM vtqueue_job")
        yield


@pytest.fixture
def engine(postgresql_database: str, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return the engine of a control loop, to which a hundred entries are many; a walk over them rests for long."""
    monkeypatch.setattr(places, "SLOW", 0.0)
    monkeypatch.setattr(places, "MANY", 100)
    monkeypatch.setattr(places, "REST", 1e6)
    engine = new_engine(postgresql_database, traced=False)
    monkeypatch.setattr(engine, "now", lambda: at(0))
    return engine


@pytest.fixture
def bench(engine: Engine, snapshot: None) -> Bench:
    """Return a queue in which very much was done since the snapshot, and nothing waits."""
    bench = Bench(engine)
    work_off_many(bench)
    engine.search_all()
    return bench


def look_often(engine: Engine, scope: Scope) -> None:
    """Have the next walk rest: one may have been long, and one more was."""
    for _ in range(2):
        assert found(engine, scope) == []


def work_off_many(bench: Bench, priority: int = 0) -> None:
    bench.publish(*range(GONE), due=-60, priority=priority)
    assert not bench.settle(*[succeeded(job, "1", at(-50), None) for job in bench.claim(-50, limit=GONE)])


def found(engine: Engine, scope: Scope, limit: int = 10) -> list[int]:
    """Look for what is due, as a claim does; return the priorities."""
    with engine.transaction():
        return [row.priority for row in engine.due(scope, limit, at(0))]


def read(engine: Engine, scope: Scope) -> int:
    """Return how many entries of the indexes a look for what is due reads."""
    with engine.transaction():
        names = {"names": ["vtqueue_job_ready", "vtqueue_job_queue"]}
        before = engine._value(aside.ENTRIES_READ, names)
        engine.due(scope, 10, at(0))
        return int(engine._value(aside.ENTRIES_READ, names) - before)


@pytest.mark.parametrize("scope", [ALL, ONE, SEVERAL], ids=["all", "one", "several"])
def test_a_claim_does_not_walk_over_what_is_gone_twice(bench: Bench, scope: Scope) -> None:
    """After long walks it begins where the last one has found something: it reads what it takes, and little more."""
    assert read(bench.engine, scope) >= GONE
    assert read(bench.engine, scope) >= GONE  # the first one may have been long, so this one is counted
    bench.publish("new")
    assert read(bench.engine, scope) < 10


@pytest.mark.parametrize("scope", [ALL, ONE, SEVERAL], ids=["all", "one", "several"])
def test_what_is_published_is_found_at_once(bench: Bench, scope: Scope) -> None:
    """Also in priorities that did not occur before, and by ``first_due``; in the order of any claim."""
    look_often(bench.engine, scope)
    for priority in (0, -100, 100, 7):
        bench.publish("new", priority=priority)
    assert found(bench.engine, scope) == [100, 7, 0, -100]
    assert found(bench.engine, scope, limit=2) == [100, 7]
    assert bench.engine.first_due(scope) == at(0)


def test_what_was_not_reached_is_found_later(bench: Bench) -> None:
    """A claim that has taken what it may has not looked at the lower priorities: their oldest jobs keep their turn."""
    work_off_many(bench, priority=2)
    bench.engine.search_all()
    bench.publish("old", priority=-1, due=-30)
    bench.publish("new", "new", priority=1)
    for _ in range(2):
        assert found(bench.engine, ALL, limit=2) == [1, 1]
    assert found(bench.engine, ALL) == [1, 1, -1]


def test_a_job_with_an_older_time_waits_for_the_next_whole_walk(bench: Bench) -> None:
    """``first_due`` says when that is; before a worker leaves since nothing is left to do, it looks at all."""
    look_often(bench.engine, ALL)
    bench.publish("late", due=-30)
    assert found(bench.engine, ALL) == []
    first = bench.engine.first_due(ALL)
    assert (first or 0) > at(0)
    bench.engine.search_all()
    assert bench.engine.first_due(ALL) == at(-30)
    assert found(bench.engine, ALL) == [0]


def test_other_code_than_a_worker_looks_at_all(bench: Bench) -> None:
    """A claim by ``Queue`` may be the only one for long."""
    engine = new_engine(bench.engine.alias)
    look_often(engine, ALL)
    bench.publish("late", due=-30)
    assert found(engine, ALL) == [0]


def test_without_such_a_transaction_no_walk_rests(engine: Engine) -> None:
    """What is gone is removed from the index by the first walks over it."""
    bench = Bench(engine)
    work_off_many(bench)
    for _ in range(3):
        engine.search_all()
        entries = read(engine, ALL)
    assert entries < 10


def test_a_busy_second_is_no_long_walk(engine: Engine) -> None:
    """What other walks have read just now does not count: one that had to wait for a core does not rest."""
    bench = Bench(engine)
    bench.publish(*range(GONE), due=-60)
    with engine.transaction():
        for _ in range(3):
            assert len(engine.due(ALL, GONE, at(0))) == GONE
            assert len(engine.due(ONE, 1, at(0))) == 1
    bench.publish("older", due=-90)
    assert [row.due_at for row in engine.due(ONE, 1, at(0))] == [at(-90)]


def test_long_walks_between_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """They rest too: one walk is made by several statements, of which some find what they look for at once."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    read = [0]
    walk = places.Walk(lambda: read[0])

    def step(seconds: float, entries: int) -> None:
        clock[0] += seconds
        read[0] += entries

    rests = []
    for _ in range(2):
        for seconds, entries in ((0.2, 10**6), (0.001, 1)):
            walk.made(lambda: step(seconds, entries))  # noqa: B023
            rests.append(walk.rests() > 0)
    assert rests == [False, False, True, True]


def test_places_are_those_of_the_first_rows() -> None:
    """But never later than what may still be published with a time that has passed."""
    walk = places.DueWalk(lambda: 0)
    now = at(0)
    rows = [Due("a" * 32, 5, now - 10**7, 0, 1, ""), Due("b" * 32, 5, now, 0, 1, ""), Due("c" * 32, 3, now, 0, 1, "")]
    walk.found(rows, 3, now)
    given = walk.given()
    by_level = dict(zip(given["levels"], zip(given["moments"], given["handles"], strict=True), strict=True))
    before = (now - places.LATE, places.FIRST[1])
    assert by_level[5] == (now - 10**7, "a" * 32)
    assert by_level[3] == by_level[4] == by_level[100] == before
    assert by_level[2] == by_level[-100] == places.FIRST
    assert given["levels"] == list(range(100, -101, -1))
