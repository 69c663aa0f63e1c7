"""The system checks of a database of PostgreSQL."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from pytest_django import DjangoDbBlocker
from pytest_django.fixtures import Settings

from django_vtqueue.database_checks import check_cut_off, check_databases, check_durability
from django_vtqueue.tasks.settings_checks import problems
from tests.conftest import reached

Ids = Callable[..., list[str | None]]


@pytest.fixture
def said(migrated: dict[str, Any], settings: Settings, django_db_blocker: DjangoDbBlocker) -> Ids:
    """Return a function that returns the ids of what is said of settings of a database, on a server with fsync off."""

    def said(**change: Any) -> list[str | None]:
        entry = {"BACKEND": "django_vtqueue.backend.VTQueueBackend", "OPTIONS": {"database": "file"}}
        settings.TASKS = {"default": entry}
        with django_db_blocker.unblock(), reached({**migrated, **change}) as alias:
            messages = [*problems("default", entry), *check_databases(databases=[alias])]
            return [message.id for message in messages + check_durability(databases=[alias])]

    return said


def options(text: str) -> dict[str, str]:
    return {"options": f"-c {text}"}


def test_what_a_server_may_lose(said: Ids) -> None:
    """A server that does not wait for its disk is warned of, and with --deploy one that takes commits back."""
    assert said() == ["vtqueue.W005", "vtqueue.W006"]
    assert said(OPTIONS=options("synchronous_commit=on")) == ["vtqueue.W005"]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_hold_each_text(
    said: Ids, migrated: dict[str, Any], django_db_blocker: DjangoDbBlocker, encoding: str
) -> None:
    """A database of another encoding than UTF8 is warned of."""
    with django_db_blocker.unblock(), reached(migrated, "beside"), connections["beside"].cursor() as cursor:
        cursor.execute(f"CREATE DATABASE other ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        try:
            assert "vtqueue.W014" in said(NAME="other")
        finally:
            cursor.execute("DROP DATABASE other WITH (FORCE)")


def test_missing_tables(said: Ids) -> None:
    """A database without the queue's tables is warned of; one that cannot be reached is left to others."""
    assert "vtqueue.W008" in said(OPTIONS=options("search_path=nothing"))
    assert said(HOST="/nonexistent") == []


@pytest.mark.parametrize(
    ("host", "options", "ids"),
    [
        ("db.example.com", {}, ["vtqueue.W012"]),
        ("127.0.0.1,db2.example.com", {"connect_timeout": 5}, ["vtqueue.W012"]),
        ("db.example.com", {"tcp_user_timeout": 5000}, []),
        *((host, {}, []) for host in ("", "localhost", "::1", "/run/postgresql", "@abstract", "localhost,/run/two")),
    ],
)
def test_a_host_that_may_be_cut_off(said: Ids, host: str, options: dict[str, int], ids: list[str]) -> None:
    """With --deploy a server on another host is warned of, unless the settings say how long an answer is waited for."""
    entry = {"ENGINE": "django.db.backends.postgresql", "NAME": "none", "HOST": host, "OPTIONS": options}
    said()  # its settings of TASKS
    with reached(entry):
        assert [message.id for message in check_cut_off()] == ids


def test_connections_that_cannot_be_used(said: Ids, tmp_path: Path) -> None:
    """A project that commits by itself is refused: no worker would."""
    assert "vtqueue.E013" in said(AUTOCOMMIT=False)
    said()  # its settings of TASKS
    with reached({"NAME": str(tmp_path / "db.sqlite3"), "AUTOCOMMIT": False}):
        assert [message.id for message in problems("default", settings.TASKS["default"])] == ["vtqueue.E013"]
