"""When a worker tries again what the database has refused."""

import time
from collections.abc import Callable
from math import inf

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
@pytest.mark.parametrize(
    ("done", "command"),
    [
        ("DELETE FROM django_migrations", "python manage.py migrate vtqueue --database file"),
        (
            "INSERT INTO django_migrations (app, name, applied) VALUES ('vtqueue', '9999_future', '2030-01-01')",
            "python -m pip install --upgrade django-vtqueue",
        ),
    ],
    ids=["missing", "ahead"],
)
def test_it_says_once_what_is_to_be_done_about_the_tables_of_its_database(
    sqlite_file: str, caplog: pytest.LogCaptureFixture, done: str, command: str, use: Callable[..., object]
) -> None:
    """The error of a publish says so already."""
    for statement in ("DROP TABLE vtqueue_job", done):
        connections[sqlite_file].cursor().execute(statement)
    with pytest.raises(OperationalError) as error:
        use(Queue("q", using=sqlite_file), *["x"] * (use is Queue.publish))
    outage = Outage(new_engine(sqlite_file, traced=False))
    for _ in range(2):
        outage.note_failure(error.value)
    assert caplog.text.count("run: ") == caplog.text.count(command) == 1
