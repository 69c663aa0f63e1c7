"""What tests of processes need of the package's inner modules: no other module here imports any.

Programs of tests import it as well, so that nothing here needs pytest or the configuration of the tests.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db.utils import OperationalError

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.conf import parse
from django_vtqueue.core.clock import LAST_INSTANT, SECOND, microseconds, now
from django_vtqueue.core.histograms import ERROR as ERROR_OF_PERCENTILES
from django_vtqueue.core.ids import new_id, new_uuid, new_worker_id
from django_vtqueue.core.job import NewJobs
from django_vtqueue.engines import engine_for, new_engine
from django_vtqueue.engines.sqlite import guard
from django_vtqueue.engines.sqlite.engine import SQLiteEngine
from django_vtqueue.models import DeadLetter, Origin
from django_vtqueue.queue import doorbell
from django_vtqueue.queue.origin import origin_here
from django_vtqueue.queue.proof_of_death import proves_death
from django_vtqueue.queue.publishing import store
from django_vtqueue.queue.result_bells import RESULTS, result_bell
from django_vtqueue.requeueing import BATCH as REQUEUED_AT_ONCE
from django_vtqueue.tasks import awaiting_results
from django_vtqueue.tasks.compat import Task, TaskResult, TaskResultDoesNotExist, task_finished, task_started
from django_vtqueue.worker import pacing, process, turn
from django_vtqueue.worker.deaths import OtherWorkers

if TYPE_CHECKING:
    import pytest

    from .database import Database

# Plain values, and names of Django's Tasks framework or its backport.
__all__ = [
    "ERROR_OF_PERCENTILES",
    "REQUEUED_AT_ONCE",
    "SECOND",
    "Task",
    "TaskResult",
    "TaskResultDoesNotExist",
    "now",
    "task_finished",
    "task_started",
]

LONG_AGO = 1  # as instants are stored
CONTROL_LOOP = "worker/loop.py"  # where the stacks of an idle worker's threads show it
IS_CHILD = '"child_main" in "".join(sys.orig_argv)'  # in Python: whether this process is a child of a supervisor
WAITS = "finished_at IS NULL AND lease_until IS NULL"  # in SQL: of a job that counts for max_depth

# -- programs with other times -----------------------------------------------------------------------------------------

# Of a worker or a command; in seconds if nothing else is said.
TUNED = {
    "look": "worker.periodic.LOOK",  # until it looks for jobs by itself, while there is much to do
    "rare_look": "worker.periodic.RARE_LOOK",  # the same while there is little
    "hearing_look": "worker.periodic.HEARING_LOOK",  # the same where the database reports commits
    "heartbeat": "worker.heartbeat.HEARTBEAT",  # until it notes again that it is alive
    "statistics": "worker.statistics.PERIOD",  # until it writes again what it has counted
    "lines": "worker.log.MANY",  # a number: in a second, of jobs that have a line each
    "receivers": "worker.thread_pool.MOST_CALLS",  # a number: of their calls that wait while it claims more
    "share_of_pruning": "worker.maintenance.PRUNING_SHARE",  # of the time: else it rests between two parts
    "share_of_sweeping": "queue.unparking.SWEEPING_SHARE",  # the same, where what a limit holds up is put back
    "reload_look": "worker.reload.INTERVAL",  # until it looks again whether code has changed
    "reload_grace": "worker.reload.ENDING",  # for running jobs after a change of the code
    "hidden_us": "worker.shutdown.HIDDEN_FOR",  # microseconds until others may take what it gives back while it runs
    "answered": "worker.stop_signals.ANSWERED_WITHIN",  # for the database, when it is to end at once
    "begun": "worker.stop_signals.BEGUN_WITHIN",  # the same before it has begun
    "silence_look": "worker.silence.LOOK",  # until it looks again whether the server answers
    "command_silence": "management.output.SILENCE",  # until a person is told that the database does not answer
    "reached": "management.commands.vtworker.PATIENCE",  # for a drain whose database cannot be reached
    "tables_look": "management.commands.vtworker.LOOK_FOR_TABLES",  # until it looks again for that
    "rounds": "worker.supervisor.ROUNDS_TRIED",  # a number: of children that end at their start, in a drain
    "start": "worker.supervisor.LIVED",  # for a child to end in that counts as ended at its start
    "slow_start": "worker.child_process.SLOW_START",  # until a child that is not ready is named
    "idle_leaving": "worker.child_process.IDLE_LEAVING",  # for a child without a job to end
    "hung": "worker.in_flight.HUNG_AFTER",  # for a task to end whose time is up
    "server_silence_ms": "engines.postgresql.connection.SILENT",  # milliseconds until PostgreSQL ends a silent turn
}


def tuned(**values: float) -> dict[str, float]:
    """Return constants of the package by their inner names, for start_worker; see TUNED."""
    return {TUNED[name]: value for name, value in values.items()}


LOOKS_SELDOM = tuned(look=3600)
# A worker that is woken by its bell, or by a time that it knows, or in an hour.
NEVER_LOOKS = tuned(look=3600, rare_look=3600)
NEVER_LOOKS_NOR_HEARS = tuned(look=3600, rare_look=3600, hearing_look=3600)


def never_look_for_results() -> None:
    """Let this process look for results once in an hour: its waits are woken by bells."""
    awaiting_results.RARE_LOOK = 3600  # type: ignore[attr-defined]


def end_soon_behind_a_worker() -> None:
    """Give this process 0.1 s to end once it has come to its own end behind a worker."""
    process.ORDERLY_END = 0.1


def long_transactions(monkeypatch: "pytest.MonkeyPatch") -> None:
    """Make each transaction look long to workers in this process, as it is where threads compute."""
    monkeypatch.setattr(pacing, "LONG", -1.0)


def at_most_at_once(monkeypatch: "pytest.MonkeyPatch", jobs: int) -> None:
    """Let workers in this process begin so many jobs at once, and one for each thread."""
    monkeypatch.setattr(turn, "BATCH", jobs)


def first_read_of_a_claim_fails() -> list[Exception]:
    """Let the file be locked once, when this process reads the jobs that it has claimed; return the errors so far."""
    read, failed = SQLiteEngine.read, list[Exception]()

    def fails_once(*args: Any) -> Any:
        if failed:
            return read(*args)
        busy = sqlite3.OperationalError("database is locked")
        busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
        failed.append(busy)
        raise OperationalError("database is locked") from busy

    SQLiteEngine.read = fails_once  # type: ignore[assignment]
    return failed


# -- publishing and settling -------------------------------------------------------------------------------------------


def publish(
    database: "Database",
    task_path: str,
    *args: Any,
    max_attempts: int = 10,
    concurrency_key: str | None = None,
    due_in: float = 0.0,
) -> str:
    """Enqueue a task that this process does not have, by its path; it is due in so many seconds."""
    published_at, job_id = now(), new_id()
    due_at = published_at + microseconds(due_in)
    call = json.dumps({"args": args, "kwargs": {}})
    job = NewJobs(
        *("default", task_path, 0, max_attempts, 60 * SECOND, published_at, due_at, [(job_id, call)]),
        concurrency_keys=[concurrency_key] if concurrency_key else None,
    )
    store(job, database.alias, parse({"OPTIONS": database.options}))
    return job_id


def enqueue_together(database: "Database", task: Task, calls: Sequence[tuple[Any, ...]]) -> list[TaskResult]:
    """Enqueue many calls of a task in one transaction."""
    return database.backend.enqueue_many(task, [(args, {}) for args in calls])


def settle_for_the_dead(database: "Database", queue_name: str) -> list[str]:
    """Settle, as a worker of this queue would, what dead workers held; return the ids of the jobs."""
    options = {**database.options, "database": database.alias}
    backend = VTQueueBackend("default", {"QUEUES": [queue_name], "OPTIONS": options})
    others = OtherWorkers(new_engine(database.alias, traced=False), backend)
    return [ending.job.id for ending in others.settle_for_the_dead()]


def let_go_of_file(alias: str) -> None:
    """End the guard that this process has on a database file."""
    if own := guard._guards.pop(alias, None):
        own.release()
        own.close()


# -- rows as they may be found -----------------------------------------------------------------------------------------


def _change(database: "Database", columns: str, *values: Any, job_id: str | None = None) -> None:
    if job_id is None:
        database.write(f"UPDATE vtqueue_job SET {columns}", *values)
    else:
        database.write(f"UPDATE vtqueue_job SET {columns} WHERE id = ?", *values, job_id)


def held(database: "Database", worker_id: str, until: int, job_id: str | None = None, lease: float = 60) -> None:
    """Make a job (None: all) look held by a worker elsewhere, by a lease of so many seconds that ends then."""
    columns = (
        "state = 'RUNNING', worker_id = ?, claims = 1, attempts = 1, started_at = 1, lease_until = ?, lease_us = ?"
    )
    _change(database, columns, worker_id, until, microseconds(lease), job_id=job_id)


def lease_ended(database: "Database") -> None:
    """Make all leases look as if they had ended long ago; they were short."""
    _change(database, f"lease_until = {LONG_AGO}, lease_us = 300000")


def lease_taken(database: "Database") -> None:
    """Make all jobs look as if another worker had ended their leases: they are due."""
    _change(database, "state = 'READY', worker_id = '', lease_until = NULL")


def given_back(database: "Database", job_id: str | None = None) -> None:
    """Make a job (None: all) look as if its worker had stopped long ago, and given it back."""
    _change(database, f"state = 'RUNNING', worker_id = '', lease_until = {LONG_AGO}", job_id=job_id)


def last_attempt(database: "Database") -> None:
    """Allow each job one attempt."""
    _change(database, "max_attempts = 1")


def waits_without_an_end(database: "Database") -> None:
    """Make all jobs look as if they waited for events."""
    _change(database, f"state = 'WAITING', due_at = {LAST_INSTANT}, wake_at = {LAST_INSTANT}")


def park(database: "Database") -> None:
    """Make all jobs look held up by a limit, though no job runs."""
    _change(database, f"state = 'BLOCKED', wake_at = {LAST_INSTANT}")


def parked(database: "Database") -> list[str]:
    """Return the ids of the jobs that a limit holds up until there is room."""
    rows = database.rows("SELECT id FROM vtqueue_job WHERE state = 'BLOCKED'")
    return [row["id"] for row in rows]


def kept_for_long(database: "Database", job_id: str) -> None:
    """Make a job look as if it had succeeded long ago: its row is to be deleted."""
    columns = "state = 'SUCCESSFUL', worker_id = 'w', finished_at = 1, kept_until = 1, result = 'null'"
    _change(database, columns, job_id=job_id)


def leader_replaced(database: "Database", name: str) -> None:
    """Make a lease look as if another process had acquired it."""
    columns = "claims = claims + 1, worker_id = 'x'"
    database.write(f"UPDATE vtqueue_job SET {columns} WHERE queue_name = ?", f"lease:{name}")


def steps_of(database: "Database", job_id: str) -> list[dict[str, Any]]:
    """Return the finished steps of a durable task; each has its ``kind``, and its ``value`` if it has returned one."""
    return list(json.loads(database.job(job_id)["steps"])["done"])


def awaited(database: "Database", job_id: str) -> str | None:
    """Return the name of what a durable task waits for; None if it does not wait."""
    job = database.job(job_id)
    found = json.loads(job["steps"] or "{}").get("waiting") or {}
    return found.get("name") if job["state"] == "WAITING" else None


def dead_letters(alias: str, task: Task, number: int, *args: Any) -> list[str]:
    """Store dead letters, one microsecond after the other; the last argument of each call is its id; return the ids."""
    died_at, ids = now(), [new_uuid() for _ in range(number)]
    DeadLetter.objects.using(alias).bulk_create(
        DeadLetter(
            id=job_id,
            queue_name="default",
            task_path=task.module_path,
            payload={"args": [*args, job_id.hex], "kwargs": {}},
            claims=3,
            attempts=3,
            max_attempts=3,
            lease_us=60 * SECOND,
            enqueued_at=died_at,
            died_at=died_at - number + place,
            exception_class="builtins.ConnectionError",
            fingerprint="f",
        )
        for place, job_id in enumerate(ids)
    )
    return [job_id.hex for job_id in ids]


def add_worker(database: "Database", worker_id: str, heartbeat_at: int, bell: str = "") -> None:
    """Store the row of a worker that was elsewhere."""
    database.write(
        "INSERT INTO vtqueue_workerprocess (worker_id, host, pid, queues, slots, started_at, heartbeat_at,"
        " doorbell, asked_to) VALUES (?, 'elsewhere', 1, '', 4, 1, ?, ?, '')",
        *(worker_id, heartbeat_at, bell),
    )


def silent_for_long(database: "Database", worker_id: str) -> None:
    """Make a worker look as if it had been silent for long."""
    database.write(f"UPDATE vtqueue_workerprocess SET heartbeat_at = {LONG_AGO} WHERE worker_id = ?", worker_id)


def died_an_hour_ago(database: "Database") -> None:
    """Make the deaths of workers look as if they were an hour and a second earlier."""
    database.write(f"UPDATE vtqueue_workerprocess SET died_at = died_at - {3601 * SECOND} WHERE died_at IS NOT NULL")


def add_schedule(database: "Database", name: str, task_path: str, every: int, next_at: int) -> None:
    """Store a schedule as the admin makes it; the argument of its task is its name."""
    database.write(
        "INSERT INTO vtqueue_schedule (name, task_path, expression, time_zone, payload, missed, overlap, jitter_us,"
        " queue_name, declared, next_at, paused_by, recent) VALUES (?, ?, ?, '', ?, 'one', TRUE, 0, '', FALSE, ?, '',"
        " '[]')",
        *(name, task_path, f"every {every}", json.dumps({"args": [name], "kwargs": {}}), next_at),
    )


def next_tick(database: "Database", at: int) -> None:
    """Set the next tick of all schedules."""
    database.write("UPDATE vtqueue_schedule SET next_at = ?", at)


# Where the jobs of a database were run last: a machine, the path of a database file on it, and what no other file has.
RAN_ON = "INSERT INTO vtqueue_origin (id, machine, path, file, worked_at) VALUES (1, ?, ?, ?, 1780000000000000)"
FORGET_ORIGIN = "DELETE FROM vtqueue_origin"


def here(alias: str) -> Origin:
    """Return the place of a database, as the workers on this machine see it."""
    place = origin_here(engine_for(alias))
    assert place
    return place


# -- doorbells ---------------------------------------------------------------------------------------------------------


def died(database: "Database", worker: Any) -> bool:
    """Return whether this machine proves that the worker of a row has died."""
    bell = Path(worker["doorbell"])
    return proves_death(str(bell), database.alias, bell.parent.parent)


def bells_of(database: "Database", *, waiters: bool = False) -> Path:
    """Return the folder of the bells of a database's workers, or of those who wait for results."""
    return doorbell.place_of(database.alias, Path(database.options["doorbells"]), RESULTS if waiters else "")


