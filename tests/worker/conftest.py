"""The databases of tests/processes, for tests of what a worker writes."""

from ..processes.conftest import database, doorbells, server_database  # noqa: F401
