"""The soft time limit under stress, and what a pool makes of an exception that comes at the worst moment."""

import itertools
import json
import random
import subprocess
import threading
from collections.abc import Callable, ItemsView
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from django_vtqueue import task
from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.core import states
from django_vtqueue.core.ids import new_id
from django_vtqueue.core.job import HeldJob
from django_vtqueue.exceptions import TaskTimeout
from django_vtqueue.execution.outcomes import Outcome
from django_vtqueue.runtime.timeouts import Timekeeper
from django_vtqueue.tasks.compat import Task
from django_vtqueue.worker.log import WorkerLog
from django_vtqueue.worker.thread_pool import Pool
from tests.project.tasks import add

from ..conftest import ALIAS
from ..processes.running import python
from ..waiting import PATIENCE


def test_short_limits(restless: None) -> None:
    """However short its limit is, TaskTimeout strikes inside the block, or not at all; the timekeeper lives on."""
    timekeeper, struck, escaped = Timekeeper(), [], []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for number in range(400):
                try:
                    with timekeeper.limit(chance.random() * 0.0002):
                        for _ in range(chance.randrange(3000)) if number % 3 else itertools.repeat(None):
                            pass
                except TaskTimeout:
                    struck.append(number)
                for _ in range(100):  # it would strike here if it escaped
                    pass
        except BaseException as error:
            escaped.append(error)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "a lock was never given back"
    assert escaped == []
    assert len(struck) >= 4 * 134


TRACED = """
import sys
from django_vtqueue.exceptions import TaskTimeout
from django_vtqueue.runtime.timeouts import timekeeper

def call():
    pass

for _ in range(2):
    try:
        with timekeeper.limit(0.01):
            while True:
                call()
    except TaskTimeout:
        pass
    seen = []
    for setter in (sys.setprofile, sys.settrace):
        setter(lambda frame, event, argument: seen.append(event))
        call()
        setter(None)
    assert seen.count("call") >= 2, seen
"""


def test_after_a_time_limit_code_can_be_profiled_and_traced() -> None:
    """By a profiler, a debugger, or what measures coverage: the interpreter looks for no other exception."""
    traced = subprocess.run(python("-c", TRACED), timeout=PATIENCE, cwd=Path(__file__).parents[2])
    assert traced.returncode == 0


def held_job(task: Task, *args: int) -> HeldJob:
    """Return a job as a worker holds it."""
    return HeldJob(
        id=new_id(),
        queue_name="default",
        task_path=task.module_path,
        priority=0,
        claims=1,
        attempts=1,
        max_attempts=1,
        worker_id="here:1:a",
        lease_us=60_000_000,
        enqueued_at=0,
        due_at=0,
        started_at=0,
        visible_at=60_000_000,
        payload=json.dumps({"args": args, "kwargs": {}}),
        history="[]",
    )


class Late(dict[str, int]):
    """What a task has returned; when it is to be stored, its time is up."""

    time_is_up: Callable[[], None]

    def items(self) -> ItemsView[str, int]:
        Late.time_is_up()
        return super().items()


@task
def end_late() -> Late:
    return Late()


def test_a_time_limit_that_comes_too_late(sqlite_file: str, caplog: pytest.LogCaptureFixture) -> None:
    """A job whose time is up just after its task has ended has one outcome, and its thread goes on with the next."""
    backend = VTQueueBackend("default", {"QUEUES": [], "OPTIONS": {"database": ALIAS}})
    first, second = held_job(end_late), held_job(add, 2, 2)
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    pool = Pool(1, backend, WorkerLog(), outcomes.put)
    Late.time_is_up = staticmethod(partial(pool.end, first))
    pool.start()
    for job in (first, second):
        pool.run([job])
    late, next_ = (outcomes.get(timeout=PATIENCE) for _ in range(2))
    pool.stop(PATIENCE)
    assert (late.job, late.settlement.state, type(late.exception)) == (first, states.FAILED, TaskTimeout)
    assert (next_.job, next_.settlement.state) == (second, states.SUCCESSFUL)
    assert outcomes.empty()
    assert "a worker thread met an error" not in caplog.text


def test_limits_that_have_ended_take_no_memory() -> None:
    """However many there were, and however late their time would have been up."""
    timekeeper = Timekeeper()
    for _ in range(1000):
        with timekeeper.limit(3600):
            pass
    assert not timekeeper._limits
