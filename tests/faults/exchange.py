"""What people do to the file of a database while it is in use."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from django.db import connections

from ..conftest import ALIAS


def back_up(database: Path, copy: Path) -> Path:
    """Copy a database as ``sqlite3 db .backup`` does."""
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def restore_in_place(copy: Path, database: Path) -> None:
    """Write a copy into the live file as ``sqlite3 db .restore`` does."""
    back_up(copy, database)


def delete(database: Path) -> None:
    """Remove a database file and its logs."""
    connections[ALIAS].close()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)


def move_over(new: Path, database: Path) -> None:
    """Put another file in the place of a database, with none of the old one's logs left beside it."""
    connections[ALIAS].close()
    for suffix in ("-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    os.replace(new, database)


def delete_and_copy(new: Path, database: Path) -> None:
    """Remove a database and copy another one to its path."""
    delete(database)
    shutil.copy(new, database)
