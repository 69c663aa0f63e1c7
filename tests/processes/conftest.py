"""Real processes on a database file of each test's own."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from ..conftest import ENGINE, empty_tables, reached
from ..postgresql import Server
from .database import Database
from .held import begin
from .moves import OTHER, Sides
from .running import MANAGE, PATIENCE, Running, Start, python

ROOT = Path(__file__).resolve().parent.parent.parent

# ``vtworker`` with other values of constants, so that a test need not wait for as long as a user.
PATCHED = """
import gc, sys
gc.disable()
from importlib import import_module
import django
django.setup()
gc.freeze()
gc.enable()
for name, value in {constants}.items():
    module, _, constant = name.rpartition(".")
    module = import_module("django_vtqueue." + module)
    assert hasattr(module, constant), name
    setattr(module, constant, value)
sys.argv[0] = {manage!r}
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


def patched(constants: dict[str, float]) -> list[str]:
    """Return the arguments of Python for ``manage.py`` with other constants; see inside.tuned."""
    return ["-c", PATCHED.format(constants=constants, manage=MANAGE)]


both_engines = pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)


def environment(database: Database, **variables: str) -> dict[str, str]:
    """Return the environment in which the test project runs on a database."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.processes.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "VTQUEUE_TEST_OPTIONS": json.dumps(database.options),
        **database.variables,
        **variables,
    }


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    """Have a closed terminal end what is started here, also where nohup has started the tests."""
    usual = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, usual)


@pytest.fixture
def doorbells() -> Iterator[str]:
    """Return a folder for sockets; a path below ``tmp_path`` may be too long for them."""
    with tempfile.TemporaryDirectory(prefix="vtq-") as folder:
        yield folder


@pytest.fixture
def database(request: pytest.FixtureRequest, doorbells: str) -> Database:
    """Return a fresh database that this process and the workers of the test share: of ENGINE, or what a test asks for.

    ``both_engines`` has a test run on both.
    """
    if getattr(request, "param", ENGINE) == "postgresql":
        if about_files := request.node.get_closest_marker("sqlite"):
            pytest.skip(f"about SQLite: {about_files.args[0]}")
        on_a_server: Database = request.getfixturevalue("server_database")
        return on_a_server
    sqlite_file = request.getfixturevalue("sqlite_file")
    return Database(Path(connections[sqlite_file].settings_dict["NAME"]), doorbells)


@pytest.fixture
def server_database(
    server: Server, migrated: dict[str, Any], tmp_path: Path, doorbells: str, django_db_blocker: DjangoDbBlocker
) -> Iterator[Database]:
    """Return a fresh database on the server of this test run."""
    from .server_database import ServerDatabase

    database = ServerDatabase(server, tmp_path, doorbells)
    with database.copied(migrated["NAME"]), django_db_blocker.unblock(), reached(database.settings("test")) as alias:
        empty_tables(alias)  # the one that is copied has what a test has left there
        yield database


@pytest.fixture
def start(database: Database, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a process of the test project; all are ended with the test.

    ``fresh``: it begins as a new interpreter, not as a fork; see preloaded.start.
    """
    processes: list[Running] = []

    def start(*command: str, fresh: bool = False, **variables: str) -> Running:
        log = tmp_path / f"log-{len(processes)}"
        processes.append(Running(python(*command), environment(database, **variables), log, fresh=fresh))
        return processes[-1]

    try:
        yield start
    finally:
        for process in processes:
            process.clean_up()


@pytest.fixture
def start_worker(start: Start) -> Start:
    """Return a function that starts a worker and waits until it is ready.

    ``ready=False``: does not wait. ``constants``: other values of the package's, see inside.tuned.
    """

    def start_worker(
        *arguments: str,
        ready: bool = True,
        reload: bool = False,
        constants: dict[str, float] | None = None,
        **variables: str,
    ) -> Running:
        program = patched(constants) if constants else [MANAGE]
        command = [*program, "vtworker", "--reload" if reload else "--no-reload", *arguments]
        worker = start(*command, fresh=reload, **variables)
        if ready:
            worker.wait_ready()
        return worker

    return start_worker


@pytest.fixture
def drain(start_worker: Start) -> Callable[..., Running]:
    """Return a function that runs ``vtworker --drain`` to its end."""

    def drain(*arguments: str, **variables: str) -> Running:
        worker = start_worker("--drain", *arguments, ready=False, **variables)
        assert worker.process.wait(PATIENCE) == 0, worker.log
        return worker

    return drain


@pytest.fixture
def held(database: Database, start_worker: Start, tmp_path: Path) -> tuple[Running, str]:
    """Return a worker with one thread, and the id of the job that it runs."""
    worker = start_worker("--threads", "1")
    return worker, begin(database, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def other(
    request: pytest.FixtureRequest,
    database: Database,
    empty_file: Path,
    tmp_path: Path,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[dict[str, Any]]:
    """Return the settings of an empty database beside that of the test, which is reached by an alias meanwhile."""
    if request.param == "sqlite":
        shutil.copy(empty_file, tmp_path / "other.sqlite3")
        given = {"NAME": str(tmp_path / "other.sqlite3")}
    else:
        given = request.getfixturevalue("migrated")
    with django_db_blocker.unblock(), reached(given, OTHER):
        if request.param == "postgresql":
            empty_tables(OTHER)
        yield given


@pytest.fixture
def sides(start: Start, start_worker: Start, database: Database, other: dict[str, Any]) -> Sides:
    return Sides(start, start_worker, database, other)
