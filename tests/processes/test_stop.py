"""Workers that are told to stop."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tests.project import forks, tasks

from ..postgresql import Server
from ..waiting import wait_until
from . import inside
from .conftest import ROOT, both_engines, environment, patched
from .database import Database
from .held import begin, executions
from .running import MANAGE, PATIENCE, Running, Start, python

SIGNALS = [signal.SIGTERM, signal.SIGINT]
ALL_SIGNALS = [*SIGNALS, signal.SIGHUP]
# For how long others may not take what was given back: on a busy machine it takes long to look.
LONG_HIDDEN = inside.tuned(hidden_us=20 * inside.SECOND)


@pytest.mark.parametrize("number", ALL_SIGNALS)
def test_a_signal_lets_finish_what_runs_and_claims_nothing_more(
    database: Database, held: tuple[Running, str], tmp_path: Path, number: signal.Signals
) -> None:
    """After SIGTERM, Ctrl-C or SIGHUP a worker finishes what it has begun, takes nothing new, and exits with 0."""
    worker, running = held
    later = database.enqueue(tasks.note, str(tmp_path / "noted"), "later")
    worker.signal(number)
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.result(running) == "go"
    assert (database.job(later)["state"], database.job(later)["claims"]) == ("READY", 0)
    assert not (tmp_path / "noted").exists()
    assert "done: 1 attempt;" in worker.lines("vtworker")[-1]
    assert database.workers() == []


def assert_given_back(database: Database, worker: Running, job_id: str) -> None:
    job = database.job(job_id)
    assert (job["state"], job["worker_id"], job["attempts"], job["claims"]) == ("RUNNING", "", 0, 1)
    [entry] = database.history(job_id)
    assert (entry["number"], entry["outcome"]) == (1, "released")
    assert job["visible_at"] - entry["ended"] == inside.SECOND
    assert "gave back 1 job" in worker.log


@pytest.mark.parametrize("numbers", [SIGNALS, SIGNALS[::-1]])
def test_a_second_signal_gives_the_job_back_at_once(
    database: Database, start_worker: Start, held: tuple[Running, str], tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    """At the second signal the process is gone at once; its job is due a second later and has lost no attempt."""
    worker, job_id = held
    worker.signal(*numbers)
    assert worker.wait() == 0
    assert_given_back(database, worker, job_id)
    (tmp_path / "go").touch()
    start_worker()
    database.wait_for(job_id)
    assert (database.job(job_id)["attempts"], database.job(job_id)["claims"]) == (1, 2)
    assert database.backend.get_result(str(UUID(job_id))).attempts == 1
    wait_until(lambda: worker.pid not in [row["pid"] for row in database.workers()])
    assert len(executions(tmp_path)) == 2


@both_engines
def test_a_worker_that_has_given_its_jobs_back_is_not_there_any_more(
    database: Database, held: tuple[Running, str]
) -> None:
    """It takes its row and its doorbell away: it is neither alive nor silent, and nobody counts on it."""
    worker, job_id = held
    worker.signal(*SIGNALS)
    assert worker.wait() == 0
    assert_given_back(database, worker, job_id)
    assert database.rows("SELECT worker_id FROM vtqueue_workerprocess") == [], worker.log
    assert not database.bells()


def test_a_worker_without_output_stops_as_any_other(
    database: Database, start_worker: Start, tmp_path: Path, doorbells: str
) -> None:
    """A task has closed it: the lines are lost, and what runs at the stop is finished all the same."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{doorbells}/notify")
        manager.settimeout(PATIENCE)
        worker = start_worker(NOTIFY_SOCKET=f"{doorbells}/notify")
        closed, running = database.enqueue(tasks.close_stderr), database.enqueue(tasks.hold, str(tmp_path))
        wait_until(lambda: database.succeeded(closed) and (tmp_path / "started").exists())
        worker.signal(signal.SIGTERM)
        while b"STOPPING=1" not in manager.recv(1000):
            pass
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.result(running) == "go"


