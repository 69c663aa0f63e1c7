"""What becomes of the jobs of a worker that is dead, as a function of their rows."""

from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core import history
from django_vtqueue.core.clock import SECOND
from django_vtqueue.core.job import HeldJob
from django_vtqueue.engines import engine_for
from django_vtqueue.models import Job, WorkerProcess
from django_vtqueue.worker.deaths import after_death, settle_what_it_held
from tests.project import tasks

NOW = 1_800_000_000 * SECOND
BACKEND = VTQueueBackend("default", {"OPTIONS": {}})


def job(job_id: str, path: str, seconds: float, **values: object) -> HeldJob:
    """Return a job that began so many seconds ago."""
    held = HeldJob(
        *(job_id, "default", path, 0, NOW, 1, 1, 10, "w", SECOND, NOW, NOW - round(seconds * SECOND)),
        *("{}", "[]", NOW),
    )
    return replace(held, **values)  # type: ignore[arg-type]


def outcomes(*held: HeldJob) -> list[str]:
    """Return how jobs end whose child was killed because one of them was over its time."""
    endings = after_death(BACKEND, held, NOW, over_time=True)
    return [history.read(ending.history or "[]")[-1]["outcome"] if ending.history else "released" for ending in endings]


def test_what_is_over_its_time_has_timed_out() -> None:
    """The other jobs of the child are not to blame, however long they run."""
    brief, long = job("a", tasks.hang.module_path, 30), job("b", tasks.hold.module_path, 5000)
    assert outcomes(brief, long) == [history.TIMED_OUT, "released"]


def test_a_job_that_ended_at_the_last_moment_leaves_no_other_to_blame() -> None:
    """Its child is killed all the same; none of the others was over its time, so each is released, or has died."""
    held = job("a", tasks.hold.module_path, 10), job("b", tasks.hold.module_path, 20, max_attempts=1)
    assert outcomes(*held) == ["released", history.WORKER_DIED]


def test_a_task_that_is_not_known_here_is_to_blame_if_no_other_is() -> None:
    """Its limit is not known either; of several it is the one that ran longest."""
    held = [job("a", tasks.hold.module_path, 30), job("b", "shop.tasks.new", 10), job("c", "shop.tasks.newer", 20)]
    assert outcomes(*held) == ["released", "released", history.TIMED_OUT]


@pytest.mark.django_db
def test_what_is_left_to_other_workers_is_written_nowhere() -> None:
    """A dead worker that holds only jobs of queues that are not served here is looked at, and its row stays."""
    now = timezone.now()
    row = WorkerProcess.objects.create(worker_id="w", host="h", pid=1, slots=1, started_at=now, heartbeat_at=now)
    times = {"enqueued_at": now, "due_at": now, "started_at": now, "lease_until": now}
    held = {"state": "RUNNING", "worker_id": "w", "claims": 1, "attempts": 1, "max_attempts": 10, "lease_us": SECOND}
    Job.objects.create(queue_name="reports", payload="{}", **held, **times)
    ours, theirs = (VTQueueBackend("default", {"QUEUES": [name]}) for name in ("emails", "reports"))
    with CaptureQueriesContext(connection) as captured:
        assert settle_what_it_held(engine_for("default"), ours, row) == []
    assert not [query["sql"] for query in captured if query["sql"].startswith(("UPDATE", "INSERT", "DELETE"))]
    assert len(settle_what_it_held(engine_for("default"), theirs, row)) == 1
    row.refresh_from_db()
    assert (row.went_on, row.died_at is None) == (1, False)
