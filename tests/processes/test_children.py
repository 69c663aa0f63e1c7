"""A supervisor (``--processes``): its child processes are workers, which it keeps running, renews, and ends."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.project import durable, tasks

from ..waiting import wait_until
from . import inside
from .conftest import ROOT, environment
from .database import Database
from .held import begin, executions
from .running import MANAGE, Running, Start, children, is_ours, python


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def alive(pid: int) -> bool:
    """Return whether a process runs (and is not only waited for)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_children_run_the_jobs(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Jobs run in the child processes, as many at a time as all of them have threads; each is a worker with a row."""
    job_ids = database.enqueue_many(tasks.hold, [(str(tmp_path),)] * 4)
    worker = start_worker("--processes", "2", "--threads", "2")
    wait_until(lambda: len(lines(tmp_path / "started")) == 4)
    pids = set(map(int, lines(tmp_path / "started")))
    assert len(pids) == 2
    assert worker.pid not in pids
    assert {row["pid"]: row["slots"] for row in database.workers()} == dict.fromkeys(pids, 2)
    (tmp_path / "go").touch()
    wait_until(lambda: database.succeeded(*job_ids))
    assert worker.terminate() == 0
    assert not any(alive(pid) for pid in pids)


def test_a_killed_childs_job_goes_on_at_once(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Only the child that was killed is replaced: its job runs again in a moment, the others are not disturbed."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    worker = start_worker("--processes", "2", "--threads", "1")
    a, b = (database.enqueue(tasks.hold, str(tmp_path / name)) for name in "ab")
    wait_until(lambda: lines(tmp_path / "a" / "started") and lines(tmp_path / "b" / "started"))
    [victim] = lines(tmp_path / "a" / "started")
    os.kill(int(victim), signal.SIGKILL)
    wait_until(lambda: len(lines(tmp_path / "a" / "started")) == 2)
    for name in "ab":
        (tmp_path / name / "go").touch()
    wait_until(lambda: database.succeeded(a, b))
    [entry] = database.history(a)
    assert entry["outcome"] == "worker died"
    assert f":{victim}:" in entry["message"]
    assert (database.job(a)["attempts"], database.job(b)["attempts"], database.history(b)) == (2, 1, [])
    assert f"process {victim} ended with code -9" in worker.log


def test_a_task_that_holds_the_interpreter_keeps_its_lease(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """A task that lets no thread of its process run for two visibility timeouts is not run twice."""
    job_id = database.enqueue(tasks.hold_the_interpreter, str(tmp_path), 7)
    start_worker("--processes", "2", "--threads", "1")
    wait_until(lambda: lines(tmp_path / "started"))
    start_worker("--threads", "1")
    wait_until(lambda: database.succeeded(job_id))
    assert len(lines(tmp_path / "started")) == 1
    assert (database.job(job_id)["claims"], database.history(job_id)) == (1, [])


def test_a_second_signal_kills_the_children_and_gives_their_jobs_back(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """Two signals: the children are ended, and what they ran is given back without an attempt."""
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    worker = start_worker("--processes", "2", "--threads", "1")
    wait_until(lambda: lines(tmp_path / "started"))
    worker.signal(signal.SIGTERM, signal.SIGINT)
    assert worker.wait() == 0
    assert not alive(int(lines(tmp_path / "started")[0]))
    assert (database.job(job_id)["worker_id"], database.job(job_id)["attempts"]) == ("", 0)
    assert [entry["outcome"] for entry in database.history(job_id)] == ["released"]
    assert database.workers() == []


def test_children_end_with_a_killed_worker(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """When the supervisor is killed its children give back what they run and end: it renews their leases no more."""
    database.enqueue(tasks.hold, str(tmp_path))
    worker = start_worker("--processes", "2", "--threads", "1")
    wait_until(lambda: lines(tmp_path / "started"))
    [child] = lines(tmp_path / "started")
    worker.kill()
    wait_until(lambda: not alive(int(child)))
    assert not is_ours(worker.pid)


# What a project may do in each of its processes, in the module of its tasks.
OWN_HANDLERS = f"""
import os, signal, sys
from django_vtqueue import task

if {inside.IS_CHILD}:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(3))

