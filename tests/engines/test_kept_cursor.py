"""The cursor that a connection to PostgreSQL keeps for the queue: who watches or guards connections still does."""

import asyncio
import select
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.test.utils import CaptureQueriesContext

from django_vtqueue.engines import Engine, Trouble, new_engine
from django_vtqueue.execution.connections import close_leftovers


@pytest.fixture
def engine(postgresql_database: str) -> Engine:
    return new_engine(postgresql_database, traced=False)


def pid(engine: Engine) -> int:
    """Return the pid of the server's process that the engine speaks to."""
    return int(engine._value("SELECT pg_backend_pid()", {}))  # type: ignore[attr-defined]


def cursors(alias: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of the cursors that are made from now on."""
    made: list[Any] = []
    usual = connections[alias].create_cursor
    monkeypatch.setattr(connections[alias], "create_cursor", lambda name=None: made.append(usual(name)) or made[-1])
    return made


def test_one_is_made(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many statements there are."""
    connections[engine.alias].close()
    made = cursors(engine.alias, monkeypatch)
    for _ in range(3):
        pid(engine)
    assert len(made) == 1


def test_another_connection_has_another_one(engine: Engine) -> None:
    """After Django has closed its connection, or the server has ended the session."""
    first = pid(engine)
    connections[engine.alias].close()
    second = pid(engine)
    assert second != first
    with pytest.raises(OperationalError) as ended:
        engine._value("SELECT pg_terminate_backend(pg_backend_pid())", {})  # type: ignore[attr-defined]
    assert engine.trouble(ended.value) is Trouble.GONE
    with pytest.raises((OperationalError, InterfaceError)) as gone:
        pid(engine)
    assert engine.trouble(gone.value) is Trouble.GONE
    connections[engine.alias].close_if_unusable_or_obsolete()
    assert pid(engine) not in (first, second)


def test_a_driver_connection_that_was_closed_behind_django(engine: Engine) -> None:
    """It is an error of Django's, which says that the connection is gone, with a new cursor as with the old one."""
    pid(engine)
    connections[engine.alias].connection.close()
    with pytest.raises((OperationalError, InterfaceError)) as gone:
        pid(engine)
    assert engine.trouble(gone.value) is Trouble.GONE
    connections[engine.alias].close()
    connections[engine.alias].ensure_connection()
    connections[engine.alias].connection.close()
    with pytest.raises((OperationalError, InterfaceError)) as gone:
        pid(engine)
    assert engine.trouble(gone.value) is Trouble.GONE
    connections[engine.alias].close()


def test_health_checks_are_made(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With CONN_HEALTH_CHECKS the first statement after a request finds out that the session has ended."""
    monkeypatch.setitem(connections[engine.alias].settings_dict, "CONN_HEALTH_CHECKS", True)
    connections[engine.alias].close()
    before = pid(engine)
    with connections[engine.alias].copy().temporary_connection() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [before])
    connections[engine.alias].close_if_unusable_or_obsolete()  # as at the end of a request
    assert pid(engine) != before


def test_who_watches_sees_each_statement(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django's log of queries, execute wrappers, and what has taken the place of ``cursor``."""
    connection, seen = connections[engine.alias], []
    pid(engine)

    def wrapper(execute: Any, sql: str, *arguments: Any) -> Any:
        seen.append(sql)
        return execute(sql, *arguments)

    with CaptureQueriesContext(connection) as captured, connection.execute_wrapper(wrapper):
        pid(engine)
        pid(engine)
    assert len(captured) == len(seen) == 2
    usual = connection.cursor
    monkeypatch.setattr(connection, "cursor", lambda: seen.append("cursor") or usual())
    pid(engine)
    pid(engine)
    assert seen[2:] == ["cursor", "cursor"]


def test_async_code_is_told(engine: Engine) -> None:
    """That it must not wait for a database, as by any cursor of Django's."""
    pid(engine)

    async def ask() -> None:
        pid(engine)

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(ask())


def test_another_thread_is_told(engine: Engine) -> None:
    """That a connection is of the thread that has made it, also when it has been handed to that other thread."""
    pid(engine)
    connection = connections[engine.alias]

    def ask() -> None:
        connections[engine.alias] = connection
        pid(engine)

    with ThreadPoolExecutor() as pool, pytest.raises(DatabaseError, match="created in a thread"):
        pool.submit(ask).result()


@pytest.mark.parametrize("left", [lambda raw: raw.pgconn.send_query(b"SELECT 1"), lambda raw: raw.execute("BEGIN")])
def test_what_a_job_has_left_on_a_connection_is_no_matter_of_the_next_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, left: Callable[[Any], object]
) -> None:
    """A statement out of which TaskTimeout has come, or a transaction that Django knows nothing of."""
    monkeypatch.setitem(connections[engine.alias].settings_dict, "CONN_MAX_AGE", None)
    connections[engine.alias].close()
    first = pid(engine)
    close_leftovers(inline=False)
    assert pid(engine) == first
    left(connections[engine.alias].connection)
    close_leftovers(inline=False)
    assert pid(engine) != first


def test_a_session_that_the_server_has_ended_meanwhile_fails_no_job(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is kept open is made anew before the next job, if the server was restarted, say."""
    monkeypatch.setitem(connections[engine.alias].settings_dict, "CONN_MAX_AGE", None)
    connections[engine.alias].close()
    first = pid(engine)
    with closing(connections[engine.alias].copy()) as other, other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [first])
    close_leftovers(inline=False)
    assert pid(engine) != first
    connections[engine.alias].connection.close()
    assert engine.outdated(connections[engine.alias])


def test_a_notification_that_waits_ends_no_session(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may listen on a connection that it keeps: neither the next job nor a ``Lease`` closes that."""
    monkeypatch.setitem(connections[engine.alias].settings_dict, "CONN_MAX_AGE", None)
    connections[engine.alias].close()
    first, raw = pid(engine), connections[engine.alias].connection
    raw.execute("LISTEN mine")
    with closing(connections[engine.alias].copy()) as other, other.cursor() as cursor:
        cursor.execute("NOTIFY mine, 'x'")
    select.select([raw], [], [], 60)
    close_leftovers(inline=False)
    assert pid(engine) == first
    assert raw.execute("SELECT pg_listening_channels()").fetchall() == [("mine",)]
