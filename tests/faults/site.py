"""A project of several processes on a PostgreSQL server that meets faults, and what its tables say afterwards."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from ..postgresql import USER, Server
from ..processes.running import Running, python
from ..processes.server_database import Kept
from ..projects import ROOT, Project
from ..waiting import wait_until
from .namespaces import on_host

GONE = "the database cannot be reached ("
LEASE = 5  # seconds: a worker on a busy machine renews it all the same

SETTINGS = """
import json, os
DATABASES = {{"default": {database!r}}}
DATABASES["default"].update(json.loads(os.environ.get("SITE_DATABASE", "{{}}")))
OPTIONS = {{"visibility_timeout": {lease}, "backoff": 0.2, "max_attempts": 100, "doorbells": os.environ["SITE_BELLS"]}}
OPTIONS.update(json.loads(os.environ.get("SITE_OPTIONS", "{{}}")))
TASKS = {{"default": {{"BACKEND": "django_vtqueue.backend.VTQueueBackend", "OPTIONS": OPTIONS}}}}
"""

TASKS = """
import os, time
from pathlib import Path
from django.db import connection
from django_vtqueue import Cancelled, task
from django_vtqueue.exceptions import TaskTimeout

FOLDER = Path(__file__).parents[1]

def append(name, text):
    with (FOLDER / name).open("a") as file:
        file.write(f"{text}\\n")

@task
def note(number):
    time.sleep(0.002)
    append("executed", number)

@task(transactional=True)
def count(number):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effect VALUES (%s)", [number])

@task
def hold(name):
    append(f"{name}-began", os.uname().nodename)
    while not (FOLDER / f"{name}-go").exists():
        time.sleep(0.01)
    return os.uname().nodename

@task
def large(name):
    hold.func(name)
    return os.urandom(200_000).hex()

@task
def fail_once(name):
    path = FOLDER / f"{name}-began"
    again = path.exists()
    append(path.name, os.uname().nodename)
    assert again

@task(transactional=True, timeout=2)
def sleep_inside(name, sql):
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        append(f"{name}-began", "")
        cursor.execute(sql)
    time.sleep(1000)

@task(timeout=4)
def compute(name):
    append(f"{name}-began", "")
    try:
        while True:
            time.sleep(0.01)
    except TaskTimeout:
        append(f"{name}-ended", "")
        raise

@task(takes_context=True)
def steer(context, name):
    append(f"{name}-began", os.uname().nodename)
    while not context.cancelled:
        time.sleep(0.01)
    raise Cancelled
"""

# Publishes as web servers do: what fails is tried again, on a new connection; what is said is stored.
PUBLISH = """
import sys, time
import django
django.setup()
from django.db import DatabaseError, close_old_connections
from django_vtqueue import enqueue_many
from shop.tasks import count, note

for number in range(int(sys.argv[1])):
    while True:
        close_old_connections()
        try:
            if number % 5:
                results = [(count if number % 5 == 1 else note).enqueue(number)]
            else:
                results = enqueue_many(note, [((number,), {})] * 3)
            break
        except DatabaseError:
            time.sleep(0.05)
    print(*(result.id for result in results), flush=True)
    time.sleep(float(sys.argv[2]))
"""

# What the database itself saw happen, written down in the transaction that does it; see ledger.py.
LEDGER = """
CREATE TABLE effect (number integer);
CREATE TABLE ledger (event text, job uuid, worker text);
CREATE FUNCTION note_acknowledged() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO ledger VALUES ('acknowledged', NEW.id, NEW.worker_id); RETURN NULL; END $$;
CREATE TRIGGER acknowledged AFTER UPDATE ON vtqueue_job FOR EACH ROW
    WHEN (NEW.state = 'SUCCESSFUL') EXECUTE FUNCTION note_acknowledged();
"""

END_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"""

COUNTS = """
SELECT count(*) FILTER (WHERE finished_at IS NULL), count(*), (SELECT count(*) FROM vtqueue_deadletter) FROM vtqueue_job
"""


