"""Real clients, each as it is published: `make test-clients` makes their environment, and runs these tests."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import pytest

from ..postgresql import Server

collect_ignore_glob = [] if find_spec("freezegun") else ["test_*.py"]


@pytest.fixture
def own_database(server: Server) -> Iterator[dict[str, Any]]:
    """Return the settings of a new, empty database on the server of this test run."""
    import psycopg

    given, name = server.settings(), f"client_{uuid4().hex[:8]}"
    with psycopg.connect(host=given["HOST"], user=given["USER"], dbname="template1", autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name}")
        yield {**given, "NAME": name}
        session.execute(f"DROP DATABASE {name} WITH (FORCE)")
