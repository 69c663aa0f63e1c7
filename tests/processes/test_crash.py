"""Workers that are killed."""

import signal
from pathlib import Path
from typing import Any

from tests.project import tasks

from ..waiting import wait_until
from . import inside
from .database import Database
from .held import begin, executions
from .running import Running, Start


def holder(database: Database, job_id: str) -> str:
    """Return the id of the worker that holds a job."""
    return str(database.job(job_id)["worker_id"])


def start_holding(database: Database, folder: Path) -> tuple[str, str]:
    """Have a lone worker begin a job that runs on; return the ids of the job and of the worker."""
    job_id = begin(database, folder)
    return job_id, holder(database, job_id)


def test_a_killed_workers_job_goes_on_elsewhere_at_once(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """Another worker finds the doorbell of a killed one refusing, long before its lease ends, and runs its job.

    It also clears away the row of the dead worker, and its socket, which publishers would go on ringing.
    """
    first = start_worker()
    [row] = wait_until(database.workers)
    job_id, worker_id = start_holding(database, tmp_path)
    second = start_worker()
    first.kill()
    wait_until(lambda: len(executions(tmp_path)) == 2)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    [entry] = database.history(job_id)
    assert (entry["number"], entry["worker"], entry["outcome"]) == (1, worker_id, "worker died")
    assert entry["exception_class"] == "django_vtqueue.exceptions.WorkerDied"
    assert entry["ended"] - entry["started"] < database.job(job_id)["lease_us"]
    assert (database.job(job_id)["attempts"], database.job(job_id)["claims"]) == (2, 2)
    assert database.job(job_id)["worker_id"] != worker_id
    assert f"{worker_id.rpartition(':')[0]} died; its jobs that run again: 1" in second.log
    assert [each["pid"] for each in database.workers()] == [second.pid]
    assert not Path(row["doorbell"]).exists()


def test_a_stopped_worker_is_not_taken_for_dead(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A worker that is stopped (SIGSTOP) keeps its job for as long as its lease says; afterwards it finishes it."""
    first = start_worker()
    job_id, worker_id = start_holding(database, tmp_path)
    database.stop(first)
    second = start_worker("--max-jobs", "2", constants=inside.tuned(heartbeat=0.5))
    other = database.enqueue(tasks.hold, str(tmp_path), "other")
    inside.silent_for_long(database, worker_id)
    # It was looked at, and only its row is gone.
    wait_until(lambda: [row["pid"] for row in database.workers()] == [second.pid])
    assert holder(database, job_id) == worker_id
    first.go_on()
    for name in ("go", "othergo"):
        (tmp_path / name).touch()
    database.wait_for(job_id, other)
    assert (holder(database, job_id), database.history(job_id)) == (worker_id, [])
    assert "died" not in second.log


def test_without_doorbells_a_killed_workers_job_comes_back_when_its_lease_ends(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """Where there can be no sockets, a job reappears by itself, and its history names the worker that had it."""
    database.options |= {"doorbells": str(tmp_path / ("too long" * 20)), "visibility_timeout": 2}
    first = start_worker()
    assert first.log.count("no doorbell, publishers are noticed within 0.25 s instead") == 1
    job_id, worker_id = start_holding(database, tmp_path)
    start_worker()
    first.kill()
    wait_until(lambda: len(executions(tmp_path)) == 2)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    [entry] = database.history(job_id)
    assert (entry["worker"], entry["outcome"]) == (worker_id, "lease expired")
    assert f"held by {worker_id}" in entry["message"]
    assert entry["ended"] - entry["started"] >= 2_000_000
    assert database.job(job_id)["attempts"] == 2


def test_a_job_that_kills_its_worker_each_time_becomes_a_dead_letter(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """Such a job ends like any other when its attempts are used up; the jobs beside it go on, and succeed."""
    killer = database.enqueue(tasks.kill_worker, str(tmp_path / "killed"))
    neighbours = database.enqueue_many(tasks.hold, [(str(tmp_path), f"{number}-") for number in range(3)])
    workers: list[Running] = []

    def kept_running() -> Any:
        """As a process supervisor does: start a new one for each that has died."""
        if not workers or workers[-1].ended():
            workers.append(start_worker(ready=False))
        return database.letter(killer)

    letter = wait_until(kept_running)
    for number in range(3):
        (tmp_path / f"{number}-go").touch()
    wait_until(lambda: kept_running() and database.succeeded(*neighbours))
    assert (tmp_path / "killed").read_text().split() == [str(worker.pid) for worker in workers[:2]]
    assert [worker.process.poll() for worker in workers] == [-signal.SIGKILL, -signal.SIGKILL, None]
    assert database.outcomes(killer) == ["worker died", "worker died"]
    assert (letter["attempts"], letter["exception_class"]) == (2, "django_vtqueue.exceptions.WorkerDied")
    assert len(database.rows("SELECT 1 FROM vtqueue_deadletter")) == 1
    assert "dead  tests.project.tasks.kill_worker" in workers[-1].log
