"""The engines on which the suite runs.

Another engine is one more parameter of ``alias``: a fixture that yields the alias of an empty, migrated database of its
kind.
"""

from typing import Any

import pytest
from pytest_django import Settings

from django_vtqueue.backend import VTQueueBackend

from .bench import Bench, new_bench, task_backends


@pytest.fixture(params=["sqlite_file", "postgresql_database"], ids=["sqlite", "postgresql"])
def alias(request: pytest.FixtureRequest) -> str:
    """Return the alias of an empty database, once for each engine."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def traced() -> bool:
    """Return whether logs of queries see the statements of the engine: no, as in a worker. A file may try both."""
    return False


@pytest.fixture
def bench(alias: str, traced: bool, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return the bench of a control loop of a worker, or, if it is traced, of a web process."""
    return new_bench(alias, monkeypatch, traced=traced)


@pytest.fixture
def engine(bench: Bench) -> Any:
    """Return what is inside of the bench, for the tests of that in other folders."""
    return bench.engine


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
