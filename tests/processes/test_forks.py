"""Processes that tasks fork or start: they end as elsewhere, and never act as a worker."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from django_vtqueue import Queue
from tests.project import forks, tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from . import inside
from .database import Database
from .inside import Task
from .running import Start
from .test_children import lines

LEAVING = [forks.leave_fork, forks.leave_fork_async, forks.leave_fork_transactional]


def test_forked_processes_can_be_terminated(database: Database, drain: Start) -> None:
    """What a task forks ends at a signal as in a program of its own, however soon that comes; so a pool of processes
    can be left while it works."""
    terminating = database.enqueue(forks.terminate_children, 20)
    leaving = database.enqueue(forks.leave_pool)
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    signalled = [database.enqueue(forks.signal_child, number) for number in numbers]
    drain("--threads", "2")
    assert database.result(terminating) == [-signal.SIGTERM] * 20
    assert database.result(leaving) == "left"
    assert [database.result(job_id) for job_id in signalled] == [-number for number in numbers]


@pytest.mark.parametrize("leaving", LEAVING, ids=lambda task: task.name)
def test_a_forked_process_that_leaves_its_task_ends(
    database: Database, drain: Start, leaving: Task, tmp_path: Path
) -> None:
    """However a forked process leaves its task, it ends there: it runs no other job, and changes nothing."""
    left = {how: database.enqueue(leaving, how) for how in forks.CODES}
    others = database.enqueue_many(tasks.sign, [(str(tmp_path / "ran"),)] * 100)
    (tmp_path / "ran").mkdir()
    worker = drain("--threads", "2")
    assert {how: database.result(job_id) for how, job_id in left.items()} == forks.CODES
    assert database.succeeded(*others)
    ran = [line for file in (tmp_path / "ran").iterdir() for line in file.read_text().split()]
    assert len(ran) == len(set(ran)) == 100
    assert all(database.history(job_id) == [] for job_id in left.values())
    written = [row["name"] for row in database.rows("SELECT name FROM project_effect ORDER BY name")]
    assert written == (sorted(forks.CODES) if leaving is forks.leave_fork_transactional else [])
    assert "ConnectionError: refused" in worker.log  # as multiprocessing shows what ended a process
    assert "met an error and goes on" not in worker.log


def test_a_forked_process_that_leaves_other_code_of_a_job_ends(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """The same holds for handlers of raw payloads, and for what the worker calls around a task."""
    database.options["queue_options"] = {"raw": {"handler": "tests.project.forks.handle"}}
    start_worker("--threads", "2")
    for how in forks.CODES:
        Queue("raw", using=ALIAS).publish(f"{how} {tmp_path / how}")
    database.enqueue(forks.fork_in_backoff, str(tmp_path / "backoff"))
    found = {**forks.CODES, "backoff": 0}
    wait_until(lambda: all(lines(tmp_path / name) for name in found))
    assert {name: int((tmp_path / name).read_text()) for name in found} == found


def test_a_started_program_does_not_hide_the_death_of_its_worker(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """A program that a task has started does not keep the bell open."""
    started = database.enqueue(forks.start_program, str(tmp_path / "program"))
    worker = start_worker()
    wait_until(lambda: database.succeeded(started))
    program = int((tmp_path / "program").read_text())
    try:
        [row] = database.workers()
        worker.kill()
        wait_until(lambda: inside.died(database, row))
        os.kill(program, 0)  # it still runs
    finally:
        with suppress(ProcessLookupError):
            os.kill(program, signal.SIGKILL)


def test_a_forked_process_is_part_of_its_job(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """As long as a process runs that a task has forked, and the lease lasts, the job does not count as abandoned."""
    database.enqueue(tasks.fork_and_hold, str(tmp_path))
    worker = start_worker("--threads", "2")
    [runs] = wait_until(lambda: lines(tmp_path / "started"))
    [row] = database.workers()
    forked = int((tmp_path / "forked").read_text())
    try:
        worker.kill()
        wait_until(lambda: not Path(f"/proc/{runs}").exists())
        assert not inside.died(database, row)
    finally:
        os.kill(forked, signal.SIGKILL)
    wait_until(lambda: inside.died(database, row))