def test_a_worker_without_a_free_descriptor_gives_its_job_back(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """At a second signal it is gone at once, as any other."""
    worker = start_worker("--threads", "1")
    job_id = database.enqueue(tasks.hold_without_a_free_descriptor, str(tmp_path))
    wait_until(lambda: executions(tmp_path))
    worker.signal(*SIGNALS)
    assert worker.wait() == 0
    assert_given_back(database, worker, job_id)


def test_shutdown_timeout_gives_back_what_still_runs(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """With --shutdown-timeout one signal is enough: what has not ended by then is given back."""
    worker = start_worker("--shutdown-timeout", "0.3")
    job_id = begin(database, tmp_path)
    assert worker.terminate() == 0
    assert_given_back(database, worker, job_id)


def test_what_ends_within_the_shutdown_timeout_is_kept(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """--shutdown-timeout is a limit, not a wait: a job that ends before it is settled, and the worker leaves then."""
    worker = start_worker("--shutdown-timeout", "1000")
    job_id = begin(database, tmp_path)
    worker.signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.result(job_id) == "go"


def test_a_signal_ends_a_worker_that_waits_for_its_tables(database: Database, start_worker: Start) -> None:
    """A worker that cannot begin yet can be stopped as well."""
    database.write("INSERT INTO django_migrations (app, name, applied) VALUES ('vtqueue', '9999_future', '2030-01-01')")
    worker = start_worker(ready=False)
    worker.wait_for("Waiting for it.")
    assert worker.terminate() == 0


@pytest.mark.skipif(not shutil.which("setsid"), reason="there is no setsid(1)")
@pytest.mark.parametrize("arguments", [(), ("--processes", "2")], ids=["threads", "processes"])
def test_ctrl_c_on_a_terminal(database: Database, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Ctrl-C reaches the worker and its children alike: the job is finished, the end is clean, no process is left."""
    master, slave = os.openpty()
    command = ["setsid", "--ctty", *python(MANAGE, "vtworker", "--no-reload", *arguments)]
    worker = Running(command, environment(database), tmp_path / "log", stdin=slave)
    try:
        worker.wait_ready()
        job_id = database.enqueue(tasks.hold, str(tmp_path))
        child = int(wait_until(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text()))
        os.write(master, b"\x03")
        (tmp_path / "go").touch()
        assert worker.wait() == 0
    finally:
        worker.clean_up()
        os.close(master)
        os.close(slave)
    assert database.result(job_id) == "go"
    assert "done: 1 attempt;" in worker.lines("vtworker")[-1]
    assert not [word for word in ("Traceback", "KeyboardInterrupt", "ended with code") if word in worker.log]
    assert not Path(f"/proc/{child}").exists()


def pending(pid: int) -> int:
    """Return the signals that a process has not received yet, as a bit mask."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^ShdPnd:\s+(\w+)$", status, re.MULTILINE)[1], 16)  # type: ignore[index]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_closed_terminal_is_no_second_signal(
    database: Database, start_worker: Start, tmp_path: Path, processes: int
) -> None:
    """SIGHUP may come several times, to the children as well: what runs is finished all the same."""
    job_id = database.enqueue(tasks.hold, str(tmp_path))
    worker = start_worker("--threads", "1", "--processes", str(processes))
    wait_until(lambda: len(database.workers()) == processes)
    child = int(wait_until(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text()))
    for pid in [worker.pid, child] * 20:
        os.kill(pid, signal.SIGHUP)
        wait_until(lambda: not pending(pid))  # noqa: B023
    worker.wait_for("stopping: waiting for 1 job")
    wait_until(lambda: len(database.workers()) == 1)  # an idle child has left
    later = database.enqueue(tasks.add, 1, 2)
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert database.result(job_id) == "go"
    assert database.job(later)["state"] == "READY"


def test_nohup(database: Database, start_worker: Start) -> None:
    """A worker that was started to outlive its terminal does."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    worker = start_worker()
    worker.signal(signal.SIGHUP)
    job_id = database.enqueue(tasks.add, 1, 2)
    database.wait_for(job_id)
    assert worker.terminate() == 0


@pytest.mark.parametrize("reader", ["stands still", "is gone"])
def test_nothing_keeps_a_worker_that_has_given_its_jobs_back(database: Database, tmp_path: Path, reader: str) -> None:
    """A worker whose output is not read, and whose job has threads of its own, is gone before others may take it."""
    job_id = database.enqueue(forks.write_and_hang, str(tmp_path))
    ours, theirs = os.pipe()
    command = python(*patched(LONG_HIDDEN), "vtworker", "--no-reload", "--threads", "1")
    with (tmp_path / "errors").open("wb") as errors:
        worker = subprocess.Popen(command, env=environment(database, PYTHONUNBUFFERED=""), stdout=theirs, stderr=errors)
    os.close(theirs)
    with closing(os.fdopen(ours, "rb")) as pipe:
        try:
            wait_until(lambda: (tmp_path / "started").exists())
            if reader == "is gone":
                pipe.close()
            worker.send_signal(signal.SIGTERM)
            worker.send_signal(signal.SIGINT)
            assert worker.wait(PATIENCE) in (0, 1)
            assert inside.now() < database.job(job_id)["visible_at"]
        finally:
            worker.kill()
            worker.wait()
    assert database.outcomes(job_id) == ["released"]


def test_no_log_handler_keeps_a_worker_that_has_given_its_jobs_back(
    database: Database, start_worker: Start, tmp_path: Path
) -> None:
    """Not even what hangs with the interpreter to itself: the worker is gone before others may take the job."""
    logging = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {
            "hanging": {"class": "tests.project.hanging.Hanging"},
            "usual": {"class": "logging.StreamHandler"},
        },
        "loggers": {"django_vtqueue": {"handlers": ["usual", "hanging"], "level": "INFO"}},
    }
    worker = start_worker("--threads", "1", constants=LONG_HIDDEN, VTQUEUE_TEST_LOGGING=json.dumps(logging))
    job_id = begin(database, tmp_path)
    worker.signal(*SIGNALS)
    assert worker.wait() == 1
    assert inside.now() < database.job(job_id)["visible_at"]
    assert database.outcomes(job_id) == ["released"]


STAND_STILL = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@contextmanager
def standing_still(database: Database, server: Server) -> Iterator[None]:
    """Have the server answer nobody else during the block, though their connections stay open; it makes no new one."""
    database.rows(STAND_STILL)  # by a connection that is there
    pids = [server.pid]
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for row in database.rows(STAND_STILL):
            pids.append(row["pid"])
            os.kill(row["pid"], signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("options", [(), ("--shutdown-timeout", "0.5")])
@pytest.mark.parametrize("busy", [True, False])
def test_a_server_that_gives_no_answer_keeps_no_worker(
    database: Database, start_worker: Start, tmp_path: Path, server: Server, busy: bool, options: tuple[str, ...]
) -> None:
    """After a second signal, or --shutdown-timeout, the worker ends and says why; what it held is not touched."""
    worker = start_worker(*options, constants=inside.tuned(answered=2))
    job_id = begin(database, tmp_path) if busy else ""
    with standing_still(database, server):
        worker.signal(*SIGNALS[: 1 if options else 2])
        code = worker.wait()
    assert code == 1 or not busy  # one that asks nothing more ends by itself
    assert worker.log.count("the database, or something else, gives no answer") == code
    if busy:
        assert (database.job(job_id)["state"], database.job(job_id)["claims"]) == ("RUNNING", 1)


QUICKLY = inside.tuned(silence_look=0.2)  # seconds, 1 else


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_an_idle_worker_says_that_the_server_gives_no_answer_and_leaves(
    database: Database, start_worker: Start, server: Server
) -> None:
    """It says so after seconds, and a first signal ends it, though it never hears from the server again."""
    worker = start_worker(constants=QUICKLY)
    wait_until(lambda: database.workers())  # the session of its loop is there, and will stand still
    with standing_still(database, server):
        worker.wait_for("has given no answer for")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 1
    assert worker.log.count("has given no answer for") == worker.log.count("gives no answer. Its leases end") == 1


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_busy_worker_waits_for_a_server_that_gives_no_answer(
    database: Database, start_worker: Start, tmp_path: Path, server: Server
) -> None:
    """What runs is not given up after a first signal: when the server answers again, its result is stored."""
    worker = start_worker(constants=QUICKLY)
    job_id = begin(database, tmp_path)
    with standing_still(database, server):
        worker.wait_for("has given no answer for")
        worker.signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        with pytest.raises(subprocess.TimeoutExpired):
            worker.process.wait(4)  # more than twice as long as an idle one stays
    assert worker.wait() == 0, worker.log
    assert database.job(job_id)["state"] == "SUCCESSFUL"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("command", ["vtqueue", "vtworker"])
def test_a_command_that_gets_no_answer_says_so(database: Database, start: Start, server: Server, command: str) -> None:
    """A person who looks at the queue, or starts a worker, is told what they wait for, and one signal ends it."""
    program = patched(inside.tuned(command_silence=0.5, begun=1))
    with standing_still(database, server):
        running = start(*program, command, "status" if command == "vtqueue" else "--no-reload")
        running.wait_for("Database 'default' has given no answer yet.")
        running.signal(signal.SIGINT)
        assert running.wait() != 0


def handles(worker: Running, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal by now."""
    status = Path(f"/proc/{worker.pid}/status").read_text()
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) & 1 << number - 1)


