"""The database file that the processes of a test share: publishing into it, and reading what has become of jobs."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connections
from django.utils import timezone

from django_vtqueue.backend import VTQueueBackend

from ..conftest import ALIAS
from ..waiting import shared, wait_until
from . import inside
from .inside import Task
from .running import Running

LOCKED = "the database is locked by another connection; waiting. Nothing is lost."
UNFINISHED = """
SELECT count(*) FROM vtqueue_job
WHERE finished_at IS NULL AND queue_name NOT LIKE 'lease:%' AND queue_name NOT LIKE 'slots:%'"""


def inode(path: Path) -> tuple[int, int] | None:
    """Return what is the same for no other file that exists; None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


class Database:
    """A migrated SQLite file. ``options``: OPTIONS of the backend, for this process and for the workers."""

    alias = ALIAS  # of this process

    def __init__(self, path: Path, doorbells: str) -> None:
        self.path = path
        self.options: dict[str, Any] = {"doorbells": doorbells}

    @property
    def variables(self) -> dict[str, str]:
        """What in the environment of a process of the test project makes this its database."""
        return {"VTQUEUE_TEST_DB": str(self.path)}

    @property
    def tasks(self) -> dict[str, Any]:
        """TASKS of this process that are those of the workers: they say where the doorbells are."""
        options = {**self.options, "database": ALIAS}
        return {"default": {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "QUEUES": [], "OPTIONS": options}}

    @property
    def backend(self) -> VTQueueBackend:
        return VTQueueBackend("default", self.tasks["default"])

    def enqueue(self, task: Task, *args: Any, run_after: timedelta | None = None, **kwargs: Any) -> str:
        """Enqueue one call of a task from this process; return the job's id as the tables have it."""
        if run_after is not None:
            task = task.using(run_after=timezone.now() + run_after)
        return UUID(self.backend.enqueue(task, args, kwargs).id).hex

    def enqueue_many(self, task: Task, calls: list[tuple[Any, ...]]) -> list[str]:
        """Enqueue many calls of a task in one transaction; return their ids."""
        return [UUID(result.id).hex for result in inside.enqueue_together(self, task, calls)]

    def publish(self, task_path: str, *args: Any, **options: Any) -> str:
        """Enqueue a task that this process does not have, by its path; see inside.publish."""
        return inside.publish(self, task_path, *args, **options)

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Read by a connection that knows nothing of Django. The looks of a wait share it as long as its files stay."""
        with shared.opened(self._files, self._connected) as connection:
            return connection.execute(sql, values).fetchall()

    def _files(self) -> tuple[object, ...]:
        return self.path, inode(self.path), inode(Path(f"{self.path}-wal"))

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30)
        connection.row_factory = sqlite3.Row
        with suppress(sqlite3.Error):  # it will be said by the look
            connection.execute("PRAGMA schema_version").fetchall()  # opens the log
        return connection

    def write(self, sql: str, *values: Any) -> None:
        """Write as a foreign program would, without a ring."""
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            connection.execute(sql, values)

    def leave(self) -> None:
        """Have this process use the database no more, as one that has ended: else its guard keeps the log."""
        connections[ALIAS].close()
        inside.let_go_of_file(ALIAS)

    def on(self, name: str, event: str, condition: str, statement: str, *, at_commit: bool = False) -> None:
        """Have the database itself execute a statement after each event with a row: NEW, and OLD if it is changed.

        ``at_commit``: where others may commit between the event and its own commit, at the latter.
        """
        self.write(f"CREATE TRIGGER {name} AFTER {event} WHEN {condition} BEGIN {statement}; END")

    def refuse(self, name: str, event: str, condition: str, words: str) -> None:
        """Have the database itself refuse each event with a row, with an error of these words."""
        self.on(name, event, condition, f"SELECT RAISE(ABORT, '{words}')")

    def job(self, job_id: str) -> sqlite3.Row:
        """Return a job's row; fail if it is not (or no longer) in the queue."""
        [row] = self.rows("SELECT * FROM vtqueue_job WHERE id = ?", job_id)
        return row

    def letter(self, job_id: str) -> sqlite3.Row | None:
        """Return a dead letter, None if the job is none."""
        return next(iter(self.rows("SELECT * FROM vtqueue_deadletter WHERE id = ?", job_id)), None)

    def succeeded(self, *job_ids: str) -> bool:
        """Return whether all these jobs have been acknowledged."""
        marks = ",".join("?" * len(job_ids))
        query = f"SELECT count(*) FROM vtqueue_job WHERE state = 'SUCCESSFUL' AND id IN ({marks})"
        return bool(self.rows(query, *job_ids)[0][0] == len(job_ids))

    def wait_for(self, *job_ids: str) -> None:
        """Wait until all these jobs have been acknowledged."""
        wait_until(lambda: self.succeeded(*job_ids))

    def unfinished(self) -> int:
        """Return how many jobs wait or run."""
        return int(self.rows(UNFINISHED)[0][0])

    def result(self, job_id: str) -> Any:
        """Return what a job returned."""
        return json.loads(self.job(job_id)["result"])

    def history(self, job_id: str) -> list[dict[str, Any]]:
        """Return a job's ended attempts, also when it is a dead letter."""
        entries: list[dict[str, Any]] = json.loads((self.letter(job_id) or self.job(job_id))["history"])
        return entries

    def outcomes(self, job_id: str) -> list[str]:
        """Return how a job's attempts have ended."""
        return [entry["outcome"] for entry in self.history(job_id)]

    def add_worker(self, worker_id: str, heartbeat_at: int, doorbell: str = "") -> None:
        """Store the row of a worker that was elsewhere."""
        inside.add_worker(self, worker_id, heartbeat_at, doorbell)

    def bells(self) -> set[Path]:
        """Return the bells that lie in the folder of the test, of whatever kind, but not the links to them."""
        found = Path(self.options["doorbells"]).rglob("*")
        return {path for path in found if path.is_socket() and not path.is_symlink()}

    def workers(self) -> list[sqlite3.Row]:
        """Return the rows of the workers that count as present."""
        return self.rows("SELECT * FROM vtqueue_workerprocess WHERE died_at IS NULL ORDER BY started_at")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the write lock, as a backup or a foreign program would."""
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")

    def is_locked(self) -> bool:
        """Return whether a transaction that others wait for takes longer than it should."""
        with closing(sqlite3.connect(self.path, timeout=1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            connection.execute("ROLLBACK")
            return False

    def stop(self, *processes: Running) -> None:
        """Stop processes outside of their transactions: one that is stopped in its own keeps all from writing."""
        for process in processes:
            process.stop()
        while self.is_locked():
            for process in processes:
                process.go_on()
            wait_until(lambda: not self.is_locked())
            for process in processes:
                process.stop()

    def wait_until_blocked(self, *workers: Running) -> None:
        """Wait until that lock keeps these workers waiting, for so long that they would say so."""
        for worker in workers:
            worker.wait_for(LOCKED)
