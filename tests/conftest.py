"""A database file of a test's own: it has real transactions, locks and threads, which the one in memory has not."""

import fcntl
import gc
import os
import random
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections
from hypothesis import settings
from pytest_django import DjangoDbBlocker

from django_vtqueue import ClaimedJob, Queue
from django_vtqueue.core import clock
from django_vtqueue.engines import ENGINES, engine_for

from . import postgresql
from .fake_clock import FakeClock
from .waiting import PROMPT

ALIAS = "file"
ENGINE = os.environ.get("VTQUEUE_TEST_ENGINE", "sqlite")  # or postgresql: of the tests that do not choose one
ONE_OF_SEVERAL = os.environ.get("PYTEST_XDIST_WORKER")  # the name of this process, if the test run has several
FILLED = ("vtqueue", "project")  # apps whose tables tests fill
SMALL = 1 << 18  # bytes of a table in PostgreSQL, with those of rows that are gone
BROWSER = "tests/browser/"
# A long file that begins last is waited for alone.
SLOW_FIRST = (
    "faults",
    "browser",
    "processes",
    "test_readme.py",
    "test_tutorial.py",
    "test_checks.py",
    "test_typing.py",
    "test_upgrade.py",
)

# The same examples in every run, however slow the machine is.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("steady")

# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage in what is collected, then and later: that are a million objects, and all of them stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each process of the test run read the files in another order: what one has compiled, the others need not."""
    report = yield
    if ONE_OF_SEVERAL and isinstance(collector, pytest.Directory):
        random.Random(ONE_OF_SEVERAL).shuffle(report.result)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders and files that take longest; all processes have the same order."""
    here = Path(__file__).parent
    if ONE_OF_SEVERAL:
        items.sort(key=lambda item: item.path)
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in SLOW_FIRST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give a process all tests of a file, and one of them all tests of the browser: they share one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneBrowser(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return BROWSER if file.startswith(BROWSER) else file

    return OneBrowser(config, log)


@contextmanager
def connected(path: Path) -> Iterator[str]:
    """Give this process a connection to a database file; yield its alias."""
    with reached({"NAME": str(path)}) as alias:
        yield alias


@contextmanager
def reached(database: dict[str, Any], alias: str = ALIAS) -> Iterator[str]:
    """Give this process a connection to a database with these settings; yield its alias."""
    connections.settings[alias] = {**connections.settings["default"], **database}
    engine_for.cache_clear()  # the database that this alias led to before may be of another kind
    try:
        yield alias
    finally:
        for thread in threading.enumerate():
            if thread.name.startswith("lease "):  # of one that was given back just now: it may have yet to begin
                thread.join(PROMPT)
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


class Common:
    """What one of the processes of this test run makes, for all of them to copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)

    @contextmanager
    def made(self, name: str, make: Callable[[Path], object]) -> Iterator[Path]:
        """Yield where it is, made if it was not there: one process at a time is in such a block."""
        path, unfinished = self.folder / name, self.folder / f"unfinished-{name}"
        with self._locked():
            if not path.exists():
                shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
                make(unfinished)
                unfinished.rename(path)
            yield path

    def remove(self) -> None:
        """Remove what there is; a process that needs it later makes it again."""
        with self._locked():
            for path in self.folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Common]:
    folder = tmp_path_factory.getbasetemp()
    common = Common((folder.parent if ONE_OF_SEVERAL else folder) / "common")
    yield common
    common.remove()  # a server has 40 MB


def migrate(alias: str) -> None:
    call_command("migrate", database=alias, verbosity=0, run_syncdb=True)


