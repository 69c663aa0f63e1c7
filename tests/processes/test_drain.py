"""Workers that end by themselves: --drain and --max-jobs, and what the command line refuses."""

import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from tests.project import tasks, transactional

from .database import Database
from .running import Running, Start

Drain = Callable[..., Running]


def test_drain_runs_what_is_due_and_leaves_what_is_scheduled(database: Database, drain: Drain, tmp_path: Path) -> None:
    """--drain ends with 0 when nothing is due; a job for later waits on."""
    due = database.enqueue_many(tasks.note, [(str(tmp_path / "noted"), str(number)) for number in range(20)])
    later = database.enqueue(tasks.note, str(tmp_path / "noted"), "later", run_after=timedelta(hours=1))
    worker = drain()
    assert database.succeeded(*due)
    assert sorted((tmp_path / "noted").read_text().split(), key=int) == [str(number) for number in range(20)]
    assert (database.job(later)["state"], database.job(later)["claims"]) == ("SCHEDULED", 0)
    assert "done: 20 attempts;" in worker.lines("vtworker")[-1]


def test_drain_retries_waits_for_what_becomes_due_in_that_time(database: Database, drain: Drain) -> None:
    """--drain-retries 60 also runs the retries and the scheduled jobs of the next minute, not those after it."""
    retried = database.enqueue(tasks.fail_first, 2)
    scheduled = database.enqueue(tasks.add, 1, 2, run_after=timedelta(seconds=0.5))
    too_late = database.enqueue(tasks.add, 1, 2, run_after=timedelta(hours=1))
    drain("--drain-retries", "60")
    assert database.result(retried) == 3
    assert database.result(scheduled) == 3
    assert database.job(too_late)["claims"] == 0


@pytest.mark.parametrize("task", [tasks.effect, transactional.append], ids=["ordinary", "transactional"])
def test_max_jobs_ends_after_so_many(database: Database, start_worker: Start, task: Any) -> None:
    """--max-jobs 2 runs two jobs, however many threads there are, and exits with 0."""
    database.enqueue_many(task, [("a",)] * 5)
    worker = start_worker("--max-jobs", "2")
    assert worker.wait() == 0
    states = database.rows("SELECT state, count(*) FROM vtqueue_job GROUP BY state ORDER BY state")
    assert [tuple(row) for row in states] == [("READY", 3), ("SUCCESSFUL", 2)]


def test_queues_takes_only_those_named(database: Database, drain: Drain) -> None:
    """--queues a,b takes jobs of these queues only, with spaces or without."""
    ids = [database.enqueue(tasks.add.using(queue_name=name), 1, 2) for name in ("a", "b", "c")]
    worker = drain("--queues", "a, b")
    assert [database.job(job_id)["state"] for job_id in ids] == ["SUCCESSFUL", "SUCCESSFUL", "READY"]
    assert "ready: queues a,b;" in worker.log