def bells(alias: str, folder: str, number: int) -> list[doorbell.Doorbell]:
    """Return new bells, each of another owner."""
    return [doorbell.Doorbell(alias, Path(folder), new_worker_id()) for _ in range(number)]


@contextmanager
def listening(database: "Database") -> Iterator[threading.Event]:
    """Listen at a bell during the block, as a worker does; yield the event that is set when it is rung."""
    rung = threading.Event()
    bell = doorbell.Doorbell(database.alias, Path(database.options["doorbells"]), "own")
    bell.listen(lambda asked: rung.set())
    forget_bells()
    try:
        yield rung
    finally:
        bell.close()


def ring(database: "Database") -> None:
    """Wake workers, as one does who has published."""
    doorbell.ring(database.alias, database.options["doorbells"])


def count_rings(monkeypatch: "pytest.MonkeyPatch") -> Callable[[], int]:
    """Return a function that returns how many bells this process has rung since it was called last."""
    rung: list[str] = []
    send = doorbell.send

    def counted(path: str, *given: Any) -> bool:
        rung.append(path)
        return send(path, *given)

    def count() -> int:
        number = len(rung)
        rung.clear()
        return number

    monkeypatch.setattr(doorbell, "send", counted)
    return count


def forget_bells() -> None:
    """Let this process look for bells again when it rings, as it does after a second."""
    doorbell._found.clear()


def forget_ringer() -> None:
    """Let this process open its socket for ringing again."""
    doorbell._sender.cache_clear()


def has_a_ringer() -> bool:
    """Return whether this process has a socket for ringing."""
    return doorbell._sender.cache_info().currsize > 0


def waiter(database: "Database", job_id: str) -> doorbell.Doorbell:
    """Return the bell of one who waits for the result of a job, to wait at, and to close."""
    return result_bell(database.alias, database.options["doorbells"], job_id)