@pytest.fixture(scope="session")
def empty_file(common: Common, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database file with all tables, to be copied."""

    def make(path: Path) -> None:
        with django_db_blocker.unblock(), connected(path) as alias:
            migrate(alias)

    with common.made("db.sqlite3", make) as made:
        return Path(shutil.copy(made, tmp_path_factory.mktemp("empty")))


@pytest.fixture
def sqlite_file(empty_file: Path, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Return the alias of a fresh database file."""
    path = tmp_path / "db.sqlite3"
    shutil.copy(empty_file, path)
    with django_db_blocker.unblock(), connected(path) as alias:
        yield alias


@pytest.fixture(scope="session")
def server(common: Common, django_db_blocker: DjangoDbBlocker) -> Iterator[postgresql.Server]:
    """Return a PostgreSQL server of this process of the test run; the usual one of its databases has all tables."""
    postgresql.require_server()

    def make(files: Path) -> None:
        with django_db_blocker.unblock(), postgresql.running(*postgresql.FAST) as server:
            with reached(server.settings(), "migrating") as alias:
                migrate(alias)
            server.stop("fast")
            postgresql.copy_files(server.folder / "data", files)

    with ExitStack() as stack:
        with common.made("postgresql", make) as files:
            server = stack.enter_context(postgresql.running(*postgresql.FAST, files=files))
        yield server


@pytest.fixture(scope="session")
def migrated(server: postgresql.Server) -> dict[str, Any]:
    """Return the settings of a database with all tables on that server."""
    return server.settings()


@pytest.fixture
def postgresql_database(
    server: postgresql.Server, migrated: dict[str, Any], django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """Return the alias of an empty database of PostgreSQL."""
    with django_db_blocker.unblock(), reached(migrated) as alias, server.session.lent(connections[alias]):
        empty_tables(alias)
        yield alias


@pytest.fixture
def postgresql_by_default(db: None, postgresql_database: str) -> Iterator[None]:
    """Have the default database be an empty one of PostgreSQL, without a transaction around the test."""
    usual, usual_settings = connections[DEFAULT_DB_ALIAS], connections.settings[DEFAULT_DB_ALIAS]
    connections.settings[DEFAULT_DB_ALIAS] = connections.settings[postgresql_database]
    del connections[DEFAULT_DB_ALIAS]
    engine_for.cache_clear()
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS].close()
        connections[DEFAULT_DB_ALIAS], connections.settings[DEFAULT_DB_ALIAS] = usual, usual_settings
        engine_for.cache_clear()


def empty_tables(alias: str) -> None:
    """Empty the tables of a database on that server."""
    tables = [model._meta.db_table for model in apps.get_models() if model._meta.app_label in FILLED]
    with connections[alias].cursor() as cursor:
        # To delete what is in a small table costs a thirtieth of what it costs to truncate it, with all its indexes.
        looks = [
            f"SELECT '{name}', pg_relation_size('{name}') < {SMALL} WHERE EXISTS (SELECT FROM {name})"
            for name in tables
        ]
        cursor.execute(" UNION ALL ".join(looks))
        emptied = [f"DELETE FROM {name}" if small else f"TRUNCATE {name} CASCADE" for name, small in cursor.fetchall()]
        if emptied:
            cursor.execute("; ".join(["SET lock_timeout = '10s'", *emptied, "RESET lock_timeout"]))


@pytest.fixture
def alias(request: pytest.FixtureRequest) -> str:
    """Return the alias of an empty database of ENGINE."""
    return str(request.getfixturevalue({"sqlite": "sqlite_file", "postgresql": "postgresql_database"}[ENGINE]))


@pytest.fixture
def queue(alias: str) -> Queue:
    """Return an empty queue."""
    return Queue("sensors", using=alias)


def claimed(queue: Queue) -> ClaimedJob:
    """Claim the job that is due; fail if none is."""
    job = queue.claim()
    assert job is not None
    return job


@pytest.fixture
def restless() -> Iterator[None]:
    """Have threads interrupt one another as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Stop the clock of this process; the test moves it."""
    fake = FakeClock()
    monkeypatch.setattr(clock, "now", fake)
    for engine in ENGINES.values():
        monkeypatch.setattr(engine, "now", lambda self: fake() + clock.offset())
    return fake
