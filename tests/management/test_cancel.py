"""``manage.py vtqueue cancel``, and what is said of a job that was asked to stop."""

import getpass
from uuid import UUID

import pytest

from django_vtqueue import Queue
from django_vtqueue.core.clock import from_instant
from django_vtqueue.models import DeadLetter, Job, WorkerProcess
from tests.fake_clock import FakeClock
from tests.project import tasks

from ..inspection.test_why import said, worker
from .test_vtqueue import ID, dead, refusal, vtqueue

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _anna(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests are run by anna."""
    monkeypatch.setenv("LOGNAME", "anna")


def running(row: WorkerProcess) -> UUID:
    """Make a job that a worker runs; return its id."""
    job_id = tasks.add.enqueue(1, 2).id
    Job.objects.filter(pk=job_id).update(
        state="RUNNING",
        worker_id=row.pk,
        attempts=1,
        started_at=row.started_at,
        lease_until=row.heartbeat_at + (row.heartbeat_at - row.started_at),
    )
    return UUID(job_id)


def test_cancel(time: FakeClock) -> None:
    """What waits is a dead letter that says who did it, what runs is asked to stop; the end of an id is enough."""
    waiting = tasks.add.enqueue(1, 2).id
    held = running(worker(time, started_at=from_instant(time.instant - 60_000_000)))
    assert vtqueue("cancel", waiting[-8:], str(held)) == (
        f"cancelled tests.project.tasks.add {waiting}\n"
        f"asked to stop tests.project.tasks.add {held}, held by web1:4711\n"
    )
    assert DeadLetter.objects.get().message == "Cancelled by anna."
    assert Job.objects.get().cancelled_by == "anna"
    time.advance(4)
    assert said(waiting) == "dead for 4 s: Cancelled: Cancelled by anna; requeue it to have it run again"
    assert said(held) == (
        "asked to stop by anna 4 s ago, so that it is not started again; held by web1:4711, lease ends in 56 s"
    )
    assert refusal("cancel", str(held)) == f"Not cancelled: {held}. It is done, or was asked to stop before."
    time.advance(60)
    assert said(held).startswith(
        "asked to stop by anna 1.1 min ago, so that it is not started again; the lease of web1:"
    )
    Job.objects.update(cancelled_by=None)
    assert said(held).startswith("asked to stop 1.1 min ago, ")


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not know who runs the command, no name is stored."""

    def no_user() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", no_user)
    vtqueue("cancel", tasks.add.enqueue(1, 2).id)
    assert DeadLetter.objects.get().message == "Cancelled."


def test_what_is_no_job() -> None:
    """All that is named is found, or nothing is cancelled; the error says what else it is."""
    waiting = str(Queue("q").publish("x"))
    letter = dead()
    told = f"{letter} is a dead letter in queue 'letters': no worker runs it."
    assert refusal("cancel", waiting, str(letter)) == told
    assert refusal("cancel", waiting, ID) == f"There is no job {ID}; one that is done is kept for result_ttl."
    assert Job.objects.count() == 1
