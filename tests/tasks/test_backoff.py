"""A function as ``backoff``: whatever it returns or raises, the job is kept, and it is said what was found."""

import logging
from typing import Any

import pytest

from django_vtqueue import task
from django_vtqueue.core.text import shown
from django_vtqueue.models import DeadLetter, Job
from tests.pending import run_pending

pytestmark = pytest.mark.django_db

CHOSEN: dict[str, Any] = {}


def choose(exception: BaseException, result: Any) -> Any:
    return CHOSEN["delay"]


@task(backoff=choose)
def fail(password: str) -> None:
    raise ConnectionError("refused")


@pytest.mark.parametrize("delay", ["60", float("nan"), float("inf"), -5, True, [1], 10**400], ids=shown)
def test_no_seconds(delay: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The job is tried again after the default wait; log and history say what was returned, and what is allowed."""
    CHOSEN["delay"] = delay
    caplog.set_level(logging.WARNING, "django_vtqueue")
    fail.enqueue("x")
    run_pending()
    job = Job.objects.get()
    assert 1 < (job.due_at - job.enqueued_at).total_seconds() < 5
    found = shown(delay)
    told = f"backoff returned {found}, but must return a number of seconds (0 or more) or a timedelta, or None"
    assert told in caplog.text
    assert told in job.history[0]["traceback"]


def test_none() -> None:
    """There is no further attempt; the dead letter says why there were fewer than it had."""
    CHOSEN["delay"] = None
    fail.enqueue("x")
    run_pending()
    assert "Its backoff has returned None" in DeadLetter.objects.get().history[0]["traceback"]


def test_it_fails_with_a_secret(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What is hidden of the arguments is hidden of its error too."""
    monkeypatch.delitem(CHOSEN, "delay", raising=False)
    fail.enqueue("delay")
    run_pending()
    assert "KeyError" in caplog.text
    assert "'delay'" not in caplog.text
    assert Job.objects.get().attempts == 1
