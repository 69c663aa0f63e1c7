"""Which child of a worker is given which jobs."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from queue import SimpleQueue

import pytest

from django_vtqueue.core import clock
from django_vtqueue.core.job import HeldJob, succeeded
from django_vtqueue.execution.outcomes import Outcome
from django_vtqueue.worker.children.pool import Processes
from django_vtqueue.worker.log import Silence
from django_vtqueue.worker.options import WorkerOptions
from django_vtqueue.worker.prefetch import MOST
from tests.project import tasks

from ..waiting import wait_until
from .conftest import Start, environment
from .database import Database
from .running import PATIENCE

JOBS = 60  # more than enough to wait ahead of two slots


def held(number: int) -> HeldJob:
    """Return a claimed job that returns the pid of its process."""
    now, path = clock.now(), tasks.where.module_path
    call = json.dumps({"args": [], "kwargs": {}})
    return HeldJob(f"{number:032x}", "default", path, 0, now, 1, 1, 10, "a:1:b", 60_000_000, now, now, call, "[]", now)


@pytest.fixture
def processes(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Processes, SimpleQueue[Outcome]]]:
    """Return two children of one thread each, ready, and the queue of what they have finished."""
    for name, value in environment(database).items():
        monkeypatch.setenv(name, value)
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    children = Processes(
        WorkerOptions(processes=2, threads=1),
        database.backend,
        Silence(),
        None,
        outcomes.put,
        lambda key, runs: None,
        lambda: None,
    )
    children.start()
    try:
        wait_until(lambda: children.slots == 2, PATIENCE)
        yield children, outcomes
    finally:
        children.stop(PATIENCE)


@pytest.fixture
def pids(processes: tuple[Processes, SimpleQueue[Outcome]]) -> Callable[[float], set[int]]:
    """Return a function that runs many jobs after some which took so many seconds each, and tells who ran them."""
    children, outcomes = processes

    def pids(seconds: float) -> set[int]:
        job = held(0)
        children.announce([Outcome(job, succeeded(job, "null", clock.now(), None), None, None, seconds)])
        children.run([held(number) for number in range(JOBS)])
        ended = [outcomes.get(timeout=PATIENCE) for _ in range(JOBS)]
        return {json.loads(outcome.settlement.result or "")[0] for outcome in ended}

    return pids


def test_brief_jobs_share_a_child(pids: Callable[[float], set[int]]) -> None:
    """Many jobs are run by one child if the last ones were so brief that it has done them in a moment, else by all."""
    assert len(pids(0.000_01)) == 1
    assert len(pids(0.01)) == 2


@pytest.fixture
def children(database: Database, start_worker: Start) -> Iterator[list[int]]:
    """Return the pids of a worker's two children, the busier one first, which have done many brief jobs."""
    first = database.enqueue_many(tasks.where, [()] * 2000)
    worker = start_worker("--processes", "2", "--threads", "2")
    wait_until(lambda: database.succeeded(*first[-10:]) and not database.unfinished(), PATIENCE)
    done = Counter(pid for (pid,) in database.rows("SELECT json_extract(result, '$[0]') FROM vtqueue_job"))
    started = [path.read_text().split() for path in Path(f"/proc/{worker.pid}/task").glob("*/children")]
    pids = sorted(map(int, chain(*started)), key=done.__getitem__, reverse=True)
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def test_a_child_that_stands_still_is_given_few(database: Database, children: list[int]) -> None:
    """Of many brief jobs only some wait for a child that was stopped; the other child goes on with the rest."""
    os.kill(children[0], signal.SIGSTOP)
    database.enqueue_many(tasks.where, [()] * 4000)
    wait_until(lambda: database.unfinished() < 2 * MOST, PATIENCE)
    os.kill(children[0], signal.SIGCONT)
    wait_until(lambda: not database.unfinished(), PATIENCE)


def test_where_all_stand_still_no_more_is_claimed(database: Database, start_worker: Start, children: list[int]) -> None:
    """While all children of a worker are stopped it claims no more than a moment's work; others do the rest."""
    assert len(children) == 2
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    database.enqueue_many(tasks.where, [()] * 8000)
    start_worker()  # while it starts, the other one could go on claiming
    wait_until(lambda: database.unfinished() < 3 * MOST, PATIENCE)  # for each child that stands still: MOST