def connections_to(server: Server) -> int:
    """Return how many connections there are to its socket, with those that it has not accepted."""
    return Path("/proc/net/unix").read_text().count(f"{server.folder}/")


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_server_that_answers_nobody_keeps_no_worker_that_begins(
    database: Database, start_worker: Start, server: Server
) -> None:
    """A worker that waits for its first connection ends, too, after one signal: it holds nothing."""
    os.kill(server.pid, signal.SIGSTOP)
    others = connections_to(server)
    try:
        worker = start_worker(ready=False, constants=inside.tuned(begun=2))
        wait_until(lambda: handles(worker, signal.SIGTERM) and connections_to(server) > others)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 1, worker.log
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert "gives no answer" in worker.log


HANGS_IN_CHILDREN = f"""
import os, pathlib, sys, time
if {inside.IS_CHILD}:
    pathlib.Path(__file__).with_name(str(os.getpid())).touch()
    time.sleep(600)
"""


def test_a_child_that_hangs_in_an_import_is_named(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """A child that does not get ready is told of once, can be asked what it does, and does not hold up the end."""
    (tmp_path / "hanging").mkdir()
    (tmp_path / "hanging" / "__init__.py").touch()
    (tmp_path / "hanging" / "tasks.py").write_text(HANGS_IN_CHILDREN)
    path, slow = f"{ROOT}{os.pathsep}{tmp_path}", inside.tuned(slow_start=0.5)
    worker = start_worker("--processes", "2", ready=False, constants=slow, PYTHONPATH=path, VTQUEUE_TEST_APPS="hanging")
    told = re.compile(r"^process (\d+) is not ready after .* \(kill -USR1 \1 shows where\)$", re.MULTILINE)
    wait_until(lambda: len(told.findall(worker.log)) == 2 or worker.ended())
    children = list(map(int, told.findall(worker.log)))
    wait_until(lambda: (tmp_path / "hanging" / str(children[0])).exists())
    os.kill(children[0], signal.SIGUSR1)
    worker.wait_for("hanging/tasks.py")
    assert worker.terminate() == 0
    assert len(told.findall(worker.log)) == 2
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
