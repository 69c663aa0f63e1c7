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
def test_it_says_once_how_the_tables_of_its_database_are_made(
    queue: Queue, alias: str, caplog: pytest.LogCaptureFixture, use: Callable[..., object]
) -> None:
    """The error of a publish says so already."""
    connections[alias].cursor().execute("DROP TABLE vtqueue_job")
    with pytest.raises(OperationalError) as error:
        use(queue, *["x"] * (use is Queue.publish))
    Outage(new_engine(alias, traced=False)).note_failure(error.value)
    command = f"python manage.py migrate vtqueue --database {alias}"
    assert caplog.text.count("manage.py migrate vtqueue") == caplog.text.count(command) == 1
