"""Code of the project that blocks, raises or stays: it holds up nothing that keeps leases, and no end of a process."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from typing import Any

import pytest

from django_vtqueue import Queue
from tests.hindering import tasks as hindering
from tests.hindering.logs import LOGGING
from tests.project import tasks

from ..conftest import ALIAS
from ..waiting import PATIENCE, wait_until
from . import inside
from .conftest import both_engines, environment
from .database import Database
from .held import begin
from .running import MANAGE, Start, children, python
from .test_asked import ASKED_TO

LEASE = 3  # seconds
APP = "tests.hindering"
SLOW_LOG = {"VTQUEUE_TEST_LOGGING": json.dumps(LOGGING)}
STOPS = [signal.SIGTERM, signal.SIGINT]


def go_at(folder: Path) -> dict[str, str]:
    """Return the environment of a process whose log handlers and receivers hang until this folder has a file ``on``."""
    return {"VTQUEUE_TEST_GO": str(folder / "on")}


def wait_for_renewals(database: Database, job_id: str, leases: float = 2) -> None:
    """Wait until a job is held for so many leases longer than now."""
    until = database.job(job_id)["visible_at"] + leases * LEASE * 1_000_000
    wait_until(lambda: database.job(job_id)["visible_at"] > until)


def ask(database: Database, to: str) -> None:
    """Ask all workers to be quiet, or to work again: each says so."""
    ids = [row["worker_id"] for row in database.workers()]
    assert ASKED_TO[to](ids, using=ALIAS)


@contextmanager
def unread(database: Database, *arguments: str, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a worker whose standard error is a full pipe that nobody reads."""
    ours, theirs = os.pipe()
    os.write(theirs, b"x" * fcntl(theirs, F_SETPIPE_SZ, 4096))
    command = python(MANAGE, "vtworker", "--no-reload", *arguments)
    worker = subprocess.Popen(command, env=environment(database, **variables), stderr=theirs, stdout=theirs)
    os.close(theirs)
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()
        os.close(ours)


Hung = Callable[..., Any]


@pytest.fixture(params=["pipe", "handler"])
def hung(request: pytest.FixtureRequest, database: Database, start: Start, tmp_path: Path) -> Iterator[Hung]:
    """Return a function that starts a worker whose log hangs from its first line on."""
    database.options["visibility_timeout"] = LEASE
    opened: list[Any] = []

    def start_hung(*arguments: str) -> Any:
        if request.param == "pipe":
            opened.append(unread(database, *arguments))
            worker = opened[-1].__enter__()
        else:
            worker = start(MANAGE, "vtworker", "--no-reload", *arguments, **SLOW_LOG, **go_at(tmp_path)).process
        wait_until(database.workers)
        return worker

    yield start_hung
    for each in opened:
        each.__exit__(None, None, None)


# -- the log -----------------------------------------------------------------------------------------------------------


@both_engines
def test_a_log_that_hangs_keeps_no_lease_from_being_renewed(database: Database, hung: Hung, tmp_path: Path) -> None:
    """Whatever the worker has to say: it renews, claims and settles, and a SIGTERM ends it when its jobs have ended."""
    worker = hung("--threads", "2")
    held = begin(database, tmp_path)
    ask(database, "quiet")
    wait_for_renewals(database, held)
    ask(database, "")
    done = database.enqueue(tasks.add, 1, 2)
    database.wait_for(done)
    worker.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert worker.wait(PATIENCE) == 0
    assert database.result(held) == "go"
    assert database.job(held)["claims"] == 1


@both_engines
def test_a_log_that_hangs_keeps_no_worker_that_is_to_end_at_once(
    database: Database, hung: Hung, tmp_path: Path
) -> None:
    """At a second signal its job is given back, and the process is gone."""
    worker = hung("--threads", "2")
    held = begin(database, tmp_path)
    ask(database, "quiet")
    wait_for_renewals(database, held, 1)
    for number in STOPS:
        worker.send_signal(number)
    assert worker.wait(PATIENCE) == 0
    assert (database.job(held)["state"], database.outcomes(held)) == ("RUNNING", ["released"])


@both_engines
def test_a_log_that_hangs_keeps_no_supervisor(database: Database, hung: Hung, tmp_path: Path) -> None:
    """It replaces a child that has died, which it would say, and ends with its children."""
    supervisor = hung("--processes", "2", "--threads", "1")
    wait_until(lambda: len(database.workers()) == 2)
    pids = {row["pid"] for row in database.workers()}
    os.kill(min(pids), signal.SIGKILL)
    wait_until(lambda: len({row["pid"] for row in database.workers()} - pids) == 1)
    held = begin(database, tmp_path)
    supervisor.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert supervisor.wait(PATIENCE) == 0
    assert database.result(held) == "go"
    assert children(supervisor.pid) == []


@pytest.mark.sqlite("a connection of another process locks the file")
def test_a_log_that_hangs_keeps_no_lease_of_a_consumer_from_being_renewed(
    database: Database, start: Start, tmp_path: Path
) -> None:
    """``Queue.run``: the thread that renews meets a lock, and would say so."""
    database.options["visibility_timeout"] = LEASE
    variables = {"VTQUEUE_TEST_TIMEOUT": "0.5", **SLOW_LOG, **go_at(tmp_path)}
    consumer = start("-m", "tests.processes.consumer", str(tmp_path), **variables)
    held = Queue("raw", using=ALIAS).publish("held").hex
    wait_until((tmp_path / "held-1").exists)
    until = database.job(held)["visible_at"]
    with database.locked():
        wait_until(lambda: time.time() * 1_000_000 > until - LEASE * 400_000)
    wait_for_renewals(database, held)
    (tmp_path / "go").touch()
    database.wait_for(held)
    later = Queue("raw", using=ALIAS).publish("later").hex
    database.wait_for(later)
    assert database.job(held)["claims"] == 1
    assert not consumer.ended()


