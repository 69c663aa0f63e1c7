"""The admin's pages beside a million jobs and a hundred thousand dead letters, on PostgreSQL: the time of each.

The rows are those of the benchmark of the same pages on SQLite, copied from there to a server that goes with it.
"""

from contextlib import closing

from tests import postgresql

from . import pages
from .tools import raw_connection  # it sets Django up

# ruff: isort: split
import psycopg
from django.core.management import call_command
from django.db import connections

from django_vtqueue.engines import engine_for

TABLES = ("job", "deadletter", "workerprocess", "throughput", "hourlythroughput", "queuestate")


def main() -> None:
    if not postgresql.binaries():
        print("\n13. PostgreSQL is not installed (apt-get install postgresql): nothing is measured", flush=True)
        return
    given = pages.filled()
    with postgresql.running() as server:
        use(server)
        with psycopg.connect(host=str(server.folder), user=postgresql.USER, autocommit=True) as connection:
            for table in TABLES:
                copy(f"vtqueue_{table}", connection)
            connection.execute("VACUUM ANALYZE")
            version = connection.info.server_version // 10000
        title = f"13. Pages of the admin on PostgreSQL {version}: {pages.numbers(given)} (raw: the admin's first page)"
        pages.measure(title, given.steps)
        connections.close_all()


def use(server: postgresql.Server) -> None:
    """Have the default database be that of a server, with its tables."""
    connections.settings["default"].update(server.settings())
    connections["default"].close()
    del connections["default"]
    engine_for.cache_clear()
    call_command("migrate", verbosity=0)


def copy(table: str, connection: psycopg.Connection) -> None:
    """Copy the rows of a table of the file."""
    with closing(raw_connection()) as file, connection.cursor() as cursor:
        names = ", ".join(f'"{name}"' for _, name, *_ in file.execute(f"PRAGMA table_info({table})"))
        with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as rows:
            for row in file.execute(f"SELECT {names} FROM {table} ORDER BY rowid"):
                rows.write_row(row)


if __name__ == "__main__":
    main()