@task
def started_with() -> list:
    return [sys.argv[1:], sys.flags.optimize, sys.flags.dev_mode, sys.flags.utf8_mode]
"""


def test_children_are_started_as_their_supervisor(database: Database, start: Start, tmp_path: Path) -> None:
    """They have its options and arguments, and leave signals to it, whatever handlers the project has for them."""
    (tmp_path / "handling").mkdir()
    (tmp_path / "handling" / "__init__.py").touch()
    (tmp_path / "handling" / "tasks.py").write_text(OWN_HANDLERS)
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    arguments = ["vtworker", "--no-reload", "--processes", "2"]
    worker = start("-O", "-X", "dev", "-X", "utf8", MANAGE, *arguments, PYTHONPATH=path, VTQUEUE_TEST_APPS="handling")
    worker.wait_ready()
    asked = database.publish("handling.tasks.started_with")
    database.wait_for(asked)
    assert database.result(asked) == [arguments, 1, True, 1]
    job_id = begin(database, tmp_path)
    [child] = executions(tmp_path)
    os.kill(child, signal.SIGTERM)  # a service manager, or a terminal, sends it to all of them
    worker.signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert (database.result(job_id), database.history(job_id)) == ("go", [])


# A project whose first two child processes end together as they start, as when the system has no memory left for them.
ENDS_AT_FIRST = f"""
import os, sys, time
from pathlib import Path
from django_vtqueue import recurring, task

starts = Path(__file__).with_name("starts")
if {inside.IS_CHILD}:
    with starts.open("a") as file:
        number = file.write("x") and file.tell()
    while len(starts.read_text()) < 2:
        time.sleep(0.001)
    if number <= 2:
        os._exit(1)

@recurring(every=3600)
@task
def hourly() -> None:
    pass
"""


def test_a_drain_whose_children_end_at_their_start(database: Database, start: Start, tmp_path: Path) -> None:
    """It goes on until there were children that have looked at the queue, and at the schedules."""
    (tmp_path / "ending").mkdir()
    (tmp_path / "ending" / "__init__.py").touch()
    (tmp_path / "ending" / "tasks.py").write_text(ENDS_AT_FIRST)
    arguments = ["vtworker", "--no-reload", "--drain", "--processes", "2"]
    worker = start(MANAGE, *arguments, PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}", VTQUEUE_TEST_APPS="ending")
    assert worker.wait() == 0
    assert worker.log.count("ended with code 1") == 2
    assert [row["name"] for row in database.rows("SELECT name FROM vtqueue_schedule")] == ["ending.tasks.hourly"]


def test_a_module_that_takes_more_than_a_child_may(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """--max-memory: a child that has only loaded the task of a limited job runs it before it leaves.

    The import lasts until the memory has been looked at.
    """
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").touch()
    large = "import time\nmuch = b'x' * 500_000_000\ntime.sleep(2)\n"
    (tmp_path / "lazy" / "later.py").write_text(f"from django_vtqueue import task\n{large}{LIMITED}")
    arguments = ["--processes", "2", "--threads", "1", "--max-memory", "400"]
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    worker = start_worker(*arguments, PYTHONPATH=path, VTQUEUE_TEST_APPS="lazy")
    job = database.publish("lazy.later.work", concurrency_key="lazy.later.work")
    database.wait_for(job)
    assert database.job(job)["claims"] <= 3  # each of the first two children may load it
    worker.wait_for("this worker takes more than 400 MB, and is replaced (--max-memory)")


LIMITED = """
@task(concurrency=2)
def work() -> None:
    pass
"""
# A module that ends the first process that imports it, as one does that takes more memory than there is.
ENDS_ITS_FIRST = """
import os
from pathlib import Path
from django_vtqueue import task

first = Path(__file__).with_name("first")
if not first.exists():
    first.touch()
    os._exit(1)
