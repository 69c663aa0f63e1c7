"""Claims from named queues, few and very many, among rows of others: the same contract, however they are found."""

import random

import pytest

from tests.fake_clock import at

from .bench import Bench, payloads_of

NAMES = tuple(f"q{number}" for number in range(150))


def fill(bench: Bench, chance: random.Random, queues: tuple[str, ...], count: int) -> None:
    """Publish raw jobs at random: due, at the same moments, and scheduled."""
    for number in range(count):
        queue, due = chance.choice(queues), chance.choice([-9, -9, -2, -1, 0, 0, 5])
        bench.publish(number, queue=queue, priority=chance.randrange(-2, 3), due=due)


def expected(bench: Bench, names: tuple[str, ...], limit: int) -> list[str]:
    """Return the ids of the jobs that a claim is to find, by sorting all there are."""
    rows = bench.jobs.filter(queue_name__in=names, state="READY", due_at__lte=at(0))
    return [row.pk.hex for row in bench.line(rows)][:limit]


@pytest.mark.parametrize("seed", [1, 7])
def test_a_claim_finds_the_first_rows_of_its_names(bench: Bench, seed: int) -> None:
    """By priority, time and insertion over all names; a name without rows, and rows of other names, change nothing."""
    chance = random.Random(seed)
    fill(bench, chance, NAMES[60:], 250)
    fill(bench, chance, NAMES[:6], 60)
    bench.claim(limit=40, now=-8, lease=4, queues=NAMES)  # what is held is not due
    for names in (NAMES[:1], NAMES[:4], NAMES[:90], NAMES[:120], NAMES):
        for limit in (1, 7, 60, 1000):
            found = bench.first_in_line(payloads_of(*names), limit)
            assert found == expected(bench, names, limit), (len(names), limit)


@pytest.mark.parametrize("others", [0, 150, 400])
def test_many_names_behind_the_rows_of_others(bench: Bench, others: int) -> None:
    """Whatever is due of queues that are not served, and however much of it, comes neither instead nor first."""
    bench.publish(*range(others), queue="other", priority=9)
    bench.publish(*range(others), queue="other", due=-5)
    for name in NAMES[:20]:
        bench.publish("mine", queue=name)
    found = bench.first_in_line(payloads_of(*NAMES), 10)
    assert found == expected(bench, NAMES, 10)
    assert len(found) == 10
    assert bench.first_in_line(payloads_of(*NAMES[20:]), 10) == []


@pytest.mark.parametrize("others", [0, 9, 10, 50])
@pytest.mark.parametrize("names", [NAMES[:2], NAMES], ids=len)
def test_the_earliest_of_many_names_behind_the_rows_of_others(
    bench: Bench, names: tuple[str, ...], others: int
) -> None:
    """Also when another queue's rows come first in one priority, or in all of them."""
    mine = payloads_of(*names)
    for priority in (3, 0, -3):
        bench.publish(*range(others), queue="other", priority=priority, due=-5)
    assert bench.earliest(mine) is None
    bench.publish("mine", queue="q1", due=70, priority=-3)
    assert bench.earliest(mine) == 70
    bench.publish("mine", queue="q0", due=30, priority=3)
    assert bench.earliest(mine) == 30
    bench.publish("mine", queue="q1", due=-9)
    assert bench.earliest(mine) == -9


def test_the_backlog_of_many_names(bench: Bench) -> None:
    """The due jobs of these queues, of all priorities, each counted once."""
    fill(bench, random.Random(1), NAMES[60:], 200)
    bench.publish("other", queue="other")
    for names in (NAMES, NAMES[:70], NAMES[:60], NAMES + NAMES):
        assert bench.backlog(payloads_of(*names), now=0) == len(expected(bench, names, 1000))
