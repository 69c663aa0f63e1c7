"""The words for the state of a job."""

import pytest

from django_vtqueue.core import states


@pytest.mark.parametrize(
    ("state", "visible_at", "attempts", "word"),
    [
        (states.READY, 5, 0, "due"),
        (states.READY, 10, 3, "due"),
        (states.READY, 11, 0, "scheduled"),
        (states.READY, 11, 1, "retrying"),
        (states.RUNNING, 11, 1, "running"),
        (states.RUNNING, 10, 1, "expired"),
        (states.SUCCESSFUL, 5, 1, "done"),
        (states.FAILED, 5, 1, "dead"),
    ],
)
def test_state_words(state: str, visible_at: int, attempts: int, word: str) -> None:
    """What people see at instant 10."""
    assert states.word(state, visible_at, attempts, now=10) == word
    assert word in states.WORDS
