"""What a worker writes."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import termios
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from django_vtqueue import Queue
from tests.project import durable, tasks

from ..conftest import ALIAS
from ..waiting import wait_until
from . import inside
from .conftest import environment
from .database import Database
from .running import DURATION, MANAGE, PATIENCE, TIME, Running, Start, python

Drain = Callable[..., Running]

JOB = r"tests\.project\.tasks\.(\w+) …[0-9a-f]{8}"


def line_of(worker: Running, beginning: str) -> str:
    [line] = worker.lines(beginning)
    return line


def test_each_outcome_has_its_line(database: Database, drain: Drain) -> None:
    """Ready, ok, retry and dead: one line each, with the task, the end of the job's id, and what happened."""
    succeeding = database.enqueue(tasks.add.using(queue_name="emails"), 1, 2)
    retried = database.enqueue(tasks.raise_later)
    dying = database.enqueue(tasks.raise_it, "BaseException")
    worker = drain("--threads", "2")
    ready = worker.lines("vtworker ")[0]
    of_database = r"db\.sqlite3 \(wal, normal\)|\w+ \(PostgreSQL [\d.]+, synchronous_commit \w+\)"
    assert re.fullmatch(rf"vtworker [^:]+:\d+ ready: queues all; 2 threads; ({of_database})", ready)
    ok = line_of(worker, "ok ")
    assert re.fullmatch(rf"ok    {JOB} queue=emails attempt=1 wait={TIME} run={TIME}", ok)
    assert f"tasks.add …{succeeding[-8:]}" in ok
    retry = line_of(worker, "retry ")
    assert re.fullmatch(rf"retry {JOB} attempt=1/10 ConnectionError: refused; next in \d+\.\ds", retry)
    assert f"tasks.raise_later …{retried[-8:]}" in retry
    dead = line_of(worker, "dead ")
    assert re.fullmatch(
        rf"dead  {JOB} after 1 attempt: BaseException: bare; requeue: manage\.py vtqueue requeue …\w+", dead
    )
    assert f"tasks.raise_it …{dying[-8:]}" in dead
    done = r"vtworker [^:]+:\d+ done: 3 attempts; longest write lock \d+\.\dms"
    assert re.fullmatch(done, worker.lines("vtworker ")[-1])
    assert re.fullmatch(
        rf"left for later: 1 job \(1 to be tried again\); the first is due in {DURATION}", line_of(worker, "left")
    )


def test_a_task_that_pauses_its_queue(database: Database, drain: Drain) -> None:
    """The line of its retry says so."""
    database.enqueue(tasks.too_many_requests.using(queue_name="emails"), 60)
    said = r"429 Too Many Requests; next in (60|5\d)\.\ds, and queue emails is paused until then"
    assert re.search(said, line_of(drain(), "retry "))


def test_what_waits_without_an_end(database: Database, drain: Drain) -> None:
    """A drain that leaves only that names no time."""
    database.enqueue(durable.order, 7)
    worker = drain()
    inside.waits_without_an_end(database)
    assert line_of(drain(), "left") == "left for later: 1 job; they wait for events or for other jobs"
    assert worker.lines("left") != []


def test_a_drain_says_what_it_leaves(database: Database, drain: Drain) -> None:
    """Scheduled jobs and those of paused queues are counted; where nothing is left, or was, nothing is said."""
    empty = drain()
    assert (empty.lines("left"), "done: 0 attempts;" in empty.log) == ([], True)
    database.enqueue_many(tasks.add.using(run_after=timedelta(hours=2)), [(1, 2)] * 3)
    assert re.fullmatch(r"left for later: 3 jobs; the first is due in (2 h|1\.9 h)", line_of(drain(), "left"))
    database.write("DELETE FROM vtqueue_job")
    database.enqueue(tasks.add, 1, 2)
    Queue("default", using=ALIAS).pause()
    assert line_of(drain(), "left") == "left for later: 1 job in paused queues"


def test_the_first_signal_says_what_is_waited_for(held: tuple[Running, str], tmp_path: Path) -> None:
    """It names the jobs that run, and what a second one does."""
    worker, job_id = held
    worker.signal(signal.SIGINT)
    wait_until(lambda: worker.lines("stopping"))
    assert line_of(worker, "stopping") == (
        f"stopping: waiting for 1 job to end (tests.project.tasks.hold …{job_id[-8:]}); "
        "stop it again (Ctrl-C, SIGTERM) to give them back at once"
    )
    (tmp_path / "go").touch()
    assert worker.wait() == 0


def test_what_failed_is_seen_at_the_level_of_production(database: Database, drain: Drain) -> None:
    """With a root logger at WARNING a job that is tried again has its line; one that went well has none."""
    database.enqueue(tasks.raise_later)
    database.enqueue(tasks.add, 1, 2)
    worker = drain(VTQUEUE_TEST_LOGGING=to_stderr("WARNING"))
    assert "ConnectionError: refused" in line_of(worker, "retry ")
    assert not worker.lines("ok ")


def test_with_debug_a_job_has_one_line(database: Database, drain: Drain) -> None:
    """Django's own handler for the console adds none; a traceback begins at the task's own frame."""
    database.enqueue(tasks.add, 1, 2)
    job_id = database.enqueue(tasks.raise_it, "BaseException")
    worker = drain("--no-reload", VTQUEUE_TEST_DEBUG="1")
    lines = [line for line in worker.log.splitlines() if "tasks.add" in line]
    assert [line[:5] for line in lines] == ["ok   "]
    letter = database.letter(job_id)
    [entry] = database.history(job_id)
    assert letter
    assert entry["traceback"].splitlines()[1].strip().startswith(f'File "{tasks.__file__}"')