"""


def test_a_module_that_ends_the_first_child_that_imports_it(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """That has cost its job an attempt, though it was imported for its limits only; the other child runs it then."""
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").touch()
    (tmp_path / "lazy" / "later.py").write_text(ENDS_ITS_FIRST + LIMITED)
    held = database.enqueue(tasks.hold, str(tmp_path))
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    arguments = ["--drain", "--processes", "2", "--threads", "1"]
    worker = start_worker(*arguments, ready=False, PYTHONPATH=path, VTQUEUE_TEST_APPS="lazy")
    wait_until(lambda: lines(tmp_path / "started") and len(database.workers()) == 2)
    job = database.publish("lazy.later.work", concurrency_key="lazy.later.work")
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert (tmp_path / "lazy" / "first").exists()
    assert database.succeeded(held, job)
    assert database.job(job)["attempts"] == 2


@pytest.mark.parametrize("how", [["--threads", "2"], ["--processes", "2", "--threads", "1"]], ids=["alone", "children"])
def test_a_module_that_ends_each_process_that_imports_it(
    database: Database, start_worker: Start, tmp_path: Path, how: list[str]
) -> None:
    """Its job becomes a dead letter, as that of any code that ends its process: imports for limits are counted, too."""
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").touch()
    (tmp_path / "lazy" / "later.py").write_text("import os; os._exit(1)")
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    job = database.publish("lazy.later.work", concurrency_key="lazy.later.work", max_attempts=2)
    codes = []
    while not codes or codes[-1]:
        worker = start_worker("--drain", *how, ready=False, PYTHONPATH=path, VTQUEUE_TEST_APPS="lazy")
        codes.append(worker.wait())
    assert codes == ([0] if "--processes" in how else [1, 1, 0])
    assert database.letter(job)["attempts"] == 2


ENDS = f"""
import sys

if {inside.IS_CHILD}:
    sys.exit("ended")
