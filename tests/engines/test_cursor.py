"""Statements that nothing watches go around Django's cursor: all ways to watch them, and the checks of that cursor."""

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial, wraps
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from django_vtqueue import Queue
from django_vtqueue.engines.sqlite.cursor import watched


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
    """The statements that an observer has seen."""

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

    def wrapper(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """See each statement as one of Django's execute wrappers."""
        self.append(sql)
        return execute(sql, params, many, context)


def test_what_uses_no_option_gives_the_driver_no_none(connection: DatabaseWrapper, alias: str) -> None:
    """Nor a bool: for each the driver looks for an adapter, which takes a tenth of an INSERT (measured)."""
    adapted = set()

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        given = [(name, params[name]) for name in re.findall(r"%\((\w+)\)s", sql)]
        adapted.update(name for name, value in given if value is None or isinstance(value, bool))
        return execute(sql, params, many, context)

    queue = Queue("sensors", using=alias)
    with connection.execute_wrapper(note):
        queue.publish("x")
        job = queue.claim()
    assert job
    assert adapted == set()


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
    with connection.execute_wrapper(seen.wrapper):
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


def test_a_patch_that_comes_late_sees_each_statement(
    connection: DatabaseWrapper, publish: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tracers may be switched on at any time; their proxies have the hash of what they wrap, and are equal to it."""
    seen, usual = Seen(), CursorWrapper.execute

    class Proxy:
        def __hash__(self) -> int:
            return hash(usual)

        def __eq__(self, other: object) -> bool:
            return other == usual

        def __getattr__(self, name: str) -> Any:
            return getattr(usual, name)

        def __get__(self, cursor: Any, owner: Any) -> Any:
            return partial(seen.patch(usual), cursor) if cursor else self

    publish()
    monkeypatch.setattr(CursorWrapper, "execute", Proxy())
    publish()
    assert seen.inserts == 1


def test_a_mock_sees_each_statement(connection: DatabaseWrapper, publish: Callable[[], object]) -> None:
    """A function that a mock has made belongs to no module at all."""
    with mock.patch.object(CursorWrapper, "execute", autospec=True, side_effect=CursorWrapper.execute) as execute:
        publish()
    assert Seen(call.args[1] for call in execute.call_args_list).inserts == 1


def test_an_error_of_who_watches_stores_nothing(
    connection: DatabaseWrapper, publish: Callable[[], object], alias: str
) -> None:
    """Else the caller, who is told of an error and tries again, would have the job twice."""

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        execute(sql, params, many, context)
        raise failure

    for failure in (RuntimeError("the log is full"), sqlite_busy()):
        with connection.execute_wrapper(wrapper), pytest.raises(type(failure), match=str(failure)):
            publish()
    assert stored(alias) == 0


def sqlite_busy() -> OperationalError:
    """Return the error of another database, in which an observer may write its log."""
    cause = sqlite3.OperationalError("another database is locked")
    cause.sqlite_errorcode = sqlite3.SQLITE_BUSY
    error = OperationalError(*cause.args)
    error.__cause__ = cause
    return error


def test_while_the_database_is_locked_nothing_is_seen(
    connection: DatabaseWrapper, publish: Callable[[], object], alias: str
) -> None:
    """Waiting for the lock is no failed statement; an error tracker would report it."""
    path = connection.settings_dict["NAME"]
    seen = Seen()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        later = threading.Timer(0.1, other.execute, ["ROLLBACK"])
        later.start()
        with connection.execute_wrapper(seen.wrapper):
            publish()
        later.join()
    assert seen.inserts == 1


def test_a_patched_connection_is_watched(connection: DatabaseWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Profilers put their own ``cursor`` on one connection, Django's tests one that refuses."""
    with monkeypatch.context() as patch:
        patch.setattr(connection, "cursor", connection.cursor)
        assert watched(connection)
    assert not watched(connection)


def test_a_backend_of_the_projects_own_is_watched(alias: str, connection: DatabaseWrapper) -> None:
    """Metrics libraries bring a database backend whose cursors count, whatever method makes them."""

    class Counting(DatabaseWrapper):
        pass

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


def test_a_statement_that_comes_too_early_is_warned_of(
    connection: DatabaseWrapper, publish: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django warns of what is written while apps are set up: it may go to the wrong database."""
    monkeypatch.setattr(apps, "ready", False)
    with pytest.warns(RuntimeWarning, match="app initialization"):
        publish()


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


@pytest.mark.usefixtures("either")
def test_not_in_a_transaction_that_django_does_not_know(
    connection: DatabaseWrapper, publish: Callable[[], object], alias: str
) -> None:
    """A BEGIN by hand is refused, not joined: it is not known when it ends, so when to ring the workers."""
    connection.connection.execute("BEGIN")
    with pytest.raises(OperationalError, match="within a transaction"):
        publish()
    connection.connection.execute("ROLLBACK")
    assert stored(alias) == 0


@pytest.mark.parametrize("owner", [BaseDatabaseWrapper, DatabaseWrapper])
def test_a_patched_class_of_connections_is_watched(
    connection: DatabaseWrapper, monkeypatch: pytest.MonkeyPatch, owner: type
) -> None:
    """Some tracers wrap the ``cursor`` of all connections at once."""
    usual = DatabaseWrapper.cursor

    @wraps(usual)
    def patched(*args: Any, **kwargs: Any) -> Any:
        return usual(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(owner, "cursor", patched)
        assert watched(connection)
    assert not watched(connection)