def test_the_line_of_a_dead_letter_ends_in_a_command(database: Database, drain: Drain, start: Start) -> None:
    """What the line says, pasted into a shell, sends that letter round again."""
    first, second = (database.enqueue(tasks.raise_it, "BaseException") for _ in range(2))
    [line] = [line for line in drain().lines("dead ") if f"…{first[-8:]}" in line]
    _, _, command = line.partition("; requeue: manage.py ")
    assert start(MANAGE, *command.split()).wait() == 0
    assert database.job(first)["state"] == "READY"
    assert database.letter(second)


MANY = 400


def test_above_fifty_jobs_a_second_there_is_a_summary_that_counts_them_all(
    database: Database, start_worker: Start
) -> None:
    """Many short jobs get a line for each only until there are too many in a second; every other one is counted.

    Here of five, for a machine that is slow.
    """
    database.enqueue_many(tasks.add, [(1, 2)] * MANY)
    worker = start_worker("--drain", ready=False, constants=inside.tuned(lines=5))
    assert worker.wait() == 0
    lines = [line for line in worker.lines("ok ") if "tests.project" in line]
    counted = [int(count.replace(",", "")) for count in re.findall(r"^ok    ([\d,]+) (?:more )?jobs", worker.log, re.M)]
    assert 5 <= len(lines) < MANY
    assert len(lines) + sum(counted) == MANY


def test_verbose_gives_a_line_for_each(database: Database, drain: Drain) -> None:
    """-v 2 writes a line for each job, however many there are."""
    database.enqueue_many(tasks.add, [(1, 2)] * MANY)
    worker = drain("-v", "2")
    assert len([line for line in worker.lines("ok ") if re.fullmatch(rf"ok    {JOB} .*", line)]) == MANY
    assert "jobs in the last second" not in worker.log


def to_stderr(level: str) -> str:
    """Return a LOGGING that writes everything from a level on."""
    handler = {"class": "logging.StreamHandler", "level": level}
    root = {"handlers": ["stderr"], "level": "INFO"}
    everything = {"version": 1, "disable_existing_loggers": False, "handlers": {"stderr": handler}, "root": root}
    return json.dumps(everything)


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(("level", "lines"), [("INFO", "FAILED RUNNING RUNNING SUCCESSFUL"), ("ERROR", "FAILED")])
def test_lines_of_the_framework_are_written_where_the_project_wants_them(
    database: Database, drain: Drain, processes: str, level: str, lines: str
) -> None:
    """Django's own lines for each job reach the handler that the project has for them, and failures any."""
    database.enqueue(tasks.add, 1, 2)
    database.enqueue(tasks.raise_it, "BaseException")
    worker = drain("--processes", processes, VTQUEUE_TEST_LOGGING=to_stderr(level))
    found = re.findall(r"^Task id=\S+ path=tests\.project\.tasks\.\w+ state=(\w+)$", worker.log, re.M)
    assert sorted(found) == lines.split()


def test_a_drain_on_a_terminal_shows_a_progress_bar(database: Database) -> None:
    """On a terminal, with tqdm installed, --drain shows how far it is instead of a line for each job; failures are
    written all the same."""
    pytest.importorskip("tqdm")
    database.enqueue_many(tasks.add, [(1, 2)] * 30)
    database.enqueue(tasks.raise_it, "BaseException")
    output, code = on_a_terminal(python(MANAGE, "vtworker", "--drain"), environment(database))
    assert code == 0, output
    assert "31/31" in output
    assert "job/s" in output
    assert "dead  tests.project.tasks.raise_it" in output
    assert "ok    tests.project" not in output


def on_a_terminal(command: list[str], env: dict[str, str]) -> tuple[str, int]:
    """Run a command whose output is a terminal; return what it has shown, and its exit code."""
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 100))
    termios.tcsetwinsize(end, (24, 100))
    process = subprocess.Popen(command, env=env, stdin=end, stdout=end, stderr=end, start_new_session=True)
    os.close(end)
    shown = b""
    try:
        while piece := os.read(terminal, 65536):
            shown += piece
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(terminal)
    return shown.decode(), process.wait(PATIENCE)


def test_a_reader_that_has_seen_enough(database: Database) -> None:
    """``vtqueue list | head`` shows some lines and nothing else, however many there are."""
    database.enqueue_many(tasks.add, [(1, 2)] * 2000)
    command = f"{shlex.join(python(MANAGE, 'vtqueue', 'list', '--limit', '2000'))} | head -n 3"
    ended = subprocess.run(
        command, shell=True, env=environment(database), capture_output=True, text=True, timeout=PATIENCE
    )
    assert len(ended.stdout.splitlines()) == 3
    assert ended.stderr == ""


@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_a_task_prints_is_read_at_once(database: Database, start: Start, processes: str) -> None:
    """Also where output is no terminal, as in a container: of a worker that goes on, a line at a time."""
    options = ("--no-reload", "--processes", processes)
    worker = start(MANAGE, "vtworker", *options, fresh=True, PYTHONUNBUFFERED="")
    worker.wait_ready()
    database.enqueue(tasks.say, "Hello Ada!")
    worker.wait_for("\nHello Ada!\n")