"""


@pytest.mark.parametrize("lived", [5, 0])  # seconds; 0: they end as late as if their imports took that long
def test_a_drain_whose_children_all_end_at_their_start(
    database: Database, start_worker: Start, tmp_path: Path, lived: float
) -> None:
    """It ends as a failure if it leaves due jobs, and says so; the jobs are as they were."""
    (tmp_path / "ending").mkdir()
    (tmp_path / "ending" / "__init__.py").touch()
    (tmp_path / "ending" / "tasks.py").write_text(ENDS)
    database.enqueue(tasks.add, 1, 2)
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    tries = inside.tuned(rounds=2, start=lived)
    arguments = ["--drain", "--processes", "2"]
    worker = start_worker(*arguments, ready=False, constants=tries, PYTHONPATH=path, VTQUEUE_TEST_APPS="ending")
    assert worker.wait() == 1
    assert 4 <= worker.log.count("ended with code 1") <= 5
    assert "child processes in a row could not be started, or ended before they began a job" in worker.log
    assert [tuple(row) for row in database.rows("SELECT state, attempts FROM vtqueue_job")] == [("READY", 0)]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # the library of SQLite fills what is closed itself
@pytest.mark.parametrize("processes", ["1", "2"])
def test_streams_that_are_closed_stay_away_from_connections(database: Database, tmp_path: Path, processes: str) -> None:
    """A worker without standard streams has empty ones, and so have its children: what a task prints goes nowhere."""
    closing = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh"]
    command = [*closing, *python(MANAGE, "vtworker", "--no-reload", "--processes", processes)]
    worker = Running(command, environment(database), tmp_path / "log")
    try:
        asked = database.enqueue(tasks.streams)
        database.wait_for(asked)
        assert database.result(asked) == [os.devnull, str(tmp_path / "log"), os.devnull]
        assert worker.terminate() == 0
    finally:
        worker.clean_up()


def test_children_are_recycled(database: Database, drain: Start) -> None:
    """--max-jobs-per-process: a child is replaced after so many jobs, and none is lost or run twice."""
    job_ids = database.enqueue_many(tasks.where, [()] * 70)
    worker = drain("--processes", "2", "--threads", "2", "--max-jobs-per-process", "20")
    assert database.succeeded(*job_ids)
    assert {database.job(job_id)["attempts"] for job_id in job_ids} == {1}  # what was claimed ahead may be given back
    ran = [database.result(job_id)[0] for job_id in job_ids]
    assert len(set(ran)) >= 4
    assert max(map(ran.count, ran)) <= 20 + 2  # those that were already under way
    assert "ended with code" not in worker.log


def test_a_child_that_has_grown_is_replaced(database: Database, start_worker: Start) -> None:
    """--max-memory: a child that takes more leaves as one that is stopped does, and another one takes its place."""
    worker = start_worker("--processes", "2", "--threads", "1", "--max-memory", "400")
    grown = database.enqueue(tasks.grow, 400)
    worker.wait_for("this worker takes more than 400 MB, and is replaced (--max-memory)")
    database.wait_for(grown)
    pid = database.result(grown)
    wait_until(lambda: not alive(pid) and len(database.workers()) == 2)
    after = [database.enqueue(tasks.where) for _ in range(4)]
    database.wait_for(*after)
    assert pid not in [database.result(job_id)[0] for job_id in after]
    assert database.job(grown)["claims"] == 1
    assert "ended with code" not in worker.log


def test_soft_time_limit(database: Database, drain: Start, tmp_path: Path) -> None:
    """``timeout`` raises TaskTimeout inside a task, sync or async; the attempt has timed out unless it is caught."""
    computing, waiting = database.enqueue(tasks.compute_for_ever), database.enqueue(tasks.wait_for_ever)
    cleaning = database.enqueue(tasks.clean_up_in_time, str(tmp_path / "clean"))
    drain()
    for job_id in (computing, waiting):
        assert [entry["outcome"] for entry in database.history(job_id)] == ["timed out"]
        assert database.letter(job_id)["exception_class"] == "django_vtqueue.exceptions.TaskTimeout"  # type: ignore[index]
    assert database.result(cleaning) == "The time of this task is up."
    assert (tmp_path / "clean").exists()


def test_hard_time_limit(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """``hard_timeout`` kills the child: that attempt has timed out, its neighbours are given back uncounted."""
    neighbour = database.enqueue(tasks.hold, str(tmp_path))
    worker = start_worker("--processes", "2", "--threads", "2")
    wait_until(lambda: lines(tmp_path / "started"))
    hanging = database.enqueue_many(tasks.hang_again, [()] * 3)  # one of them beside the neighbour
    wait_until(lambda: all(database.letter(job_id) for job_id in hanging))
    wait_until(lambda: len(lines(tmp_path / "started")) >= 2)
    (tmp_path / "go").touch()
    wait_until(lambda: database.succeeded(neighbour))
    for job_id in hanging:
        assert database.outcomes(job_id) == ["timed out"] * 2
    assert (database.job(neighbour)["attempts"], database.history(neighbour)) == (1, [])
    assert worker.terminate() == 0


@pytest.mark.parametrize("how", [("--processes", "2"), ("--threads", "2")], ids=["processes", "threads"])
def test_the_time_limit_of_a_task_that_is_not_loaded(
    database: Database, start_worker: Start, how: tuple[str, ...]
) -> None:
    """The first job of a task whose module no worker has loaded has its ``hard_timeout``, too."""
    hanging = database.enqueue(durable.hang)
    start_worker(*how, constants=inside.tuned(hung=0.5))
    wait_until(lambda: database.letter(hanging))
    assert database.outcomes(hanging) == ["timed out"]


def test_a_thread_that_does_not_end_ends_the_worker(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """Without children a task that outlives its limit costs the worker: it finishes its other jobs, and leaves."""
    hanging, other = database.enqueue(tasks.hang), database.enqueue(tasks.hold, str(tmp_path))
    worker = start_worker("--threads", "2", constants=inside.tuned(hung=0.5))
    worker.wait_for("does not end; this worker finishes its other jobs and leaves")
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.succeeded(other)
    assert [entry["outcome"] for entry in database.history(hanging)] == ["timed out"]


def test_a_child_that_does_not_read_stops_nobody(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A child that hangs with its pipe full keeps its worker neither from ending it in time nor from other jobs."""
    database.options |= {"hard_timeout": 5}
    hanging = database.enqueue(tasks.hold_the_interpreter_for_ever, str(tmp_path))
    start_worker("--processes", "2", "--threads", "4")
    wait_until(lambda: lines(tmp_path / "started"))
    large = [database.enqueue(tasks.note, str(tmp_path / "noted"), "x" * 900_000) for _ in range(6)]
    wait_until(lambda: database.letter(hanging))
    wait_until(lambda: database.succeeded(*large))
    assert database.outcomes(hanging) == ["timed out"]


