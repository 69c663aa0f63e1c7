"""The processes and databases of tests/processes, for faults."""

from pathlib import Path

import pytest

from ..processes.conftest import (  # noqa: F401
    database,
    doorbells,
    drain,
    other,
    server_database,
    sides,
    start,
    start_worker,
)
from .scale import MINUTES


@pytest.fixture(params=["sqlite_file", "postgresql_database"], ids=["sqlite", "postgresql"])
def alias(request: pytest.FixtureRequest) -> str:
    """Return the alias of an empty database, once for each engine."""
    return str(request.getfixturevalue(request.param))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests of this folder take their time when they are told how much they have."""
    for item in items:
        if MINUTES and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(60 * MINUTES + 3600))
