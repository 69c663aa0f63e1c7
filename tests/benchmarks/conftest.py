"""The processes and databases of tests/processes, for benchmarks."""

from ..processes.conftest import database, doorbells, start, start_worker  # noqa: F401
