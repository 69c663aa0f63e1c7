"""Leases that are kept up, and leases that are not."""

import re
from pathlib import Path

from tests.project import tasks

from ..waiting import wait_until
from .database import Database
from .held import executions
from .running import TIME, Start


def test_a_job_longer_than_its_visibility_timeout_runs_once(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """Its worker renews the lease of a job that runs on: another worker with nothing to do never gets it."""
    database.options["visibility_timeout"] = lease = 5  # so long its worker may be late, on a busy machine
    workers = [start_worker() for _ in range(2)]
    job_id = database.enqueue(tasks.hold, str(tmp_path))

    def two_leases_long() -> bool:
        job = database.job(job_id)
        return bool(job["state"] == "RUNNING" and job["visible_at"] - job["started_at"] > 2 * lease * 1_000_000)

    wait_until(two_leases_long)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    assert len(executions(tmp_path)) == 1
    assert (database.job(job_id)["claims"], database.history(job_id)) == (1, [])
    assert not [line for worker in workers for line in worker.lines("lost")]


def test_without_heartbeat_the_job_is_picked_up_and_only_its_holder_settles_it(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """With heartbeat off another worker takes over when the lease ends; the result of the first one is dropped."""
    database.options |= {"visibility_timeout": 1, "heartbeat": False}
    # Neither takes the job again, however long the other one keeps it.
    first = start_worker("--threads", "1", "--max-jobs", "1")
    job_id = database.enqueue(tasks.hold_attempt, str(tmp_path))
    wait_until(lambda: (tmp_path / "1started").exists())
    second = start_worker("--threads", "1", "--max-jobs", "1")
    wait_until(lambda: (tmp_path / "2started").exists())
    (tmp_path / "1go").touch()  # first to be ready, but not its holder any more
    wait_until(lambda: first.lines("lost"))
    assert database.job(job_id)["state"] == "RUNNING"
    (tmp_path / "2go").touch()
    database.wait_for(job_id)
    assert database.result(job_id) == 2
    assert database.outcomes(job_id) == ["lease expired"]
    assert not second.lines("lost")


def test_without_heartbeat_the_first_completion_wins(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A job that the second worker finished stays as it was settled, whatever the first one says later.

    The log of the first one says that its result was dropped.
    """
    database.options |= {"visibility_timeout": 1, "heartbeat": False}
    first = start_worker("--threads", "1")
    job_id = database.enqueue(tasks.hold_attempt, str(tmp_path))
    wait_until(lambda: (tmp_path / "1started").exists())
    start_worker("--threads", "1", "--max-jobs", "1")  # however long it takes, it does not take it again
    (tmp_path / "2go").touch()
    database.wait_for(job_id)
    settled = tuple(database.job(job_id))
    (tmp_path / "1go").touch()
    [line] = wait_until(lambda: first.lines("lost"))
    words = r"lost  tests\.project\.tasks\.hold_attempt …[0-9a-f]{8} lease lost after"
    assert re.fullmatch(rf"{words} {TIME}; result dropped", line)
    assert tuple(database.job(job_id)) == settled
    assert database.result(job_id) == 2
