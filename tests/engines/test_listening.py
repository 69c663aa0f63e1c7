"""LISTEN and NOTIFY: what is committed on one host is worked at once on another one."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction

from django_vtqueue import Queue, control
from django_vtqueue.engines import Engine, Listener, engine_for
from django_vtqueue.engines.postgresql import listening as module
from django_vtqueue.engines.postgresql.listening import BETWEEN_NOTIFIES
from django_vtqueue.models import Job
from tests.conftest import reached
from tests.waiting import PATIENCE, wait_until

from .projects import ServerProject, enqueue

# Nothing but NOTIFY wakes one that listens with other doorbells than the publisher's.
NEVER_LOOKS = """
import django; django.setup()
from importlib import import_module
for name in ("worker.periodic", "queue.consumer"):
    import_module(f"django_vtqueue.{name}").HEARING_LOOK = 3600
"""
WORKER = f"{NEVER_LOOKS}\nfrom django.core.management import call_command\ncall_command('vtworker')"
CONSUMER = f"""{NEVER_LOOKS}
import threading
from django_vtqueue import Queue
Queue("raw").run(lambda job: None, stop=threading.Event())
"""
WITHOUT_BELL = f"""
from django.conf import settings
settings.TASKS["default"]["OPTIONS"]["doorbells"] = "/dev/null/bells"
{CONSUMER}
"""


class Ear:
    """What a listener of this process has rung."""

    def __init__(self, engine: Engine) -> None:
        self.rung: list[bool] = []
        self.listener = engine.listen(self.rung.append)

    def hears(self) -> bool:
        return self.listener.hears and bool(self.rung)


@pytest.fixture
def engine(postgresql_database: str) -> Engine:
    return engine_for(postgresql_database)


@pytest.fixture
def ear(engine: Engine) -> Iterator[Ear]:
    """Return the ear of another process, as it were: what this process rings reaches it by the server only."""
    ear = Ear(engine)
    wait_until(ear.hears)
    ear.rung.clear()
    yield ear
    ear.listener.close()


def listening(alias: str) -> list[int]:
    """Return the processes of the server that listen."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN vtqueue_%%' AND state = 'idle'")
        return [pid for (pid,) in cursor.fetchall()]


def publish(alias: str, count: int) -> None:
    for _ in range(count):
        Queue("raw", using=alias).publish({})


@pytest.mark.parametrize(
    ("program", "publish"),
    [(WORKER, enqueue), (CONSUMER, publish), (WITHOUT_BELL, publish)],
    ids=["a worker", "Queue.run", "Queue.run without a bell"],
)
def test_a_publisher_on_another_host_wakes(
    tmp_path: Path,
    postgresql_database: str,
    migrated: dict[str, Any],
    program: str,
    publish: Callable[[str, int], None],
) -> None:
    """One that would not look by itself gets a job at once, and each of a burst, most of which ring no more.

    Where ``Queue.run`` can have no bell, nothing wakes it, so it looks by itself, though it hears.
    """
    project = ServerProject(tmp_path, migrated)
    jobs = Job.objects.using(postgresql_database).filter(finished_at=None)
    with project.started("-c", program) as process:
        wait_until(lambda: listening(postgresql_database) or process.ended())
        for count in (1, 30):
            publish(postgresql_database, count)
            wait_until(lambda: not jobs.exists() or process.ended())
            assert not process.ended(), process.log


def test_a_process_rings_at_intervals(engine: Engine) -> None:
    """However often a process rings, it sends a NOTIFY some times only."""
    with notified(engine) as count:
        began = time.monotonic()
        for _ in range(100):
            engine.ring()
        last = time.monotonic()
        assert 1 <= count() <= (last - began) / BETWEEN_NOTIFIES + 1


def test_each_notification_is_followed_by_another_look(engine: Engine, ear: Ear) -> None:
    """What is committed while a process does not ring again is looked for when it may."""
    engine.ring()
    wait_until(lambda: len(ear.rung) >= 2)
    assert not any(ear.rung)


@contextmanager
def notified(engine: Engine) -> Iterator[Callable[[], int]]:
    """Yield a function that returns how many notifications were sent."""
    connection = connections[engine.alias].copy()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 'LISTEN vtqueue_' || 'vtqueue_job'::regclass::oid")
            cursor.execute(cursor.fetchone()[0])
            yield lambda: len(list(connection.connection.notifies(timeout=0.5)))
    finally:
        connection.close()


def test_no_transaction_of_a_publisher_holds_the_lock_of_notify(engine: Engine, ear: Ear) -> None:
    """What is enqueued in a transaction rings after its commit, in a transaction of its own; a rollback rings not."""
    with notified(engine) as count:
        with transaction.atomic(engine.alias):
            Queue("q", using=engine.alias).publish({})
            transaction.set_rollback(True, engine.alias)
        with transaction.atomic(engine.alias):
            Queue("q", using=engine.alias).publish({})
            engine.ring(workers=True)
            with connections[engine.alias].cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND mode = 'AccessExclusiveLock'"
                )
                assert cursor.fetchone() == (0,)
        assert count() == 1


def test_a_request_to_a_worker_is_heard(engine: Engine, ear: Ear) -> None:
    """A worker on any host reads at once what it is asked to do."""
    control.quiet_workers([], using=engine.alias)
    wait_until(lambda: True in ear.rung)


def test_a_lost_connection_is_made_anew(engine: Engine, ear: Ear, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once that it is lost, however often it cannot be made, and once that it is back; then what was missed
    is looked for.
    """
    caplog.set_level(logging.INFO, "django_vtqueue")
    with connections[engine.alias].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", listening(engine.alias))
    wait_until(lambda: "LISTEN is back" in caplog.text and ear.hears())
    assert caplog.text.count("LISTEN has ended") == 1
    ear.rung.clear()
    engine.ring()
    wait_until(lambda: ear.rung)


def test_a_server_that_ends_idle_sessions(
    migrated: dict[str, Any], postgresql_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who listens is idle by its nature, and its session stays."""
    options = {**migrated["OPTIONS"], "options": "-c idle_session_timeout=100"}
    with reached({**migrated, "OPTIONS": options}, "ours") as alias:
        ear = Ear(engine_for(alias))
        wait_until(ear.hears)
        time.sleep(0.5)
        ear.listener.close()
    assert (ear.rung, caplog.messages) == ([False], [])


def test_a_closed_listener_is_gone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves neither a thread nor a connection, whether it is connected by then or not."""
    monkeypatch.setattr(module, "LEAVES", PATIENCE)
    for connected in (True, False):
        before = set(threading.enumerate())
        ear = Ear(engine)
        [thread] = set(threading.enumerate()) - before
        if connected:
            wait_until(ear.hears)
        ear.listener.close()
        assert (thread.is_alive(), ear.listener.hears) == (False, False)
    wait_until(lambda: not listening(engine.alias))


def test_where_nothing_can_be_heard(sqlite_file: str) -> None:
    """On SQLite ringing is for the doorbells alone."""
    engine = engine_for(sqlite_file)
    engine.ring(workers=True)
    assert type(engine.listen(lambda workers: None)) is Listener
