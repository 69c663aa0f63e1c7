"""How fast a worker goes: how soon a turn follows another, and how many jobs it claims ahead."""

from collections.abc import Callable

import pytest

from django_vtqueue.worker import pacing, prefetch
from django_vtqueue.worker.in_flight import InFlight
from django_vtqueue.worker.pacing import BETWEEN_TURNS, LONG, Pacing
from django_vtqueue.worker.prefetch import Prefetch


class Watch:
    """A watch that a test sets; a sleep advances it."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept += seconds
        self.now += seconds


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    for module in (pacing, prefetch):
        monkeypatch.setattr(module, "time", watch)
    return watch


def test_turns_wait_for_each_other_while_others_often_have_the_lock(watch: Watch) -> None:
    """At once as long as no other writer, or hardly one, was in the way; else one every BETWEEN_TURNS seconds."""
    paced = Pacing()
    paced.leave_lock_to_others()
    for _ in range(20):
        paced.note_busy()
        for _ in range(7):
            paced.note_hold(0.0)
        paced.leave_lock_to_others()
    assert not watch.slept
    assert paced.retry_factor == 1
    for _ in range(20):
        paced.note_busy()
        paced.note_busy()
        paced.note_hold(0.0)
    assert paced.retry_factor == 2
    paced.leave_lock_to_others()
    assert watch.slept == pytest.approx(BETWEEN_TURNS)
    paced.leave_lock_to_others()
    assert watch.slept == pytest.approx(BETWEEN_TURNS)
    for _ in range(20):
        paced.note_hold(0.0)
    paced.leave_lock_to_others()
    assert watch.slept == pytest.approx(BETWEEN_TURNS)


def test_after_a_long_transaction_the_next_ones_are_shorter(watch: Watch) -> None:
    """What a computing thread has made long once it makes long again; after some hundred short ones it is forgotten."""
    paced = Pacing()
    paced.note_hold(LONG / 2)
    assert not paced.apart
    paced.note_hold(LONG * 2)
    assert paced.apart
    paced.note_hold(0.0)
    assert paced.apart
    for _ in range(100):
        paced.note_hold(0.0)
    assert not paced.apart


@pytest.fixture
def depth(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return how many are claimed ahead, after turns in which so many jobs ended that took so many seconds each."""

    def depth(count: int, seconds: float, every: float, horizon: float = 0.02) -> int:
        monkeypatch.setattr(prefetch, "HORIZON", horizon)
        claimed = Prefetch(InFlight())
        for _ in range(10):
            watch.now += every
            for _ in range(count):
                claimed.note_finished(seconds)
            claimed.measure(4)
            claimed.measure(4)  # of a turn that is tried again: nothing more has finished
        return claimed.depth()

    return depth


def test_jobs_are_claimed_ahead_as_fast_as_they_end(depth: Callable[..., int]) -> None:
    """What 20 ms take, by the pace of the last turns; nothing where jobs take longer, even if some end together."""
    assert depth(20, 0.0002, every=0.002) == 200
    assert depth(1, 0.0002, every=0.1) == 0
    assert depth(2, 0.2, every=0.0001) == 0
    assert depth(1, 0.02, every=0.019, horizon=1) == 52
    assert depth(1, 0.02, every=0.021, horizon=1) == 0
