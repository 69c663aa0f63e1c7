"""A database file of a test's own: it has real transactions, locks and threads, which the one in memory has not."""

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections
from hypothesis import settings
from pytest_django import DjangoDbBlocker

from django_vtqueue import ClaimedJob, Queue
from django_vtqueue.core import clock
from django_vtqueue.engines import ENGINES

from .fake_clock import FakeClock

ALIAS = "file"
SLOW_FIRST = ("faults", "browser", "processes")  # folders: a long file that begins last is waited for alone

# The same examples in every run, however slow the machine is.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")

# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders whose files take longest."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in SLOW_FIRST)


@contextmanager
def connected(path: Path) -> Iterator[str]:
    """Give this process a connection to a database file; yield its alias."""
    connections.settings[ALIAS] = {**connections.settings["default"], "NAME": str(path)}
    try:
        yield ALIAS
    finally:
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.settings[ALIAS]


@pytest.fixture(scope="session")
def empty_file(django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database file with all tables, to be copied."""
    path = tmp_path_factory.mktemp("empty") / "db.sqlite3"
    with django_db_blocker.unblock(), connected(path) as alias:
        call_command("migrate", database=alias, verbosity=0, run_syncdb=True)
    return path


@pytest.fixture
def sqlite_file(empty_file: Path, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Return the alias of a fresh database file."""
    path = tmp_path / "db.sqlite3"
    shutil.copy(empty_file, path)
    with django_db_blocker.unblock(), connected(path) as alias:
        yield alias


@pytest.fixture
def alias(sqlite_file: str) -> str:
    """Return the alias that a test uses."""
    return sqlite_file


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
        monkeypatch.setattr(engine, "now", lambda self: fake())
    return fake
