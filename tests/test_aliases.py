"""The alias of the tests' own databases, which leads to another one in each test."""

from typing import Any

from django.db import connections
from pytest_django import DjangoDbBlocker

from django_vtqueue.engines import engine_for

from .conftest import ALIAS, reached


def test_an_alias_that_led_to_another_kind(migrated: dict[str, Any], django_db_blocker: DjangoDbBlocker) -> None:
    """Its engine is that of the new database, also where a test has taken the alias away without ``reached``."""
    connections.settings[ALIAS] = connections.settings["default"]
    assert engine_for(ALIAS).connection.vendor == "sqlite"  # type: ignore[attr-defined]
    del connections[ALIAS], connections.settings[ALIAS]
    with django_db_blocker.unblock(), reached(migrated) as alias:
        assert engine_for(alias).describe().startswith("postgres (PostgreSQL")
