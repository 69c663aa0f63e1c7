"""A PostgreSQL database whose order of letters is not that of their codes: there ";" comes before ":"."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django import DjangoDbBlocker

from django_vtqueue import Lease, Queue, SlotCycle
from django_vtqueue.engines import engine_for
from django_vtqueue.inspection import overview
from django_vtqueue.inspection.holdings import cycles, holdings
from tests.conftest import empty_tables, reached
from tests.postgresql import Server

NAME = "letters"
QUEUES = ["A", "a", "B", "b", "lease", "lease-a", "Lease:x", "mail;", "slots", "_", "ä"]


@pytest.fixture(scope="module")
def sorted_by_language(server: Server, django_db_blocker: DjangoDbBlocker) -> Iterator[dict[str, Any]]:
    """Return the settings of such a database."""
    with django_db_blocker.unblock():
        with reached(server.settings()) as alias, connections[alias].cursor() as cursor:
            if connections[alias].pg_version < 150000:
                pytest.skip("the server has no databases of this kind")
            cursor.execute(f"CREATE DATABASE {NAME} LOCALE_PROVIDER icu ICU_LOCALE 'en-US' TEMPLATE template0")
        with reached(server.settings(NAME), "migrating") as alias:
            call_command("migrate", database=alias, verbosity=0, run_syncdb=True)
        yield server.settings(NAME)
        with reached(server.settings()) as alias, connections[alias].cursor() as cursor:
            cursor.execute(f"DROP DATABASE {NAME}")


@pytest.fixture
def alias(sorted_by_language: dict[str, Any], django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    with django_db_blocker.unblock(), reached(sorted_by_language) as alias:
        empty_tables(alias)
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT ';' < ':' AND 'a' < 'B'")
            assert cursor.fetchone() == (True,)
        yield alias


def test_leases_and_time_slots(alias: str) -> None:
    """Each is in the lists of what is held, and nothing else."""
    for name in QUEUES:
        Queue(name, using=alias).publish(1, unique_key="k")
    with Lease("b", 60, alias, False), Lease("A", 60, alias, False), SlotCycle("mail", 2, 30, using=alias).join():
        found = [(each.kind, each.name, each.key) for each in holdings(alias, engine_for(alias).now())]
        assert {*cycles(alias)} == {"mail"}
    assert [name for _, name, _ in found] == ["A", "b", "mail", "mail"]


def test_names_of_queues(alias: str) -> None:
    """They are found, counted and sorted as on any other database."""
    for name in QUEUES:
        Queue(name, using=alias).publish(1)
    names = sorted(QUEUES)
    assert engine_for(alias).queue_names() == names
    assert overview.sizes(alias, 100, 10) == dict.fromkeys(names, 1)
    assert [*overview.sizes(alias, 4, 10)] == engine_for(alias).queue_names(4) == names[:4]