def test_a_neighbour_that_may_start_once_is_not_given_back(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """With ``max_attempts=1`` a job that runs beside one whose child is killed has had its attempt."""
    database.options |= {"max_attempts": 1}
    neighbour = database.enqueue(tasks.hold, str(tmp_path))
    worker = start_worker("--processes", "2", "--threads", "2")
    wait_until(lambda: lines(tmp_path / "started"))
    hanging = database.enqueue_many(tasks.hang, [()] * 3)  # one of them beside the neighbour
    wait_until(lambda: all(database.letter(job_id) for job_id in [neighbour, *hanging]))
    assert [entry["outcome"] for entry in database.history(neighbour)] == ["worker died"]
    assert len(lines(tmp_path / "started")) == 1
    assert worker.terminate() == 0


def test_what_a_task_has_forked_does_not_hide_the_end_of_its_child(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """A process that a task left behind keeps the pipe of its child open; the child's job goes on all the same."""
    forked = database.enqueue(tasks.fork_and_hold, str(tmp_path))
    worker = start_worker("--processes", "2", "--threads", "1")
    try:
        wait_until(lambda: len(lines(tmp_path / "started")) == 1)
        [child] = lines(tmp_path / "started")
        os.kill(int(child), signal.SIGKILL)
        wait_until(lambda: len(lines(tmp_path / "started")) == 2)
        (tmp_path / "go").touch()
        wait_until(lambda: database.succeeded(forked))
        assert [entry["outcome"] for entry in database.history(forked)] == ["worker died"]
        assert worker.terminate() == 0
    finally:
        for process in lines(tmp_path / "forked"):
            os.kill(int(process), signal.SIGKILL)


def test_a_child_that_outlives_its_supervisor_keeps_its_job(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """A killed supervisor's child that was stopped still holds its bell: until it has ended no worker takes its job."""
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    worker = start_worker("--processes", "2", "--threads", "1")
    wait_until(lambda: lines(tmp_path / "started") and len(database.workers()) == 2)
    [child] = map(int, lines(tmp_path / "started"))
    [row] = [row for row in database.workers() if row["pid"] == child]
    os.kill(child, signal.SIGSTOP)  # it cannot notice that its worker is gone
    try:
        worker.kill()
        assert alive(child)
        assert not inside.died(database, row)
    finally:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: inside.died(database, row))
    start_worker()
    wait_until(lambda: len(lines(tmp_path / "started")) == 2)
    (tmp_path / "go").touch()
    wait_until(lambda: database.succeeded(job_id))
    assert [entry["outcome"] for entry in database.history(job_id)] == ["worker died"]


def test_what_a_task_starts_can_be_stopped(database: Database, drain: Start) -> None:
    """A child leaves signals to its worker, but the programs that its tasks start do not inherit that."""
    job_id = database.enqueue(tasks.ignored_signals)
    drain("--processes", "2")
    ignored = database.result(job_id)
    assert not ignored & (1 << signal.SIGTERM - 1 | 1 << signal.SIGINT - 1)


def test_what_is_said_of_a_killed_task(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A task that its ``hard_timeout`` has killed is announced as one that ran for too long, not as a dead worker's."""
    database.enqueue(tasks.hold, str(tmp_path))
    # With DEBUG Django's logger, a receiver of task_finished, writes to the console.
    worker = start_worker("--processes", "2", "--threads", "1", VTQUEUE_TEST_DEBUG="1")
    wait_until(lambda: lines(tmp_path / "started"))
    database.enqueue(tasks.hang)
    worker.wait_for("django_vtqueue.exceptions.TaskTimeout: It was ended after")
    assert "WorkerDied" not in worker.log
    (tmp_path / "go").touch()
    assert worker.terminate() == 0


def test_a_drain_keeps_all_its_children_while_one_has_a_job(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """A child with nothing to do stays as long as another one runs a job: it may publish work for both."""
    for name in "abc":
        (tmp_path / name).mkdir()
    database.enqueue(tasks.hold, str(tmp_path / "a"))
    worker = start_worker("--drain", "--processes", "2", "--threads", "1")
    wait_until(lambda: lines(tmp_path / "a" / "started") and len(database.workers()) == 2)
    b = database.enqueue(tasks.hold, str(tmp_path / "b"))
    wait_until(lambda: lines(tmp_path / "b" / "started"))
    c = database.enqueue(tasks.hold, str(tmp_path / "c"))
    (tmp_path / "a" / "go").touch()
    (tmp_path / "b" / "go").touch()
    wait_until(lambda: lines(tmp_path / "c" / "started"))
    assert not worker.ended()
    (tmp_path / "c" / "go").touch()
    assert worker.wait() == 0
    assert database.succeeded(b, c)
    assert "done: 3 attempts;" in worker.log


def test_children_share_the_number_of_jobs(database: Database, start_worker: Start) -> None:
    """--max-jobs: all children together begin so many jobs, also where one is replaced meanwhile."""
    job_ids = database.enqueue_many(tasks.add, [(1, 2)] * 20)
    worker = start_worker("--max-jobs", "7", "--max-jobs-per-process", "2", "--processes", "2", "--threads", "1")
    assert worker.wait() == 0
    assert sum(database.succeeded(job_id) for job_id in job_ids) == 7
    assert "done: 7 attempts;" in worker.log


def test_an_idle_child_that_stands_still_does_not_hold_up_the_end(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """A child that cannot react to a stop and holds no job is killed."""
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    constants = inside.tuned(idle_leaving=0.5)
    worker = start_worker("--processes", "2", "--threads", "1", constants=constants)
    wait_until(lambda: lines(tmp_path / "started") and len(database.workers()) == 2)
    [busy] = map(int, lines(tmp_path / "started"))
    [idle] = [row["pid"] for row in database.workers() if row["pid"] != busy]
    os.kill(idle, signal.SIGSTOP)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: not alive(idle))
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.succeeded(job_id)
    assert database.workers() == []


def test_tasks_that_end_their_children_end_no_drain(database: Database, start_worker: Start) -> None:
    """However many children end soon after their start: they have run jobs, and so may the next ones."""
    database.enqueue_many(tasks.exit_process, [(1,)] * 5)
    job_id = database.enqueue(tasks.add, 1, 2)
    tries = inside.tuned(rounds=1)
    worker = start_worker("--drain", "--processes", "2", "--threads", "1", ready=False, constants=tries)
    assert worker.wait() == 0
    assert worker.log.count("ended with code 1") == 5
    assert database.succeeded(job_id)


@pytest.mark.parametrize("code", [0, 1])
def test_a_task_that_ends_its_child_has_had_its_attempt(database: Database, drain: Start, code: int) -> None:
    """Whatever the exit code: the job of a child that ends without having left is one of a dead worker."""
    job_id = database.enqueue(tasks.exit_process, code)
    worker = drain("--processes", "2", "--threads", "1")
    assert [entry["outcome"] for entry in database.history(job_id)] == ["worker died"]
    assert database.letter(job_id)
    assert f"ended with code {code}" in worker.log


def test_children_that_are_to_be_replaced_are_bounded(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """While the jobs of replaced children go on, there are twice as many processes as asked for at the most."""
    database.enqueue_many(tasks.hold, [(str(tmp_path),)] * 6)
    worker = start_worker("--processes", "2", "--threads", "2", "--max-jobs-per-process", "1")
    wait_until(lambda: len(lines(tmp_path / "started")) == 4)
    time.sleep(2)  # the time in which it is watched
    assert len(lines(tmp_path / "started")) == len(children(worker.pid)) == 4
    (tmp_path / "go").touch()
    wait_until(lambda: not database.unfinished())
    assert len(set(lines(tmp_path / "started"))) == 6
    assert worker.terminate() == 0
