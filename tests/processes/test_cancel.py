"""Jobs that are cancelled while real workers run them."""

import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from django_vtqueue import control
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import Database
from .held import lines
from .inside import Task
from .running import Start

KINDS = {"threads": ("--threads", "1"), "processes": ("--processes", "2", "--threads", "1")}


def cancel(*job_ids: str) -> list[str]:
    return [job_id.hex for job_id in control.cancel(job_ids, using=ALIAS, by="anna")]


def wait_for_start(folder: Path) -> None:
    """Wait until a task says that it has started."""
    wait_until(lambda: lines(folder / "started"))


def cancelled(database: Database, job_id: str) -> list[str]:
    """Wait until a job is a dead letter because it was cancelled; return how its attempts have ended."""
    letter = wait_until(lambda: database.letter(job_id))
    assert (letter["exception_class"], letter["message"]) == (
        "django_vtqueue.exceptions.Cancelled",
        "Cancelled by anna.",
    )
    return database.outcomes(job_id)


@pytest.mark.parametrize(("kind", "task"), [("processes", tasks.steered), ("threads", tasks.steered_async)])
def test_a_task_that_looks_stops(
    database: Database, start_worker: Start, tmp_path: Path, kind: str, task: Task
) -> None:
    """A task, sync or async, sees that it was asked to stop and ends as cancelled, once; its progress is in its row.

    Also in a queue whose leases are not renewed.
    """
    database.options["heartbeat"] = kind == "processes"
    job_id = database.enqueue(task, str(tmp_path), "stop")
    worker = start_worker(*KINDS[kind])
    wait_until(lambda: database.job(job_id)["progress"])
    assert (database.job(job_id)["progress"], database.job(job_id)["progress_text"]) == (0.4, "page 4 of 10")
    assert cancel(job_id) == [job_id]
    assert cancelled(database, job_id) == ["cancelled"]
    assert worker.terminate() == 0
    assert len(lines(tmp_path / "started")) == 1


@pytest.mark.parametrize(
    ("kind", "end", "outcome"),
    [("processes", "fail", "failed"), ("processes", "kill", "worker died"), ("threads", "kill", "worker died")],
)
def test_what_was_asked_to_stop_is_not_tried_again(
    database: Database, start_worker: Start, tmp_path: Path, kind: str, end: str, outcome: str
) -> None:
    """A job that fails, or kills its process, after it was asked to stop is a dead letter with that in its history.

    A worker says so, and sends task_finished: with DEBUG Django's logger, a receiver, writes to the console.
    """
    job_id = database.enqueue(tasks.steered, str(tmp_path), end)
    workers = [start_worker(*KINDS[kind], VTQUEUE_TEST_DEBUG="1")]
    wait_for_start(tmp_path)
    workers.append(start_worker(*KINDS["threads"], VTQUEUE_TEST_DEBUG="1"))  # it finds the other one dead
    cancel(job_id)
    assert cancelled(database, job_id) == [outcome, "cancelled"]
    wait_until(lambda: any("\ndjango_vtqueue.exceptions.Cancelled: Cancelled by anna." in w.log for w in workers))
    wait_until(lambda: sum(len(worker.lines("dead  tests.project.tasks.steered")) for worker in workers) == 1)
    assert len(lines(tmp_path / "started")) == 1


def test_a_job_that_returns_has_succeeded(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A task that returns after it was asked to stop is done; what it said last of its progress is kept."""
    job_id = database.enqueue(tasks.steered, str(tmp_path), "return")
    start_worker(*KINDS["processes"])
    wait_for_start(tmp_path)
    cancel(job_id)
    database.wait_for(job_id)
    row = database.job(job_id)
    assert (row["progress"], row["progress_text"], row["cancelled_by"]) == (1, "", "anna")


def test_a_worker_that_leaves_gives_nothing_back_that_was_asked_to_stop(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """What still runs when its worker is stopped by force would be given back; asked to stop, it ends."""
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    worker = start_worker(*KINDS["threads"])
    wait_for_start(tmp_path)
    cancel(job_id)
    worker.signal(signal.SIGTERM, signal.SIGINT)
    assert worker.wait() == 0
    assert cancelled(database, job_id) == ["released", "cancelled"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_job_runs_or_is_cancelled(database: Database, start_worker: Start, tmp_path: Path, kind: str) -> None:
    """Hundreds of jobs are cancelled while a worker takes them: each has run or is a dead letter, none both or neither.

    Those that are returned as cancelled are the dead letters, and those that ran on to their end.
    """
    chance = random.Random(5)
    start_worker(*KINDS[kind])
    job_ids: list[str] = []
    told: list[str] = []

    def publish_and_cancel() -> bool:
        """A worker that runs a round before it is cancelled is given another round: both ends must be seen."""
        published = database.enqueue_many(tasks.sign, [(str(tmp_path),)] * 20)
        job_ids.extend(published)
        told.extend(cancel(*chance.sample(published, 10)))
        return len(job_ids) >= 600 and bool(database.rows("SELECT 1 FROM vtqueue_deadletter"))

    wait_until(publish_and_cancel)
    wait_until(lambda: not database.unfinished())
    executed = Counter(
        line.replace("-", "") for path in tmp_path.iterdir() if path.name.isdigit() for line in lines(path)
    )
    rows = database.rows("SELECT id, cancelled_at FROM vtqueue_job")
    dead = {row["id"] for row in database.rows("SELECT id FROM vtqueue_deadletter")}
    assert executed == Counter(row["id"] for row in rows)
    assert {row["id"] for row in rows} | dead == set(job_ids)
    assert not {row["id"] for row in rows} & dead
    assert len(told) == len(set(told))
    assert set(told) == dead | {row["id"] for row in rows if row["cancelled_at"]}
    assert dead
    assert rows
