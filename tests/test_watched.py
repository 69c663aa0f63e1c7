"""Statements that nobody watches go around Django's cursor: all ways in which somebody might watch, and its checks."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import wraps
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connections, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from django_vtqueue import Queue
from django_vtqueue.engines.sqlite_watched import watched


@pytest.fixture
def alias(sqlite_file: str) -> str:
    return sqlite_file


@pytest.fixture
def connection(alias: str) -> DatabaseWrapper:
    connection = connections[alias]
    connection.ensure_connection()
    assert isinstance(connection, DatabaseWrapper)
    assert not watched(connection)
    return connection


@pytest.fixture
def publish(alias: str) -> Callable[[], object]:
    return lambda: Queue("sensors", using=alias).publish("x")


def stored(alias: str) -> int:
    return len(Queue("sensors", using=alias))


class Seen(list[str]):
    """The statements that somebody saw."""

    @property
    def inserts(self) -> int:
        return sum(" INTO vtqueue_job " in sql for sql in self)

    def patch(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Return what error trackers put in the place of a method of Django's, with the names of that."""

        @wraps(execute)
        def patched(cursor: Any, sql: str, params: Any = None) -> Any:
            self.append(sql)
            return execute(cursor, sql, params)

        return patched


def test_djangos_own_log_sees_each_statement(connection: DatabaseWrapper, publish: Callable[[], object]) -> None:
    """As in assertNumQueries, and in the debug toolbar."""
    with CaptureQueriesContext(connection) as captured:
        publish()
    assert Seen(query["sql"] for query in captured).inserts == 1
    assert not watched(connection)


def test_with_debug_everything_is_logged(connection: DatabaseWrapper, settings: Settings) -> None:
    """``django.db.backends`` writes each statement then."""
    settings.DEBUG = True
    assert watched(connection)


def test_an_execute_wrapper_sees_each_statement(connection: DatabaseWrapper, publish: Callable[[], object]) -> None:
    """Django's own way to instrument a connection."""
    seen = Seen()

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper):
        publish()
    publish()
    assert seen.inserts == 1


def test_a_patched_cursor_sees_each_statement(
    connection: DatabaseWrapper, publish: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Error trackers patch the class of Django's cursors, and give their function the name of what it replaces."""
    seen = Seen()
    with monkeypatch.context() as patch:
        patch.setattr(CursorWrapper, "execute", seen.patch(CursorWrapper.execute))
        publish()
    publish()
    assert seen.inserts == 1


def test_a_patched_connection_is_watched(connection: DatabaseWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Profilers put their own ``cursor`` on one connection, Django's tests one that refuses."""
    with monkeypatch.context() as patch:
        patch.setattr(connection, "cursor", connection.cursor)
        assert watched(connection)
    assert not watched(connection)


def test_a_backend_of_the_projects_own_is_watched(alias: str, connection: DatabaseWrapper) -> None:
    """Metrics libraries bring a database backend whose cursors count."""

    class Counting(DatabaseWrapper):
        def create_cursor(self, name: str | None = None) -> Any:
            return super().create_cursor(name)

    counting = Counting(connection.settings_dict, alias)
    counting.ensure_connection()
    assert watched(counting)
    counting.close()


def test_a_wrapped_driver_is_watched(connection: DatabaseWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracers wrap what ``sqlite3.connect`` returns."""

    class Traced(sqlite3.Connection):
        pass

    with closing(Traced(":memory:")) as traced:
        monkeypatch.setattr(connection, "connection", traced)
        assert watched(connection)
        monkeypatch.undo()


# -- what Django's cursor checks is checked on the shorter way, too ---------------------------------------------------


@pytest.fixture(params=[False, True], ids=["unwatched", "watched"])
def either(request: pytest.FixtureRequest, connection: DatabaseWrapper) -> Iterator[None]:
    """Have a test run on both ways."""
    connection.force_debug_cursor = request.param
    yield
    connection.force_debug_cursor = False


@pytest.mark.usefixtures("either")
def test_not_in_a_broken_transaction(connection: DatabaseWrapper, publish: Callable[[], object], alias: str) -> None:
    """After an error inside ``atomic`` nothing is written: it would be rolled back, and seem to be stored."""
    with transaction.atomic(using=alias):
        connection.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            publish()
    assert stored(alias) == 0


@pytest.mark.usefixtures("either")
def test_not_in_a_running_event_loop(publish: Callable[[], object], alias: str) -> None:
    """An async view is told so, instead of blocking all others; ``apublish`` is for it."""

    async def view() -> None:
        publish()

    with pytest.raises(SynchronousOnlyOperation):
        async_to_sync(view)()
    assert stored(alias) == 0


@pytest.mark.usefixtures("either")
def test_not_in_a_thread_that_does_not_own_the_connection(
    connection: DatabaseWrapper, publish: Callable[[], object], alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads in one connection would be in each other's transactions."""
    with monkeypatch.context() as patch:
        patch.setattr(connection, "_thread_ident", 1)
        with pytest.raises(DatabaseError, match="thread"):
            publish()
    assert stored(alias) == 0
