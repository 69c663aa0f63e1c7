"""A queue with ``overflow``: what takes longer than its visibility timeout is run by another worker too."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from django_vtqueue import Queue, control
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from .database import Database
from .held import lines
from .running import Running, Start

LEASE = 3.0  # seconds: that of the last copy must not end, on a busy machine too
Copies = Callable[..., tuple[str, list[Running]]]


@pytest.fixture
def copies(database: Database, start_worker: Start, tmp_path: Path) -> Copies:
    """Return a function that has several workers run one job at once; it returns its id and the workers in order."""

    def begin(number: int = 2, *, max_attempts: int = 1) -> tuple[str, list[Running]]:
        overflow = {"default": {"overflow": True, "copies": number, "max_attempts": max_attempts}}
        database.options |= {"visibility_timeout": LEASE, "queue_options": overflow}
        job_id, workers = database.enqueue(tasks.hold_copy, str(tmp_path)), []
        for _ in range(number):
            workers.append(start_worker("--threads", "2"))
            wait_until(lambda: len(started(tmp_path)) == len(workers))
        assert started(tmp_path) == {worker.pid for worker in workers}
        return job_id, workers

    return begin


def started(folder: Path) -> set[int]:
    """Return the processes that have begun the job."""
    return {int(path.stem) for path in folder.glob("*.started")}


def tell(folder: Path, worker: Running, what: str) -> None:
    (folder / f"{worker.pid}.{what}").touch()


@pytest.mark.parametrize("winner", [0, 1], ids=["the first", "the second"])
def test_the_first_to_finish_settles_it(database: Database, tmp_path: Path, copies: Copies, winner: int) -> None:
    """Whichever claim it has; the other one is told to stop, and what comes of it is dropped.

    All that is one attempt.
    """
    job_id, workers = copies()
    loser = workers.pop(1 - winner)
    tell(tmp_path, workers[0], "go")
    database.wait_for(job_id)
    [line] = wait_until(lambda: loser.lines("lost"))
    assert "another copy was first" in line
    assert (tmp_path / f"{loser.pid}.told").exists()
    row = database.job(job_id)
    assert (row["attempts"], row["claims"], database.history(job_id)) == (1, 2, [])
    assert database.result(job_id) == int(row["worker_id"].split(":")[1]) == workers[0].pid


@pytest.mark.parametrize("failing", [0, 1], ids=["the first", "the second"])
@pytest.mark.parametrize(("end", "outcome"), [("fail", "failed"), ("kill", "worker died"), ("leave", "released")])
def test_the_end_of_one_copy_is_not_that_of_the_job(
    database: Database, tmp_path: Path, copies: Copies, failing: int, end: str, outcome: str
) -> None:
    """One that fails, dies, or is given back by a worker that stops, leaves an entry in the history: the other goes on.

    Also if it was the last attempt.
    """
    job_id, workers = copies()
    bad, good = workers[failing], workers[1 - failing]
    match end:
        case "fail":
            tell(tmp_path, bad, "fail")
            assert wait_until(lambda: bad.lines("copy"))[0].endswith("ValueError: no luck; another copy runs on")
        case "kill":
            bad.kill()
        case "leave":
            bad.signal(signal.SIGTERM)
            bad.wait_for("stopping")
            bad.terminate()
    wait_until(lambda: database.outcomes(job_id))
    row = database.job(job_id)
    assert (row["state"], int(row["worker_id"].split(":")[1]), row["attempts"]) == ("RUNNING", good.pid, 1)
    tell(tmp_path, good, "go")
    database.wait_for(job_id)
    assert (database.result(job_id), database.outcomes(job_id)) == (good.pid, [outcome])


def test_the_failure_of_the_last_copy_ends_the_attempt(database: Database, tmp_path: Path, copies: Copies) -> None:
    """It was the only attempt: the job is dead, with an entry for each copy, numbered in their order."""
    job_id, workers = copies()
    for worker, line in zip(workers, ("copy", "dead"), strict=True):
        tell(tmp_path, worker, "fail")
        wait_until(lambda worker=worker, line=line: worker.lines(line))
    assert database.letter(job_id)
    told = [(entry["number"], int(entry["worker"].split(":")[1])) for entry in database.history(job_id)]
    assert told == [(1, workers[0].pid), (2, workers[1].pid)]


def test_no_more_copies_than_allowed(database: Database, start_worker: Start, tmp_path: Path, copies: Copies) -> None:
    """The last one that may run keeps its lease up; when one of them has died another worker makes up for it."""
    job_id, workers = copies(2)
    idle = start_worker("--threads", "1")
    time.sleep(2 * LEASE)
    assert started(tmp_path) == {worker.pid for worker in workers}
    workers[0].kill()
    wait_until(lambda: idle.pid in started(tmp_path))
    assert database.outcomes(job_id) == ["worker died"]
    tell(tmp_path, workers[1], "go")
    database.wait_for(job_id)
    assert database.job(job_id)["attempts"] == 1


def test_a_job_whose_copies_are_all_dead_goes_on(
    database: Database, start_worker: Start, tmp_path: Path, copies: Copies
) -> None:
    """Each death is noted; the job is due again, and its next attempt is one more."""
    job_id, workers = copies(max_attempts=3)
    for worker in workers:
        worker.kill()
    last = start_worker("--threads", "1")
    wait_until(lambda: last.pid in started(tmp_path))
    tell(tmp_path, last, "go")
    database.wait_for(job_id)
    assert database.outcomes(job_id) == ["worker died", "worker died"]


def test_work_that_always_takes_longer_is_done_in_the_first_round(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """No job is tried again, nor dies, though each takes several visibility timeouts and has one attempt."""
    overflow = {"default": {"overflow": True, "copies": 3}}
    database.options |= {"visibility_timeout": LEASE, "queue_options": overflow}
    for _ in range(3):
        start_worker("--threads", "2")
    names = [f"job{number}" for number in range(9)]  # half of the slots are free in the second round
    ids = database.enqueue_many(tasks.take_long, [(str(tmp_path), name, 2.5 * LEASE) for name in names])
    database.wait_for(*ids)
    assert {(database.job(job_id)["attempts"], *database.outcomes(job_id)) for job_id in ids} == {(1,)}
    runs = [lines(tmp_path / name) for name in names]
    assert max(map(len, runs)) <= 3
    assert all(len(set(pids)) == len(pids) for pids in runs)  # never two copies in one worker
    assert sum(map(len, runs)) > len(names)


def test_consumers_obey_the_same_rule(database: Database, start: Start, tmp_path: Path) -> None:
    """``Queue.run`` has a payload handled by two processes, and keeps up the lease of the last one that may."""
    overflow = {"raw": {"overflow": True, "visibility_timeout": LEASE}}
    database.options |= {"queue_options": overflow}
    for _ in range(3):
        start("-m", "tests.processes.consumer", str(tmp_path)).wait_for("ready")
    job_id = Queue("raw", using=ALIAS, visibility_timeout=LEASE).publish("held").hex
    wait_until((tmp_path / "held-2").exists)
    wait_until(lambda: database.job(job_id)["visible_at"] - database.job(job_id)["started_at"] > 2_000_000 * LEASE)
    (tmp_path / "go").touch()
    database.wait_for(job_id)
    row = database.job(job_id)
    assert (row["claims"], row["attempts"], database.history(job_id)) == (2, 1, [])


def test_a_cancelled_job_ends_with_its_copies(database: Database, tmp_path: Path, copies: Copies) -> None:
    """All of them are told; the job is a dead letter when the last one has stopped."""
    job_id, workers = copies()
    assert control.cancel(job_id, using=ALIAS, by="anna")
    wait_until(lambda: database.letter(job_id))
    wait_until(lambda: all((tmp_path / f"{worker.pid}.told").exists() for worker in workers))
    wait_until(lambda: sum(len(worker.lines("copy")) for worker in workers) == 1)
    wait_until(lambda: sum(len(worker.lines("dead")) for worker in workers) == 1)


def test_a_copy_that_takes_too_long_is_killed_alone(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A child that is killed for its ``hard_timeout`` takes its own copy along, and leaves the other one its time."""
    overflow = {"default": {"overflow": True, "hard_timeout": 10}}
    database.options |= {"visibility_timeout": 4, "queue_options": overflow}
    start_worker("--processes", "2", "--threads", "1")
    job_id = database.enqueue(tasks.hold_copy, str(tmp_path))
    [first] = wait_until(lambda: started(tmp_path))
    [second] = wait_until(lambda: started(tmp_path) - {first})
    wait_until(lambda: database.outcomes(job_id) == ["timed out"])
    (tmp_path / f"{second}.go").touch()
    database.wait_for(job_id)
    assert database.result(job_id) == second
