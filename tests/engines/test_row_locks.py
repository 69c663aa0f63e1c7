"""Locks of rows on PostgreSQL: what passes over them, and what waits for them, and for how long."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_vtqueue.conf import parse
from django_vtqueue.core.clock import SECOND
from django_vtqueue.core.gaps import NOTICEABLE, GapWatch
from django_vtqueue.engines import Engine, Trouble, new_engine
from django_vtqueue.engines.postgresql import connection
from django_vtqueue.queue.limits import Limits
from tests.conftest import reached
from tests.fake_clock import at

from .test_postgresql import claim, publish

PATIENCE = 0.2  # seconds
ROW = "SELECT 1 FROM vtqueue_job WHERE id = %s FOR UPDATE"


@pytest.fixture
def engine(postgresql_database: str) -> Engine:
    """Return an engine as a control loop has it."""
    engine = new_engine(postgresql_database, traced=False)
    engine.patience = PATIENCE
    return engine


@contextmanager
def locked(engine: Engine, statement: str, *values: Any) -> Iterator[BaseDatabaseWrapper]:
    """Hold what a statement locks, by another connection."""
    other = connections[engine.alias].copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(statement, values)
        yield other
        other.rollback()
    finally:
        other.close()


def test_a_renewal_passes_over_locked_rows(engine: Engine) -> None:
    """It waits for none, renews the others, and tells what is locked from what is lost."""
    publish(engine, 3)
    free, held, lost = claim(engine, Limits(parse({})), "w", 3)
    lost.claims += 1
    with locked(engine, ROW, held.id), engine.transaction():
        assert engine.renew_unlocked([free, held, lost], at(10)) == ({lost.key}, {held.key})
    with engine.transaction():
        assert engine.renew_unlocked([held], at(20)) == (set(), set())
    leases = [found.visible_at for job in (free, held) if (found := engine.find(job.id))]
    assert leases == [at(70), at(80)]


def test_a_lock_is_waited_for_in_vain(engine: Engine) -> None:
    """A transaction of a control loop waits for as long as it is patient; the error is no outage of the server."""
    publish(engine, 1)
    [job] = claim(engine, Limits(parse({})), "w", 1)
    with locked(engine, ROW, job.id):
        began = time.monotonic()
        with pytest.raises(OperationalError) as caught, engine.transaction():
            engine.renew([job], at(10))
        assert time.monotonic() - began >= PATIENCE
        assert engine.waited_in_vain(caught.value)
        assert engine.trouble(caught.value) is Trouble.BUSY
        assert not engine.table_is_locked()
    assert not engine.waited_in_vain(ValueError())


@pytest.mark.parametrize("patience", [None, PATIENCE])
def test_a_transaction_says_once_how_long_it_waits(engine: Engine, patience: float | None) -> None:
    """There is one statement for this before those of the queue; it holds for the transaction only."""
    engine.patience = patience
    statements: list[str] = []

    def note(execute: Any, sql: str, *given: Any) -> Any:
        statements.append(sql)
        return execute(sql, *given)

    def lock_timeout() -> Any:
        with connections[engine.alias].cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            return cursor.fetchone()[0]

    with connections[engine.alias].execute_wrapper(note), engine.transaction():
        assert lock_timeout() == ("200ms" if patience else "0")
    assert len(statements) == 2
    assert lock_timeout() == "0"


def test_a_lock_of_the_whole_table_is_told_apart(engine: Engine) -> None:
    """While it lasts no holder can renew, so it is an outage, and a claim waits for its end before all else."""
    with locked(engine, "LOCK TABLE vtqueue_job IN EXCLUSIVE MODE"):
        assert engine.table_is_locked()
        with pytest.raises(OperationalError), engine.transaction():
            engine.await_table()
    assert not engine.table_is_locked()
    with engine.transaction():
        engine.await_table()


def test_the_limits_that_others_have_locked(engine: Engine) -> None:
    """A claim that does not wait learns which they are, and has locked the others."""
    other = new_engine(engine.alias, traced=False)
    with locked(engine, "SELECT pg_advisory_xact_lock(hashtextextended('a', 7190003))"), engine.transaction():
        assert engine.locked_queues(["a", "b"], ["queue:a"]) == {"a"}
    with locked(engine, "SELECT pg_advisory_xact_lock(hashtextextended('queue:a', 7190002))"), other.transaction():
        assert other.locked_queues(["a", "b"], ["queue:a"]) == {"queue:a"}


def test_a_wait_in_vain_is_no_gap() -> None:
    """Whoever claims does not take the time for one in which no holder could renew."""
    gaps = GapWatch()
    gaps.look(time.time_ns() // 1000)
    time.sleep(PATIENCE)
    gaps.locked_in_vain(PATIENCE)
    assert gaps.look(time.time_ns() // 1000) < NOTICEABLE


def test_a_server_that_gives_no_answer_is_seldom_asked_for_its_clock(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control loop needs the instant dozens of times a turn, and each try to connect takes seconds."""
    engine.now()
    known = connection._measured[engine.alias]
    monkeypatch.setitem(connection._measured, engine.alias, known._replace(at=known.at - 2 * connection.LOOK_OF_WORKER))
    with TemporaryDirectory(prefix="vtq-") as folder, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(Path(folder) / ".s.PGSQL.5432"))
        silent.listen()
        silent.settimeout(0.1)
        dead = {**connections[engine.alias].settings_dict, "HOST": folder, "OPTIONS": {"connect_timeout": 2}}
        with reached(dead, "silent"):
            cut_off = new_engine("silent", traced=False)
            monkeypatch.setitem(connection._measured, "silent", connection._measured[engine.alias])
            instants = [cut_off.now() for _ in range(3)]
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()
    assert instants[-1] - instants[0] < SECOND
