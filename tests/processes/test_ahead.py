"""A worker claims short jobs ahead of its free slots, but keeps none waiting, and charges none that it never began."""

import os
import time
from pathlib import Path

import pytest

from tests.project import tasks

from ..waiting import wait_until
from .database import Database
from .held import executions
from .running import Running, Start

SHORT = 300


TWO_SLOTS = pytest.mark.parametrize("slots", [["--threads=2"], ["--processes=2", "--threads=1"]], ids="".join)


def blocked(
    database: Database, start_worker: Start, folder: Path, slots: list[str]
) -> tuple[Running, list[str], list[str]]:
    """Start a worker whose two slots run short jobs for a while, then two long ones with short ones behind them."""
    short = database.enqueue_many(tasks.add, [(1, 2)] * SHORT)
    long = database.enqueue_many(tasks.hold, [(str(folder),)] * 2)
    behind = database.enqueue_many(tasks.add, [(3, 4)] * SHORT)
    worker = start_worker(*slots)
    wait_until(lambda: len(executions(folder)) == 2)
    assert database.succeeded(*short[:1])
    return worker, long, behind


@TWO_SLOTS
def test_what_waits_is_given_back(database: Database, start_worker: Start, tmp_path: Path, slots: list[str]) -> None:
    """While long jobs occupy all slots, what was claimed ahead goes to another worker, as if never claimed."""
    worker, long, behind = blocked(database, start_worker, tmp_path, slots)
    wait_until(lambda: not database.rows("SELECT 1 FROM vtqueue_job WHERE attempts = 0 AND state = 'RUNNING'"))
    assert {database.job(job_id)["state"] for job_id in long} == {"RUNNING"}
    start_worker()
    database.wait_for(*behind)
    assert {(database.job(job_id)["attempts"], database.job(job_id)["history"]) for job_id in behind} == {(1, "[]")}
    (tmp_path / "go").touch()
    database.wait_for(*long)
    assert [database.job(job_id)["attempts"] for job_id in long] == [1, 1]
    assert "ended with code" not in worker.log


def test_a_killed_worker_charges_only_what_it_ran(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """The jobs that ran when their worker was killed have lost an attempt; those that waited behind them have not."""
    worker, long, behind = blocked(database, start_worker, tmp_path, ["--threads=2"])
    wait_until(lambda: [database.job(job_id)["attempts"] for job_id in long] == [1, 1])
    worker.kill()
    start_worker()
    (tmp_path / "go").touch()
    database.wait_for(*long, *behind)
    assert {(database.job(job_id)["attempts"], database.job(job_id)["history"]) for job_id in behind} == {(1, "[]")}
    for job_id in long:
        assert database.job(job_id)["attempts"] == 2
        assert database.outcomes(job_id) == ["worker died"]


def test_a_worker_without_a_free_slot_rests(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """While all slots are in use and what is due may not be claimed ahead, the worker does not try again and again."""
    database.options["max_attempts"] = 1
    short = database.enqueue_many(tasks.add, [(1, 2)] * 30)
    database.enqueue(tasks.hold, str(tmp_path))
    waiting = database.enqueue_many(tasks.add, [(1, 2)] * 2)
    worker = start_worker("--threads=1")
    wait_until(lambda: (tmp_path / "started").exists() and database.succeeded(*short))
    before = cpu_seconds(worker.pid)
    time.sleep(1)  # the time in which it is watched
    assert cpu_seconds(worker.pid) - before < 0.5
    (tmp_path / "go").touch()
    database.wait_for(*waiting)


def cpu_seconds(pid: int) -> float:
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
