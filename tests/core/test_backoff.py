"""When to try again: delays of attempts, and pauses of who asks for a lock or waits for a database."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from django_vtqueue.core import backoff
from django_vtqueue.core.clock import SECOND
from django_vtqueue.core.grace import REST, REST_DIVISOR

jitters = st.floats(0, 1)
attempts = st.integers(1, 10**6)


def test_backoff_doubles() -> None:
    """2, 4, 8 … 512 seconds: the default's ten attempts take 17 minutes."""
    delays = [backoff.backoff_delay(2, 3600, attempt, jitter=0) for attempt in range(1, 10)]
    assert delays == [2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert sum(delays) == 1022


def test_backoff_sequence() -> None:
    """Each attempt has its own delay; the last one is repeated."""
    assert [backoff.backoff_delay((1, 5, 60), 3600, attempt, 0) for attempt in range(1, 6)] == [1, 5, 60, 60, 60]
    assert backoff.backoff_delay((), 3600, 1, 0) == 0


def test_backoff_cap() -> None:
    """Never more than the cap, by doubling or by sequence."""
    assert backoff.backoff_delay(2, 100, 50, 0) == 100
    assert backoff.backoff_delay((7, 5000), 100, 2, 0) == 100


def test_backoff_jitter() -> None:
    """Up to a fifth less, by jitter, so that what failed together does not come back together."""
    assert [backoff.backoff_delay(10, 3600, 1, jitter) for jitter in (0, 0.5, 1)] == [10, 9, 8]


@given(
    given_backoff=st.floats(0, 1e9) | st.lists(st.floats(0, 1e9), max_size=5), cap=st.floats(0, 1e9), attempt=attempts,
    jitter=jitters,
)  # fmt: skip
def test_backoff_is_always_a_delay(given_backoff: Any, cap: float, attempt: int, jitter: float) -> None:
    """Whatever the attempt: finite, never negative, never above the cap, and not shorter for a later attempt."""
    delay = backoff.backoff_delay(given_backoff, cap, attempt, jitter)
    assert 0 <= delay <= cap
    if isinstance(given_backoff, float):
        assert backoff.backoff_delay(given_backoff, cap, attempt + 1, jitter) >= delay


@given(waited=st.floats(0, 1e6), jitter=jitters)
def test_busy_pause(waited: float, jitter: float) -> None:
    """About a millisecond for a whole second, two for ten, and only then five."""
    pause = backoff.busy_pause(waited, jitter)
    expected = 0.001 if waited < 1 else 0.002 if waited < 10 else 0.005
    assert 0.5 * expected <= pause <= 1.5 * expected + 1e-9


@given(waited=st.floats(0, 1e6), jitter=jitters, left=st.floats(-1e6, 0.49))
def test_who_holds_a_lease_that_ends_or_has_ended_asks_for_the_lock_each_millisecond(
    waited: float, jitter: float, left: float
) -> None:
    """However long that takes: whoever is free first after a lock must be its holder."""
    assert 0.0005 <= backoff.busy_pause(waited, jitter, left) <= 0.0015


@given(waited=st.floats(0, 1e6), jitter=jitters)
def test_who_will_hold_the_lock_for_long_asks_for_it_less_often(waited: float, jitter: float) -> None:
    """What holds it briefly gets it first; but the worker that has had it begins its next transaction later."""
    pause = backoff.long_hold_pause(waited, jitter)
    assert pause >= 0.99 * backoff.busy_pause(min(waited, 0.9), jitter)
    assert pause < backoff.LONGEST_REST
    if waited > 1:
        assert pause > 4 * backoff.busy_pause(1, jitter)


@given(st.integers(1, 10**6))
def test_trouble_pause(tries: int) -> None:
    """From 0.1 s, doubled with each failure, to 2.5 s, and to half of what a claim leaves to the holder of a lease."""
    assert 0.1 <= backoff.trouble_pause(tries) <= backoff.trouble_pause(tries + 1) <= 2.5
    assert [backoff.trouble_pause(number) for number in (1, 2, 3, 99)] == [0.1, 0.2, 0.4, 2.5]
    for lease in (3, 15, 3600):
        rest = min(lease / REST_DIVISOR, REST / SECOND)
        assert backoff.trouble_pause(99, lease) <= rest / 2
