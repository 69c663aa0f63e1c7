"""A lease whose row has gone back: the database was restored, or a standby lacks the last commits."""

import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connections
from django.db.models import F

from django_vtqueue import Queue
from django_vtqueue.core import states
from django_vtqueue.models import Job
from django_vtqueue.patterns.reserved import seen, servers
from django_vtqueue.queue.proof_of_death import declare_dead

from ..waiting import PATIENCE
from .conftest import TTL, BootClock


@pytest.fixture(params=["sqlite_file", "postgresql_database"], ids=["sqlite", "postgresql"])
def alias(request: pytest.FixtureRequest) -> str:
    """Return the alias of an empty database, once for each engine."""
    return str(request.getfixturevalue(request.param))


def go_back(alias: str) -> None:
    """Have the row be as it was before it was acquired, as in a backup of that time."""
    free = {"claims": F("claims") - 1, "state": states.READY, "worker_id": "", "lease_until": None}
    Job.objects.using(alias).update(**free)


def test_a_row_that_has_gone_back(leases: Any, boot: BootClock, alias: str) -> None:
    """An instance that has seen the greater claim number takes it when the holder of that does not believe any more."""
    holder, waiting = leases(), leases(ttl=1)
    for _ in range(2):
        holder.release()
        holder.acquire()
    assert not waiting.acquire(blocking=False)
    boot.pass_by(1)
    go_back(alias)
    for _ in range(3):
        assert not waiting.acquire(blocking=False)
        boot.pass_by(TTL / 3 - 0.01)
    assert not holder.held
    boot.pass_by(0.1)
    assert waiting.acquire(blocking=False)
    assert waiting.token == 2


def test_a_row_that_has_gone_back_and_was_taken(leases: Any, boot: BootClock, alias: str) -> None:
    """That holds also if an instance that did not know of it has taken it meanwhile, and is dead."""
    holder, waiting = leases(), leases()
    holder.acquire()
    assert not waiting.acquire(blocking=False)
    go_back(alias)
    assert not waiting.acquire(blocking=False)
    with mock.patch.dict(seen, clear=True):  # as in another process
        other = leases()
        assert other.acquire(blocking=False)
    assert not waiting.acquire(blocking=False)
    assert other._holder._bell
    declare_dead(Path(other._holder._bell.path))
    assert not waiting.acquire(blocking=False)
    boot.pass_by(TTL + 0.01)
    assert waiting.acquire(blocking=False)
    assert not holder.held


@pytest.mark.usefixtures("watchful")
def test_a_holder_notices_that_its_row_has_gone_back(leases: Any, boot: BootClock, alias: str) -> None:
    """The thread that renews looks at the row when another connection has written, and loses the lease."""
    lost = threading.Event()
    lease = leases(renewing=True, on_lost=lost.set)
    lease.acquire()
    token = lease.token
    Queue("x", using=alias).publish(1)
    assert not lost.wait(0.1)
    go_back(alias)
    assert lost.wait(PATIENCE)
    assert not lease.held
    assert lease.acquire(blocking=False)
    assert lease.token == token


def end_session(alias: str) -> None:
    """Have the server end the session of this thread's connection, as it does with one that is idle for long."""
    with closing(connections[alias].copy()) as other, other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [connections[alias].connection.info.backend_pid])


@pytest.mark.parametrize("alias", ["postgresql_database"], indirect=True)
def test_a_session_that_the_server_has_ended(leases: Any, alias: str) -> None:
    """It is no other database: a lease that is free is taken at once, also by one that tries only now and then."""
    lease = leases()
    for _ in range(3):
        assert lease.acquire(blocking=False)
        lease.release()
        end_session(alias)


@pytest.mark.parametrize("alias", ["postgresql_database"], indirect=True)
@pytest.mark.parametrize("another", [False, True])
def test_a_holder_elsewhere_and_ended_sessions(leases: Any, boot: BootClock, alias: str, another: bool) -> None:
    """The time for which a row was seen unchanged goes on with another session, but not at another server."""
    holder, waiting = leases(), leases()
    holder.acquire()
    Job.objects.using(alias).update(worker_id="elsewhere:1:01234567")  # whose death nothing proves here
    assert not waiting.acquire(blocking=False)
    boot.pass_by(TTL / 2)
    end_session(alias)
    if another:
        servers[alias, "lease:nightly"] = "that of a standby"
    assert not waiting.acquire(blocking=False)
    boot.pass_by(TTL / 2 + 0.01)
    assert waiting.acquire(blocking=False) is not another
    boot.pass_by(TTL)
    assert waiting.acquire(blocking=False)