class Site:
    """``server``: as the test reaches it, which need not be the way that the processes of the project take."""

    def __init__(self, folder: Path, server: Server, database: dict[str, Any]) -> None:
        self.folder, self.server = folder, server
        self._kept = Kept(self.connect)
        folder.mkdir(exist_ok=True)
        self.project = Project(folder, SETTINGS.format(database=database, lease=LEASE))
        self.project.write("shop/tasks.py", TASKS)
        self.project.write("publish.py", PUBLISH)
        self.processes: list[Running] = []

    def migrate(self) -> None:
        """Make the tables, and the ledger; those of a test before are emptied."""
        if self.execute("SELECT to_regclass('ledger')") == [(None,)]:
            here = json.dumps({"HOST": str(self.server.folder)})
            said = self.run("-m", "django", "migrate", "--run-syncdb", "--verbosity", "0", SITE_DATABASE=here)
            assert said.wait() == 0, said.log
            self.execute(LEDGER)
        self.execute(END_OTHERS)  # what dead clients have begun goes on in the server
        tables = self.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'vtqueue_%'")
        self.execute(f"TRUNCATE effect, ledger, {', '.join(name for (name,) in tables)} CASCADE")

    def run(self, *arguments: str, host: Sequence[str] = (), bells: str = "bells", **variables: str) -> Running:
        """Start this Python. ``host``: how it comes on another one (see on_host); ``bells``: a folder for doorbells."""
        given = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "VTQUEUE_"))}
        env = {
            **given,
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
            "SITE_BELLS": str(self.server.folder / bells),
            **variables,
        }
        log = self.folder / f"log-{len(self.processes)}"
        command = on_host(host, *arguments) if host else python(*arguments)
        self.processes.append(Running(command, env, log))
        return self.processes[-1]

    def worker(self, *options: str, **given: Any) -> Running:
        """Start a worker."""
        return self.run("-m", "django", "vtworker", *options, **given)

    def ready_worker(self, *options: str, **given: Any) -> Running:
        """Start a worker, and wait until it is ready."""
        worker = self.worker(*options, **given)
        worker.wait_ready()
        return worker

    def publisher(self, jobs: int, pause: float = 0.0, **given: Any) -> Running:
        """Start a publisher; what it says are the ids of the jobs that it knows to be stored."""
        return self.run(str(self.folder / "publish.py"), str(jobs), str(pause), **given)

    def connect(self) -> "psycopg.Connection[Any]":
        """Connect to the server, by its own socket."""
        return psycopg.connect(
            host=str(self.server.folder),
            user=USER,
            dbname="postgres",
            autocommit=True,
            connect_timeout=5,
            prepare_threshold=None,
        )

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement; return its rows."""
        return self._kept.execute(sql, *values)

    def acknowledged(self) -> Counter[str]:
        """Return how many times each job was acknowledged."""
        return Counter(str(job) for (job,) in self.execute("SELECT job FROM ledger"))

    def finish(self, publisher: Running) -> None:
        """Wait until all has been published and worked; nothing may be lost, nothing acknowledged twice."""
        assert publisher.wait() == 0, publisher.log
        wait_until(lambda: self.execute(COUNTS)[0][0] == 0, every=0.1)
        _, stored, buried = self.execute(COUNTS)[0]
        acknowledged = self.acknowledged()
        assert buried == 0
        assert set(publisher.log.split()) <= set(acknowledged)
        assert set(acknowledged.values()) == {1}
        assert len(acknowledged) == stored
        effects = self.execute("SELECT count(*) FROM effect")[0][0]
        assert effects == self.execute("SELECT count(*) FROM vtqueue_job WHERE task_path = 'shop.tasks.count'")[0][0]

    def clean_up(self) -> None:
        """End all processes."""
        self._kept.close()
        for process in self.processes:
            process.clean_up()


@contextmanager
def site(folder: Path, server: Server, database: dict[str, Any] | None = None) -> Iterator[Site]:
    """Make a project on a server; its processes are ended with the block."""
    made = Site(folder, server, database or server.settings())
    try:
        made.migrate()
        yield made
    finally:
        made.clean_up()


def assert_said(worker: Running, text: str, at_most: int = 1) -> None:
    """Fail unless a worker has said something, once an episode, and has met no error that it does not know."""
    assert 1 <= times_said(worker, text) <= at_most, worker.log
    assert_untroubled(worker)


OF_TASKS = ("its transaction cannot begin", "Nothing is lost")


def times_said(worker: Running, text: str) -> int:
    """Return how often the control loop of a worker has said something.

    A transactional task says it too, with its own words, when its BEGIN or its COMMIT was not answered.
    """
    lines = (line for line in worker.log.splitlines() if not any(words in line for words in OF_TASKS))
    return sum(text in line for line in lines)


def assert_untroubled(worker: Running) -> None:
    """Fail if a worker has met an error that it does not know, or has ended."""
    assert not worker.ended(), worker.log
    assert "Traceback" not in worker.log, worker.log
    assert "does not know" not in worker.log, worker.log
