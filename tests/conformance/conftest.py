"""The engines on which the suite runs.

Another engine is one more parameter of ``alias``: a fixture that yields the alias of an empty, migrated database of its
kind.
"""

from typing import Any

import pytest
from pytest_django import Settings

from django_vtqueue.backend import VTQueueBackend
from django_vtqueue.engines import Engine, new_engine
from django_vtqueue.tasks.compat import task_backends

from .bench import Bench


@pytest.fixture(params=["sqlite_file", "postgresql_database"], ids=["sqlite", "postgresql"])
def alias(request: pytest.FixtureRequest) -> str:
    """Return the alias of an empty database, once for each engine."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture(params=[True, False], ids=["traced", "untraced"])
def engine(request: pytest.FixtureRequest, alias: str) -> Engine:
    """Return an engine as a web process has it (traced), and as a worker's control loop has it."""
    return new_engine(alias, traced=request.param)


@pytest.fixture
def bench(engine: Engine) -> Bench:
    return Bench(engine)


@pytest.fixture
def backend(alias: str, settings: Settings) -> VTQueueBackend:
    """Return the project's task backend, on the database of the engine."""
    return configure(settings, alias)


def configure(settings: Settings, alias: str, **options: Any) -> VTQueueBackend:
    """Set TASKS to one backend on a database; return it."""
    queues = options.pop("QUEUES", [])
    settings.TASKS = {
        "default": {
            "BACKEND": "django_vtqueue.backend.VTQueueBackend",
            "QUEUES": queues,
            "OPTIONS": {"database": alias, **options},
        }
    }
    backend = task_backends["default"]
    assert isinstance(backend, VTQueueBackend)
    return backend
