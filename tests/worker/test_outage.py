"""When a worker tries again what the database has refused."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path

import pytest
from django.db import OperationalError, connections

from django_vtqueue import Queue
from django_vtqueue.core.clock import SECOND
from django_vtqueue.core.grace import REST, REST_DIVISOR
from django_vtqueue.engines import new_engine
from django_vtqueue.engines.sqlite.file import FileExchanged
from django_vtqueue.worker.outage import Outage


@pytest.mark.parametrize("lease", [3, 15, 600, inf])
@pytest.mark.parametrize("passes_in", [0.05, inf])
def test_a_holder_comes_before_others(sqlite_file: str, lease: float, passes_in: float) -> None:
    """However long an outage was: leases that have ended are renewed before a claim may take them, which leaves time.

    A file that is there again is opened as soon as it may be.
    """
    outage = Outage(new_engine(sqlite_file, traced=False))
    for _ in range(20):
        outage.note_failure(FileExchanged("db.sqlite3", passes_in), lease=lease)
    rest = min(lease / REST_DIVISOR, REST / SECOND)
    assert outage.retry_at - time.monotonic() <= min(rest / 2, passes_in)


@pytest.mark.parametrize("use", [Queue.publish, Queue.claim], ids=["publish", "claim"])
def test_it_says_once_what_is_to_be_done_about_the_tables_of_its_database(
    sqlite_file: str, caplog: pytest.LogCaptureFixture, use: Callable[..., object]
) -> None:
    """The error of a publish says so already."""
    for statement in ("DROP TABLE vtqueue_job", "DELETE FROM django_migrations"):
        connections[sqlite_file].cursor().execute(statement)
    with pytest.raises(OperationalError) as error:
        use(Queue("q", using=sqlite_file), *["x"] * (use is Queue.publish))
    outage = Outage(new_engine(sqlite_file, traced=False))
    for _ in range(2):
        outage.note_failure(error.value)
    command = f"python manage.py migrate vtqueue --database {sqlite_file}"
    assert caplog.text.count("run: ") == caplog.text.count(command) == 1


def test_of_tables_that_are_newer_no_command_of_a_publish_is_contradicted(
    sqlite_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the code is too old ``migrate`` does nothing."""
    for statement in (
        "DROP TABLE vtqueue_job",
        "INSERT INTO django_migrations (app, name, applied) VALUES ('vtqueue', '9999_future', '2030-01-01')",
    ):
        connections[sqlite_file].cursor().execute(statement)
    with pytest.raises(OperationalError) as error:
        Queue("q", using=sqlite_file).publish("x")
    Outage(new_engine(sqlite_file, traced=False)).note_failure(error.value)
    assert "run: python -m pip install --upgrade django-vtqueue" in caplog.text
    assert "migrate vtqueue" not in caplog.text


def test_the_database_is_not_asked_what_is_wrong(
    sqlite_file: str, django_assert_num_queries: Callable[..., AbstractContextManager[object]]
) -> None:
    """A worker that waited for the answer, behind a lock of ``django_migrations`` say, would not heed its signals."""
    connections[sqlite_file].cursor().execute("DROP TABLE vtqueue_job")
    with pytest.raises(OperationalError) as error:
        Queue("q", using=sqlite_file).claim()
    with django_assert_num_queries(0, connection=connections[sqlite_file]):
        Outage(new_engine(sqlite_file, traced=False)).note_failure(error.value)


def test_a_missing_folder_is_no_full_disk(
    sqlite_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be opened is said to be that, with what to look at: neither space nor a mode of files helps."""
    engine = new_engine(sqlite_file, traced=False)
    engine.disconnect()
    monkeypatch.setitem(connections[sqlite_file].settings_dict, "NAME", str(tmp_path / "missing" / "db.sqlite3"))
    with pytest.raises(OperationalError) as error:
        engine.queue_names()
    Outage(engine).note_failure(error.value)
    assert "the database cannot be opened (unable to open database file); waiting. Its folder must be" in caplog.text


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # Python 3.13 says so
def test_a_connection_that_could_not_be_set_up_keeps_no_file_open(
    sqlite_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is tried: Django has opened the file before it gives the commands that fail."""
    connection = connections[sqlite_file]
    connection.close()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "init_command", "SELECT * FROM missing")
    outage, opened = Outage(new_engine(sqlite_file, traced=False)), set()
    for _ in range(10):
        try:
            connection.ensure_connection()
        except OperationalError as error:
            outage.note_failure(error)
        opened.add(len(os.listdir("/proc/self/fd")))
    assert len(opened) == 1
