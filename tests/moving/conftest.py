"""Two databases: what is moved from one to the other is looked at by SQL that knows nothing of the models."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connections, models
from pytest_django import DjangoDbBlocker

from django_vtqueue.models import DeadLetter, HourlyThroughput, Job, QueueState, Rate, Requeue, Schedule, Throughput

from ..conftest import empty_tables, reached

SOURCE, TARGET = "source", "target"
MODELS = (Job, DeadLetter, QueueState, Requeue, Schedule, Rate, Throughput, HourlyThroughput)
PAIRS = [("sqlite", "sqlite"), ("sqlite", "postgresql"), ("postgresql", "sqlite"), ("postgresql", "schema")]
FIXTURES = {"postgresql": "migrated", "schema": "schema"}

Rows = dict[str, list[dict[str, Any]]]


class Pair(NamedTuple):
    """The aliases of two databases."""

    source: str
    target: str

    @property
    def back(self) -> "Pair":
        return Pair(self.target, self.source)


@pytest.fixture(scope="session")
def schema(migrated: dict[str, Any], django_db_blocker: DjangoDbBlocker) -> dict[str, Any]:
    """Return the settings of another schema of the database of ``migrated``, with all tables."""
    database = {**migrated, "OPTIONS": {**migrated["OPTIONS"], "options": "-c search_path=other"}}
    with django_db_blocker.unblock(), reached(database) as alias:
        with connections[alias].cursor() as cursor:
            cursor.execute("CREATE SCHEMA other")
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
    return database


@pytest.fixture(params=PAIRS, ids="-to-".join)
def pair(
    request: pytest.FixtureRequest, empty_file: Path, tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> Iterator[Pair]:
    """Return two empty databases, of each pair of kinds between which people move."""
    kinds = request.param
    given = []
    for name, kind in zip((SOURCE, TARGET), kinds, strict=True):
        path = tmp_path / f"{name}.sqlite3"
        shutil.copy(empty_file, path)
        given.append({"NAME": str(path)} if kind == "sqlite" else request.getfixturevalue(FIXTURES[kind]))
    with django_db_blocker.unblock(), reached(given[0], SOURCE), reached(given[1], TARGET):
        for name, kind in zip((SOURCE, TARGET), kinds, strict=True):
            if kind != "sqlite":
                empty_tables(name)
        yield Pair(SOURCE, TARGET)


def plain(value: Any) -> Any:
    """Return a value that is the same on all databases."""
    return value.hex if isinstance(value, UUID) else int(value) if isinstance(value, bool) else value


def stored(alias: str, *left_out: str) -> Rows:
    """Return all rows of a database as they are stored, without ids that the database has given."""
    found = {}
    for model in MODELS:
        columns = [field.column for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
        with connections[alias].cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(columns)} FROM {model._meta.db_table}")
            rows = [dict(zip(columns, map(plain, row), strict=True)) for row in cursor.fetchall()]
        found[model.__name__] = sorted(rows, key=lambda row: str([row[column] for column in columns]))
    return found
