"""The project that is measured: its settings, and a fresh database in a temporary folder.

Importing this sets Django up. Processes that a run starts use its folder, which they find in the environment.
"""

import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import django

PATIENCE = 600.0  # seconds

if "VTQUEUE_BENCH_FOLDER" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="vtqueue-bench-")  # removed at the end of this process
    os.environ["VTQUEUE_BENCH_FOLDER"] = _folder.name
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # by the way that removes and stops all there is
FOLDER = Path(os.environ["VTQUEUE_BENCH_FOLDER"])
DATABASE, MIGRATED = FOLDER / "db.sqlite3", FOLDER / "migrated.sqlite3"

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402

from .app import tasks  # noqa: E402

__all__ = [
    "DATABASE",
    "FOLDER",
    "fresh",
    "raw_connection",
    "rows",
    "tasks",
    "wait_until",
    "wal_size",
]


def remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def fresh(path: Path = DATABASE) -> Path:
    """Put a migrated database without rows in the place of the last one; nobody may have that open."""
    connections.close_all()
    if not MIGRATED.exists():
        call_command("migrate", verbosity=0)
        connections.close_all()
        shutil.move(DATABASE, MIGRATED)
    remove(path)
    shutil.copyfile(MIGRATED, path)
    return path


def raw_connection(path: Path = DATABASE) -> sqlite3.Connection:
    """Return a connection without Django, set up as Django's is."""
    connection = sqlite3.connect(path, timeout=20, isolation_level=None)
    connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
    return connection


def rows(sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Read from the database."""
    with closing(raw_connection()) as connection:
        return connection.execute(sql, values).fetchall()


def wal_size(path: Path = DATABASE) -> float:
    """Return the size of a database's WAL in MB."""
    wal = Path(f"{path}-wal")
    return wal.stat().st_size / 1e6 if wal.exists() else 0.0


def wait_until(condition: Callable[[], Any], every: float = 0.05) -> None:
    """Wait for a condition; raise TimeoutError if it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:g} s in vain")
        time.sleep(every)
