"""How an attempt ends: another attempt, or a dead letter."""

from hypothesis import given
from hypothesis import strategies as st

from django_vtqueue.core import failures, history, settlement, states
from django_vtqueue.core.job import HeldJob
from django_vtqueue.exceptions import LeaseExpired


def held(attempts: int, max_attempts: int) -> HeldJob:
    return HeldJob("0" * 32, "q", "", 0, 100, 1, attempts, max_attempts, "w", 60, 0, 5, "1", "[]", 0)


@given(st.integers(1, 50), st.integers(0, 50), st.none() | st.integers(0, 10**9))
def test_a_failed_attempt_is_retried_or_ends_the_job(attempts: int, max_attempts: int, delay: int | None) -> None:
    """A further attempt, if one is left and wanted: then and only then the job stays in the queue."""
    failure = failures.recorded(LeaseExpired, "x")
    ending = settlement.failed(held(attempts, max_attempts), history.FAILED, failure, 1000, delay)
    left = max_attempts == 0 or attempts < max_attempts
    if left and delay is not None:
        assert (ending.due_at, ending.wake_at or 1000, ending.finished_at) == (1000 + delay, 1000 + delay, None)
        assert ending.state == (states.SCHEDULED if delay else states.READY)
    else:
        assert (ending.state, ending.due_at, ending.finished_at) == (states.FAILED, None, 1000)
    assert ending.attempts == attempts
    assert len(history.read(ending.history or "")) == 1


def test_a_dead_letters_words_fit_their_columns() -> None:
    """The class and the message of a failure are indexed columns of 255 characters."""
    failure = failures.Failure("x" * 999, "m" * 999, "t", "f")
    ending = settlement.failed(held(1, 1), history.FAILED, failure, 1000, 0)
    assert ending.failure is not None
    assert (len(ending.failure.exception_class), len(ending.failure.message)) == (255, 255)
    assert history.read(ending.history or "")[0]["message"] == "m" * 999
