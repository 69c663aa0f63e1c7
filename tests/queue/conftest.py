"""The processes and databases of tests/processes, for tests of doorbells."""

from ..processes.conftest import database, doorbells, server_database, start  # noqa: F401
