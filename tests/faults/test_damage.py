"""Rows that somebody edited by hand: whatever stands in them, the jobs beside them run."""

import signal
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from django_vtqueue import LeaseLost, Queue, control
from django_vtqueue.models import DeadLetter, Job
from django_vtqueue.tasks.compat import TaskResultDoesNotExist
from tests.conftest import ALIAS
from tests.project import tasks

from ..processes.conftest import Start
from ..processes.database import Database
from ..processes.running import PATIENCE
from ..waiting import wait_until

NUMBERS = ["0", "-1", "7", str(2**63 - 1), str(-(2**63)), "0.5", "-1e300", "1e300", "9e999", "-9e999"]
TEXTS = [
    "''",
    "'abc'",
    "'2026-01-01 00:00:00+00:00'",
    "'[]'",
    "'{\"a\": 1}'",
    "'NaN'",
    "char(0)",
    "CAST(x'ff' AS TEXT)",
]
OTHERS = ["x''", "x'ff00fe'", "NULL", "'READY'", "'RUNNING'", "'SUCCESSFUL'", "'FAILED'"]
COLUMNS = [field.column for field in Job._meta.local_fields if not field.generated]
EXPIRED = "state = 'RUNNING', worker_id = 'w', claims = 1, attempts = 1, lease_until = 5, started_at = 5"


def damage(database: Database, rows: Iterable[tuple[str, tuple[str, str]]], first: str = "") -> None:
    """Set a column of each job to a value, whatever a constraint says, where SQLite takes it at all."""
    with closing(sqlite3.connect(database.path, timeout=30)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for job_id, (column, value) in rows:
            if first:
                connection.execute(f"UPDATE vtqueue_job SET {first} WHERE id = ?", [job_id])
            with suppress(sqlite3.IntegrityError):
                connection.execute(f"UPDATE vtqueue_job SET {column} = {value} WHERE id = ?", [job_id])


def every_damage() -> Iterator[tuple[str, str]]:
    return ((column, value) for column in COLUMNS for value in [*NUMBERS, *TEXTS, *OTHERS])


@pytest.mark.parametrize("first", ["", EXPIRED, f"{EXPIRED}, max_attempts = 1"], ids=["ready", "expired", "exhausted"])
def test_a_damaged_row_does_not_stop_a_queue(database: Database, first: str) -> None:
    """Any value in any column of a row: the next job of its queue is handed out, and the row does not come back for
    ever; it waits, has run, or is a dead letter."""
    queue, cases = Queue("q", ALIAS, max_attempts=3), list(every_damage())
    ids = [job_id.hex for job_id in queue.publish_many(["damaged"] * len(cases))]
    after = {job_id.hex for job_id in queue.publish_many(["after"] * 50)}
    damage(database, zip(ids, cases, strict=True), first)
    seen = []
    for _ in range(2 * len(cases)):
        for job in queue.claim_many(3):
            seen.append(job.id.hex)
            with suppress(LeaseLost):
                job.ack()
    assert after <= set(seen)
    assert len(seen) == len(set(seen))
    assert not queue.claim()


@pytest.mark.parametrize(
    "processes", [["--threads", "2"], ["--processes", "2", "--threads", "1"]], ids=["threads", "processes"]
)
def test_damaged_rows_do_not_stop_a_worker(database: Database, drain: Start, processes: list[str]) -> None:
    """The same for tasks, hundreds of damaged rows at once: the jobs between them run, the worker ends when nothing is
    due, and what has become of each row can be shown."""
    database.options |= {"visibility_timeout": 1, "backoff": 600}
    cases = list(every_damage())
    ids = database.enqueue_many(tasks.add, [(number, 0) for number in range(2 * len(cases))])
    sound = database.enqueue_many(tasks.add, [(number, 1) for number in range(50)])
    damage(database, zip(ids[::2], cases, strict=True))
    damage(database, zip(ids[1::2], cases, strict=True), EXPIRED)
    sound += database.enqueue_many(tasks.add, [(number, 1) for number in range(50)])
    drain(*processes)
    assert database.succeeded(*sound)
    for job_id in ids:
        with suppress(TaskResultDoesNotExist):  # its id or its path is another one
            assert database.backend.get_result(job_id).status
    assert DeadLetter.objects.using(ALIAS).filter(exception_class__endswith="DamagedJob").count() > 100


def test_a_time_that_is_none_waits_until_it_is_given_one(database: Database, drain: Start) -> None:
    """A text where the time belongs is later than any time: such a job is shown, and can be run."""
    job_id = database.enqueue(tasks.add, 1, 2)
    damage(database, [(job_id, ("due_at", "'tomorrow'"))])
    drain()
    assert Job.objects.using(ALIAS).get().visible_at.year == 9999
    assert [changed.hex for changed in control.run_now([job_id], ALIAS)] == [job_id]
    drain()
    assert database.succeeded(job_id)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_row_edited_while_its_job_runs(
    database: Database, start_worker: Start, tmp_path: Path, processes: str
) -> None:
    """Also where the row takes no change at all any more, the worker goes on with its other jobs."""
    database.options |= {"visibility_timeout": 1}
    start_worker("--processes", processes, "--threads", "2")
    cases = [("priority", "500"), ("lease_us", "'abc'"), ("attempts", "x'ff'"), ("claims", "7"), ("state", "'FAILED'")]
    for number, case in enumerate(cases):
        job_id = database.enqueue(tasks.hold, str(tmp_path), str(number))
        wait_until((tmp_path / f"{number}started").exists, PATIENCE)
        damage(database, [(job_id, case)])
        (tmp_path / f"{number}go").touch()
        after = database.enqueue(tasks.add, number, 1)
        wait_until(lambda after=after: database.succeeded(after), PATIENCE)


def test_a_row_that_cannot_be_read_hides_no_death(database: Database, start_worker: Start, tmp_path: Path) -> None:
    """What becomes of the jobs of a dead worker is told, also beside a row whose time is none."""
    holder = start_worker()
    job_id = database.enqueue(tasks.hold, str(tmp_path), "")
    wait_until((tmp_path / "started").exists, PATIENCE)
    database.write("UPDATE vtqueue_job SET max_attempts = 1")
    holder.process.send_signal(signal.SIGSTOP)  # or it would look at the damaged row first
    damage(database, [(database.enqueue(tasks.add, 1, 2), ("due_at", "x'ff'"))])
    other = start_worker()
    holder.kill()
    other.wait_for(f"dead  {tasks.hold.module_path} …{job_id.replace('-', '')[-8:]}")
