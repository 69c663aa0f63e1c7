"""What workers write of what they did."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from django_vtqueue import throughput
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from . import inside
from .database import Database
from .running import Running, Start

SUMS = """
SELECT coalesce(sum(succeeded), 0) AS succeeded, coalesce(sum(failed), 0) AS failed, coalesce(sum(dead), 0) AS dead
FROM vtqueue_throughput"""


def sums(database: Database) -> tuple[int, int, int]:
    """Return how many attempts succeeded, failed, and were the last."""
    return tuple(database.rows(SUMS)[0])  # type: ignore[return-value]


def timed(database: Database, column: str) -> int:
    """Return how many attempts a histogram has, in all."""
    rows = database.rows(f"SELECT {column} FROM vtqueue_throughput")
    return sum(sum(json.loads(row[0]).values()) for row in rows)


def test_statistics_appear_while_it_works_and_add_up(database: Database, start_worker: Start) -> None:
    """Each attempt is counted once: the first ones can be read soon, all of them when the worker has left."""
    worker = start_worker(constants=inside.tuned(statistics=0.5))
    ids = database.enqueue_many(tasks.add, [(1, 2)] * 500)
    wait_until(lambda: sums(database)[0] > 0)
    assert not worker.ended()
    ids += database.enqueue_many(tasks.add.using(queue_name="other"), [(1, 2)] * 300)
    ids.append(database.enqueue(tasks.fail_first, 2))
    dead = database.enqueue(tasks.raise_it, "SystemExit")
    wait_until(lambda: database.succeeded(*ids) and database.letter(dead))
    assert worker.terminate() == 0
    assert sums(database) == (801, 2, 1)
    assert (timed(database, "run_times"), timed(database, "wait_times")) == (804, 804)
    flows = throughput.read(ALIAS)
    assert {name: sum(flow.succeeded) for name, flow in flows.items()} == {"default": 501, "other": 300}


def test_times_are_those_of_the_jobs(database: Database, drain: Callable[..., Running], tmp_path: Path) -> None:
    """The run time is that of the task, the wait begins when the job was due, not when it was published."""
    (tmp_path / "go").touch()
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    database.write("UPDATE vtqueue_job SET due_at = due_at - 3600000000 WHERE id = ?", job_id)
    drain()
    flow = throughput.read(ALIAS)["default"]
    assert flow.wait.p50 == pytest.approx(3600, rel=inside.ERROR_OF_PERCENTILES + 0.02)
    assert 0 < (flow.run.p99 or 0) < 60


@pytest.mark.parametrize(
    ("max_attempts", "proven"), [(1, True), (2, True), (1, False)], ids=["dead", "failed", "dead by its lease"]
)
def test_what_a_dead_worker_held_is_counted_by_another(
    database: Database, start_worker: Start, tmp_path: Path, max_attempts: int, proven: bool
) -> None:
    """The worker that ends the attempt of a dead one counts it, but not how long it took, which is unknown."""
    job_id = database.publish(f"{tasks.__name__}.kill_worker", str(tmp_path / "killed"), max_attempts=max_attempts)
    assert start_worker(ready=False).wait() == -signal.SIGKILL
    database.write("UPDATE vtqueue_job SET task_path = ?", f"{tasks.__name__}.raise_later")
    if not proven:
        [row] = database.workers()
        os.unlink(row["doorbell"])
        inside.lease_ended(database)
    other = start_worker()
    wait_until(lambda: database.letter(job_id))
    assert other.terminate() == 0
    assert sums(database) == (0, max_attempts - 1, 1)
    assert timed(database, "run_times") == timed(database, "wait_times") == max_attempts - 1


def test_an_idle_worker_writes_none(database: Database, start_worker: Start) -> None:
    """Where nothing ends nothing is counted: jobs that are given back are no attempts."""
    assert start_worker().terminate() == 0
    assert database.rows("SELECT 1 FROM vtqueue_throughput") == []


def test_jobs_go_on_without_their_statistics(database: Database, start_worker: Start) -> None:
    """What keeps the statistics from being written is said once, and keeps no job from running."""
    database.write("DROP TABLE vtqueue_throughput")
    database.write("CREATE TABLE vtqueue_throughput (id INTEGER)")
    worker = start_worker()
    ids = database.enqueue_many(tasks.add, [(1, 2)] * 100)
    database.wait_for(*ids)
    worker.wait_for("the statistics could not be written")
    later = database.enqueue(tasks.add, 1, 2)
    database.wait_for(later)
    assert worker.terminate() == 0
    assert worker.log.count("the statistics could not be written") == 1


def test_depth_is_measured(database: Database, start_worker: Start) -> None:
    """A worker notes how many jobs are due in each queue, also in those that no worker serves."""
    database.enqueue_many(tasks.add.using(queue_name="other"), [(1, 2)] * 7)
    start_worker("--queues", "default")
    found = "SELECT depth FROM vtqueue_throughput WHERE queue_name = 'other' AND task_path = ''"
    assert {row[0] for row in wait_until(lambda: database.rows(found))} == {7}