def test_lines_that_come_faster_than_they_are_written_are_left_out_and_counted(
    database: Database, start: Start, tmp_path: Path
) -> None:
    """No job waits for them; the number of those that are missing stands where they would."""
    worker = start(MANAGE, "vtworker", "--no-reload", "-v", "2", **SLOW_LOG, **go_at(tmp_path))
    jobs = database.enqueue_many(tasks.add, [(number, 1) for number in range(3000)])
    database.wait_for(*jobs)
    (tmp_path / "on").touch()
    worker.wait_for("lines of this log are missing here: they came faster than it is written")
    before, missing = re.split(r"^(\d+) lines of this log are missing", worker.log, flags=re.MULTILINE)[:2]
    assert len(before.splitlines()) + int(missing) == 1 + 3 * len(jobs)  # "ready"; Django has two more for each job
    assert worker.terminate() == 0
    assert "done: 3000 attempts" in worker.log.splitlines()[-1]


LEADERS = """
import sys, threading
from pathlib import Path
import django
django.setup()
from django_vtqueue import Lease

def lost():
    Path(sys.argv[1], "lost").touch()
    if sys.argv[2] == "hangs":
        threading.Event().wait()
    raise SystemExit("no leader any more")

leases = Lease("first", ttl=3, on_lost=lost), Lease("second", ttl=3)
assert all(lease.acquire() for lease in leases)
Path(sys.argv[1], "leads").touch()
while leases[1].check() is None:
    threading.Event().wait(0.01)
"""


@both_engines
@pytest.mark.parametrize("deed", ["hangs", "raises"])
def test_on_lost_is_called_whatever_hangs(database: Database, start: Start, tmp_path: Path, deed: str) -> None:
    """It waits for no line of the log, and whatever it does, the leases of others are renewed."""
    leader = start("-c", LEADERS, str(tmp_path), deed, **SLOW_LOG, **go_at(tmp_path))
    wait_until((tmp_path / "leads").exists)
    name = "SELECT visible_at FROM vtqueue_job WHERE queue_name = ?"
    inside.leader_replaced(database, "first")
    wait_until((tmp_path / "lost").exists)
    [until] = database.rows(name, "lease:second")[0]
    wait_until(lambda: database.rows(name, "lease:second")[0][0] > until + 6_000_000)
    assert not leader.ended()


# -- the end -----------------------------------------------------------------------------------------------------------

LEFT = {"thread": hindering.leave_thread, "executor": hindering.leave_executor}


@pytest.mark.parametrize("what", LEFT)
@pytest.mark.parametrize(
    "arguments",
    [("--drain",), ("--max-jobs", "1"), (), ("--shutdown-timeout", "1"), ("--drain", "--processes", "2")],
    ids=" ".join,
)
@both_engines
def test_no_thread_that_a_task_leaves_behind_keeps_the_process(
    database: Database, start_worker: Start, what: str, arguments: tuple[str, ...]
) -> None:
    """After its last line a worker is gone within seconds, with the exit code of one that has done its work."""
    job_id = database.enqueue(LEFT[what])
    worker = start_worker(*arguments, ready=False, VTQUEUE_TEST_APPS=APP)
    database.wait_for(job_id)
    if not {"--drain", "--max-jobs"} & set(arguments):
        worker.signal(signal.SIGTERM)
    worker.wait_for("done: 1 attempt")
    began = time.monotonic()
    assert worker.wait() == 0
    assert time.monotonic() - began < 30
    assert database.succeeded(job_id)


def test_a_child_with_a_thread_left_behind_is_replaced(database: Database, start_worker: Start) -> None:
    """It ends by itself, and the next one goes on."""
    arguments = ("--processes", "2", "--threads", "1", "--max-jobs-per-process", "1", "--max-jobs", "6")
    database.enqueue_many(hindering.leave_thread, [()] * 6)
    worker = start_worker(*arguments, ready=False, VTQUEUE_TEST_APPS=APP)
    assert worker.wait() == 0
    assert "done: 6 attempts" in worker.log
    assert "ended with code" not in worker.log


ORDERLY = """
import atexit, sys
atexit.register(print, "functions of atexit are called")
sys.argv = ["manage.py", "vtworker", "--drain"]
from django.core.management import execute_from_command_line
execute_from_command_line()
"""


def test_what_ends_in_time_ends_as_usual(database: Database, start: Start) -> None:
    """An error tracker sends what it has, and coverage is written."""
    database.enqueue(hindering.leave_nothing)
    worker = start("-c", ORDERLY, VTQUEUE_TEST_APPS=APP)
    assert worker.wait() == 0
    assert worker.log.splitlines()[-1] == "functions of atexit are called"


PROGRAM = """
import sys, threading, time
import django
django.setup()
from tests.processes import inside
inside.end_soon_behind_a_worker()
sys.argv = ["manage.py", "vtworker", "--drain"]
from django.core.management import execute_from_command_line
execute_from_command_line()
threading.Thread(target=time.sleep, args=(600,)).start()
time.sleep(1)  # ten times as long as the process may take to end
print("goes on", end="")
"""


def test_a_program_that_goes_on_behind_a_worker_is_not_ended(database: Database, start: Start) -> None:
    """Before it has come to its own end; then no thread keeps it, and what it has printed is written."""
    database.enqueue(hindering.leave_thread)
    program = start("-c", PROGRAM, VTQUEUE_TEST_APPS=APP, PYTHONUNBUFFERED="")
    assert program.wait() == 0
    assert program.log.endswith("goes on")