@pytest.mark.parametrize(
    ("arguments", "queues", "message"),
    [
        (["--backend", "other"], [], "TASKS['other'] is not a django_vtqueue backend; use --backend default."),
        (
            ["--queues", "emails,typo"],
            ["default", "emails"],
            "TASKS['default'] has no queue typo; its queues are default, emails.",
        ),
        (
            ["--queues", "emails:2,emails:3"],
            [],
            "--queues emails:2,emails:3 gives a queue two weights; give each queue once.",
        ),
        (["--queues", ""], [], "--queues '' names no queue; leave it out to serve all."),
        (["--queues", ","], [], "--queues ',' names no queue; leave it out to serve all."),
        (["--threads", "0"], [], "argument --threads: must be a whole number, 1 to 10000, not '0'."),
        (["--threads", "100000"], [], "argument --threads: must be a whole number, 1 to 10000, not '100000'."),
        (["--processes", "100000"], [], "argument --processes: must be a whole number, 1 to 10000, not '100000'."),
        (["--max-jobs", "0"], [], "argument --max-jobs: must be a whole number, 1 or more, not '0'."),
        (["--drain-retries", "60"], [], "--drain-retries says how long --drain waits; give both."),
        (["--drain-retries", "-1"], [], "argument --drain-retries: must be a number of seconds, 0 or more, not '-1'."),
        (["--shutdown-timeout", "soon"], [], "--shutdown-timeout: must be a number of seconds, 0 or more, not 'soon'."),
        (["--shutdown-timeout", "nan"], [], "--shutdown-timeout: must be a number of seconds, 0 or more, not 'nan'."),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(
    settings: Settings, arguments: list[str], queues: list[str], message: str
) -> None:
    """A wrong --backend or --queues, or a number that makes no sense, is an error in words."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": queues}}
    with pytest.raises(CommandError, match=re.escape(message)):
        call_command("vtworker", *arguments)


FEW_THREADS = """
import resource, sys, threading
threading.stack_size(1 << 28)
resource.setrlimit(resource.RLIMIT_STACK, (1 << 28, resource.RLIM_INFINITY))  # for child processes
resource.setrlimit(resource.RLIMIT_AS, (1 << 32, resource.RLIM_INFINITY))
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


def test_threads_that_the_system_refuses_are_said_in_a_sentence(database: Database, start: Start) -> None:
    """No thread runs a job then, and all jobs wait as before; a supervisor goes on, and starts the process again."""
    job_id = database.enqueue(tasks.add, 1, 2)
    worker = start("-c", FEW_THREADS, "vtworker", "--no-reload", "--threads", "500")
    assert worker.wait() == 1, worker.log
    assert re.search(r"^CommandError: The system has started \d+ of 500 threads, and refuses", worker.log, re.MULTILINE)
    supervisor = start("-c", FEW_THREADS, "vtworker", "--no-reload", "--threads", "500", "--processes", "2")
    supervisor.wait_for("of 500 threads, and refuses")
    assert supervisor.terminate() == 0
    assert "Traceback" not in worker.log + supervisor.log
    assert (database.job(job_id)["state"], database.job(job_id)["claims"]) == ("READY", 0)
    assert not database.rows("SELECT * FROM vtqueue_workerprocess")


@pytest.mark.django_db(transaction=True)
def test_drain_on_a_database_in_memory_runs_in_the_callers_thread() -> None:
    """No other thread could see the rows: call_command("vtworker", drain=True) runs them here and now."""
    result = tasks.thread_id.enqueue()
    call_command("vtworker", drain=True)
    result.refresh()
    assert result.return_value == threading.get_ident()


SCRIPT = """
import threading
import django
django.setup()
from django.core.management import call_command
from django.db import connections, transaction
from tests.project import tasks, transactional
first = tasks.thread_id.enqueue()
"""

IN_A_TRANSACTION = """
with transaction.atomic():
    second = tasks.thread_id.enqueue()
    call_command("vtworker", drain=True, max_jobs=2)
    for result in first, second:
        result.refresh()
        assert result.return_value == threading.get_ident(), result
    transaction.set_rollback(True)
first.refresh()
assert first.status == "READY", first
"""

IN_ANOTHER_THREAD = """
failures = []
def drain():
    try:
        call_command("vtworker", drain=True)
    except BaseException as error:
        failures.append(error)
    finally:
        connections.close_all()
thread = threading.Thread(target=drain)
thread.start()
thread.join()
assert not failures, failures
first.refresh()
assert first.return_value not in (threading.get_ident(), None), first
"""

TWICE = """
import signal
for _ in range(2):
    second = tasks.thread_id.enqueue()
    call_command("vtworker", drain=True)
    second.refresh()
    assert second.status == "SUCCESSFUL", second
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
for thread in threading.enumerate():
    if thread.name.startswith("vtworker"):  # one that renews beside a lock may just be ending
        thread.join(5)
        assert not thread.is_alive(), thread.name
"""


@pytest.mark.parametrize("script", [IN_A_TRANSACTION, IN_ANOTHER_THREAD, TWICE])
def test_call_command_drains_in_process(database: Database, start: Start, script: str) -> None:
    """call_command("vtworker", drain=True) on a file: inside an atomic block in the caller's thread and transaction;
    in another thread than the main one; and, in the main thread, as often as you like, leaving nothing behind."""
    process = start("-c", SCRIPT + script)
    assert process.wait() == 0, process.log


READ_FAILS_ONCE = """
from tests.processes import inside
failed = inside.first_read_of_a_claim_fails()
call_command("vtworker", drain=True)
first.refresh()
assert failed and first.status == "SUCCESSFUL", first
"""


@pytest.mark.sqlite("an engine whose look fails while the file is locked")
def test_a_drain_leaves_nothing_that_it_holds_unknowingly(database: Database, start: Start) -> None:
    """The database is locked when the jobs of a committed claim are read: the drain releases them, and runs them."""
    process = start("-c", SCRIPT + READ_FAILS_ONCE)
    assert process.wait() == 0, process.log


def test_without_drain_a_worker_in_a_transaction_is_refused(database: Database, start: Start) -> None:
    """A worker whose rows no publisher could reach says so instead of waiting for ever."""
    process = start("-c", SCRIPT + 'with transaction.atomic():\n    call_command("vtworker")')
    assert process.wait() == 1
    assert "Use --drain to run due jobs here and now." in process.log
