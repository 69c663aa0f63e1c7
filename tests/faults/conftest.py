"""The processes and databases of tests/processes, for faults."""

from ..processes.conftest import database, doorbells, drain, start, start_worker  # noqa: F401
